"""The progress of a run, its summary, and its row in the state.

The log gets a line each minute, and about ten lines at the end. At a terminal the progress is shown
below the log. The row has the summary as JSON, as in ``walsh_scrapy/summary.schema.json``.
"""

from __future__ import annotations

import atexit
import logging
import math
import platform
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scrapy import signals
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.log import get_scrapy_root_handler

from walsh_scrapy import __version__
from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.startup import report_new_state, warn_of_other_bots
from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.identity import SPEC_VERSION
from walsh_scrapy.policy.wording import format_seconds, printable, shorten
from walsh_scrapy.state.engine import StateError
from walsh_scrapy.state.runstore import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console
    from scrapy import Spider
    from scrapy.crawler import Crawler

    from walsh_scrapy.crawl.context import Retry
    from walsh_scrapy.crawl.declared import RunSummary
    from walsh_scrapy.crawl.hosts.queue import Queue
    from walsh_scrapy.crawl.messages import Signer
    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.options import Options

logger = logging.getLogger(__name__)

#: Between two lines of the log, and between two changes of the display.
LINE_SECONDS: Final = 60.0
DISPLAY_SECONDS: Final = 1.0
#: A delay up to this one needs no mention.
_USUAL_DELAY_SECONDS: Final = 1.0

#: The packages of commands that run a spider.
_SCRAPY_COMMANDS: Final = "scrapy.commands."
_OUR_COMMANDS: Final = "walsh_scrapy.tools."
_PACKAGES: Final = ("scrapy", "twisted")


class _End(NamedTuple):
    """What the summary said of the end of the run."""

    reason: str
    error: str


class Summary(Component):
    """Shows the progress of a run, and writes its row: when the spider opens and when it closes.

    The requests and entries of the run name the row.
    """

    def __init__(self, crawl: Crawl) -> None:
        super().__init__(crawl)
        self._context = crawl.context
        self._logged_counts = ""
        self._display: Display | None = None
        self._ended: _End | None = None
        self._timer = create_looping_call(self._show_progress)
        crawl.crawler.signals.connect(self.spider_opened, signals.spider_opened)
        crawl.crawler.signals.connect(self.spider_closed, signals.spider_closed)
        crawl.crawler.signals.connect(self.exports_closed, signals.feed_exporter_closed)

    def spider_opened(self, spider: Spider) -> None:
        """Begin the row, and to show the progress, as ``WALSH_PROGRESS`` says."""
        self._begin_row(spider)
        if self._context.options.progress == "off":
            return
        self._display = Display.open(self._crawl.settings.getdict("FEEDS"))
        self._timer.start(DISPLAY_SECONDS if self._display else LINE_SECONDS, now=False)

    def spider_closed(self, reason: str) -> None:
        """Complete the row, and log the summary; ``reason`` is why, as Scrapy names it."""
        if self._timer.running:
            self._timer.stop()
        if self._display:
            self._show_progress()
            self._display.close()
        self._report_new_state()
        summary = self._end_row(reason)
        self._ended = _End(reason, summary.error)
        logger.info("run %s; %s:\n  %s", reason, summary.subject, "\n  ".join(summary.lines))
        if summary.error:
            logger.error("%s", summary.error)

    def exports_closed(self) -> None:
        """Complete the row again if an export could not be stored, which shows after the summary.

        The row does not wait for the exports: a signal may close the state in the meantime.
        """
        if self._ended is None:
            return
        stats = self._crawl.stats.get_stats()
        now = self._context.clock.now()
        error = self._crawl.declared.summary(stats, self._ended.reason, now).error
        if error != self._ended.error:
            self._end_row(self._crawl.engine.end_reason or self._ended.reason)
            logger.error("%s", error)

    def _begin_row(self, spider: Spider) -> None:
        """Write the begin of the run. If the state fails, the crawl ends for that reason."""
        context = self._context
        declared = self._crawl.declared
        run = RunRecord(
            spider=spider.name,
            command=command_of(self._crawl.crawler, spider),
            started_at=context.started_at,
            versions=versions(declared.packages),
            settings=settings_of(context.options, self._crawl.signer)
            | {"force": declared.is_forced, "kind": self._crawl.kind.value},
        )
        try:
            if not run.command:
                warn_of_other_bots(context)
            context.run = context.state.runs.begin(run, declared.declaration())
        except StateUnavailable as error:
            logger.debug("the start of the run is not recorded: %s", error)

    def _report_new_state(self) -> None:
        """Say that the state is new; requests by hand may begin one too, and do not count."""
        crawler = self._crawl.crawler
        if crawler.spider is None or command_of(crawler, crawler.spider):
            return
        try:
            report_new_state(self._context, self._crawl.declared.folder)
        except (StateError, StateUnavailable) as error:
            logger.debug("whether the state is new is unknown: %s", error)

    def _end_row(self, reason: str) -> RunSummary:
        """Complete the row of the run, and return its summary."""
        context = self._context
        now = context.clock.now()
        summary = self._crawl.declared.summary(self._crawl.stats.get_stats(), reason, now)
        self._crawl.stats.set_value("walsh/problem", summary.record["problem"])
        spider = self._crawl.crawler.spider
        if context.run is None:
            return summary
        run = {
            "run": context.run,
            "spider": spider.name if spider else "",
            "started_at": context.started_at,
            "ended_at": now,
        }
        try:
            online_at = context.connectivity.proven_at
            context.state.runs.end(context.run, now, reason, run | summary.record, online_at)
        except (StateError, StateUnavailable) as error:
            logger.debug("the end of the run is not recorded: %s", error)
        return summary

    def _show_progress(self) -> None:
        """Change the display, or log a line if something was done since the last one."""
        stats = self._crawl.stats.get_stats()
        queue = self._crawl.queue
        counts, sources = self._crawl.declared.progress(stats)
        if (workers := self._crawl.hosts.workers) > 1:
            counts += f", one of {workers} workers"
        # Nobody knows how many requests a spider without sources will have.
        seconds = math.inf if sources is None else queue.remaining(sources)
        duration = ""
        if 0 < seconds < math.inf:
            duration = f"at least {format_seconds(max(1.0, round(seconds)))} left"
        host = awaited(queue, self._context.retries, self._context.clock.monotonic())
        if not host and (others := self._crawl.access.awaited_from_others()):
            host = f"waiting for {shorten(others, 1)}, which another worker owns"
        parts = [part for part in (counts, duration, host) if part]
        if self._display:
            self._display.show(parts)
        elif counts != self._logged_counts:
            logger.info("so far: %s", "; ".join(parts))
            self._logged_counts = counts


# ---- the begin of a run ----


def command_of(crawler: Crawler, spider: Spider) -> str:
    """Return the command that requests a URL by hand, or "" for a crawl.

    `fetch`, `parse` and `check` give the spider another ``start``. `shell` only opens the engine.
    The commands of `walsh` have spiders that are named after them.
    """
    if not crawler.crawling:
        return "shell"
    module = type(spider).start.__module__
    if module.startswith(_OUR_COMMANDS):
        return spider.name
    return module.removeprefix(_SCRAPY_COMMANDS) if module.startswith(_SCRAPY_COMMANDS) else ""


def versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of the contract, of Python and of the packages that read and request."""
    numbers = {package: version(package) for package in (*_PACKAGES, *packages)}
    numbers["contract"] = SPEC_VERSION
    numbers["python"] = platform.python_version()
    numbers["walsh-scrapy"] = __version__  # a clone and an egg have no metadata of a package
    return numbers


def settings_of(options: Options, signer: Signer | None) -> dict[str, Any]:
    """Return the options of a run, as JSON has them, and which key signs.

    ``signing_key`` is the thumbprint of that key, "" if none signs, and not the path of its file.
    """
    return options.for_record() | {"signing_key": signer.key_id if signer else ""}


def awaited(queue: Queue, retries: Mapping[str, Retry], now: float) -> str:
    """Return the host that a run requests or waits for at ``now``, and why; empty for none."""
    tries = {host: retry for host, retry in retries.items() if retry.at > now}
    for retry in tries.values():
        if retry.for_blocklist:
            return f"waiting for the blocklist: {retry.sentence(now)}"
    if hosts := queue.in_flight:
        purpose = " for the blocklist" if queue.frontier.is_restricted else ""
        return f"requesting {shorten(tuple(hosts), 1)}{purpose}"
    next_host = queue.frontier.next_host()
    if next_host is None or next_host.ready_at <= now:
        return ""
    host = next_host.host
    if host in tries:
        return f"waiting for {host}, which {tries[host].failure}: {tries[host].sentence(now)}"
    if queue.frontier.is_restricted:
        host = "the blocklist"
    delay = next_host.delay or 0.0
    slow = f" (its delay is {format_seconds(delay)})" if delay > _USUAL_DELAY_SECONDS else ""
    return f"waiting for {host}: next request in {format_seconds(next_host.ready_at - now)}{slow}"


# ---- the display at a terminal ----


class Display:
    """A few lines below the log on a terminal.

    The handler of Scrapy writes to the standard error, which is redirected above the lines.
    """

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        handler = get_scrapy_root_handler()
        has_log = isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr
        self._handler = handler if has_log else None
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=has_log,  # the summary takes the place of the lines
            redirect_stdout=_is_terminal(sys.stdout),
        )
        self._live.start()
        self._follow_stderr()
        atexit.register(self.close)  # a second signal ends the process without an end of the crawl

    @classmethod
    def open(cls, exports: Iterable[str]) -> Display | None:
        """Return the display, or None if the standard error is no terminal that can show it.

        ``exports`` are the URIs of a crawl's exports: one that goes to the same terminal would
        tear the display. So would a second display, of another crawl in the process.
        """
        is_torn = _is_terminal(sys.stdout) and any(uri.startswith("stdout:") for uri in exports)
        if is_torn or hasattr(sys.stderr, "rich_proxied_file") or not _is_terminal(sys.stderr):
            return None
        from rich.console import Console

        console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        return cls(console) if console.is_interactive else None

    def show(self, lines: Iterable[str]) -> None:
        """Replace the lines, each cut at the width; a terminal that was closed shows nothing."""
        from rich.text import Text

        text = "\n".join(printable(line) for line in lines)
        try:
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
        except OSError:
            self.close()

    def close(self) -> None:
        """Remove the lines, and let the log write to the terminal itself again."""
        atexit.unregister(self.close)
        try:
            self._live.stop()
        except OSError:
            logger.debug("the terminal was closed")
        self._follow_stderr()

    def _follow_stderr(self) -> None:
        """Let the log write to the standard error as it is now."""
        if isinstance(self._handler, logging.StreamHandler):
            self._handler.setStream(sys.stderr)


def _is_terminal(stream: object) -> bool:
    """Return True for a terminal; streams under ``LOG_STDOUT`` have no isatty."""
    return bool(getattr(stream, "isatty", bool)())
