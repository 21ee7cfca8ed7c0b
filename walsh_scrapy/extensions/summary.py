"""The progress of a run, its summary, and its row in the state.

The log gets a line each minute, and about ten lines at the end. At a terminal the progress is shown
below the log. The row has the summary as JSON, as in ``walsh_scrapy/summary.schema.json``.
"""

from __future__ import annotations

import atexit
import logging
import math
import platform
import re
import sys
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from scrapy import signals
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.log import get_scrapy_root_handler

from walsh_scrapy import __version__
from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.identity import SPEC_VERSION
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.wording import and_more, count_of, format_seconds, printable, shorten
from walsh_scrapy.programname import program_name
from walsh_scrapy.state.runstore import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console
    from scrapy import Spider
    from scrapy.crawler import Crawler

    from walsh_scrapy.crawl.context import Retry
    from walsh_scrapy.crawl.hosts.queue import Queue
    from walsh_scrapy.crawl.messages import Signer
    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.crawl.problems import Problems
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
_PACKAGES: Final = ("scrapy", "twisted", "feedparser", "markdown-it-py")
#: The stats of denied sources, and of denied requests, by gate.
_DENIED_SOURCES: Final = re.compile(r"walsh/sources/denied/(\w+)")
_DENIED_REQUESTS: Final = re.compile(r"walsh/(?!sources/)(\w+)/denied")
_COUNTED: Final = ("fetched", "unchanged", "deferred", "failed", "gone", "due", "not_due")
#: In the JSON: reasons of failures, hosts of each, and hosts that are deferred.
MAX_REASONS: Final = 50
MAX_HOSTS: Final = 20
MAX_DEFERRED_HOSTS: Final = 100
#: In the log: reasons of failures, hosts of each, and sites with Comment lines.
_MAX_REASON_LINES: Final = 4
_MAX_LINE_HOSTS: Final = 2
_MAX_SITES: Final = 3
#: The clean ends of a run: as Scrapy names it, and with requests that wait for a later run.
_FINISHED: Final = ("finished", "deferred")
#: Outcomes with a line even if their count is 0.
_ALWAYS: Final = ("responses", "fetched", "new entries")


class Summary(Component):
    """Shows the progress of a run, and writes its row: when the spider opens and when it closes.

    The requests and entries of the run name the row.
    """

    def __init__(self, crawl: Crawl) -> None:
        super().__init__(crawl)
        self._context = crawl.context
        self._logged_counts = ""
        self._display: Display | None = None
        self._timer = create_looping_call(self._show_progress)
        crawl.crawler.signals.connect(self.spider_opened, signals.spider_opened)
        crawl.crawler.signals.connect(self.spider_closed, signals.spider_closed)

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
        stats = self._crawl.stats.get_stats()
        now = self._context.clock.now()
        summary = summary_of(stats, self._crawl.problems, reason, now)
        self._end_row(summary, reason, now)
        subject = "sources" if is_by_source(stats) else "requests"
        logger.info("run %s; %s:\n  %s", reason, subject, "\n  ".join(summary_lines(summary)))
        if is_none_read(stats):
            logger.error("no source was read, and %d failed", summary["failed"])

    def _begin_row(self, spider: Spider) -> None:
        """Write the begin of the run. If the state fails, the crawl ends for that reason."""
        context = self._context
        declared = self._crawl.declared
        run = RunRecord(
            spider=spider.name,
            command=command_of(self._crawl.crawler, spider),
            started_at=context.started_at,
            versions=versions(),
            settings=settings_of(context.options, self._crawl.signer)
            | {"force": declared.is_forced, "kind": self._crawl.kind.value},
        )
        try:
            context.run = context.state.runs.begin(run, declared.declaration())
        except StateUnavailable as error:
            logger.debug("the start of the run is not recorded: %s", error)

    def _end_row(self, summary: Mapping[str, Any], reason: str, now: float) -> None:
        context = self._context
        spider = self._crawl.crawler.spider
        if context.run is None:
            return
        run = {
            "run": context.run,
            "spider": spider.name if spider else "",
            "started_at": context.started_at,
            "ended_at": now,
        }
        try:
            online_at = context.connectivity.proven_at
            context.state.runs.end(context.run, now, reason, {**run, **summary}, online_at)
        except StateUnavailable as error:
            logger.debug("the end of the run is not recorded: %s", error)

    def _show_progress(self) -> None:
        """Change the display, or log a line if something was done since the last one."""
        stats = self._crawl.stats.get_stats()
        queue = self._crawl.queue
        counts = progress_counts(stats)
        if (workers := self._crawl.hosts.workers) > 1:
            counts += f", one of {workers} workers"
        seconds = math.inf  # nobody knows how many requests a spider without sources will have
        if is_by_source(stats):
            seconds = queue.remaining(stats["walsh/sources/due"] - done_sources(stats))
        duration = ""
        if 0 < seconds < math.inf:
            duration = f"at least {format_seconds(max(1.0, round(seconds)))} left"
        host = awaited(queue, self._context.retries, self._context.clock.monotonic())
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


def versions() -> dict[str, str]:
    """Return the versions of the contract, of Python and of the packages that read and request."""
    numbers = {package: version(package) for package in _PACKAGES}
    numbers["contract"] = SPEC_VERSION
    numbers["python"] = platform.python_version()
    numbers["walsh-scrapy"] = __version__  # a clone and an egg have no metadata of a package
    return numbers


def settings_of(options: Options, signer: Signer | None) -> dict[str, Any]:
    """Return the options of a run, as JSON has them, and which key signs.

    ``signing_key`` is the thumbprint of that key, "" if none signs, and not the path of its file.
    """
    return options.for_record() | {"signing_key": signer.key_id if signer else ""}


# ---- counts, from the stats of a run ----


def is_by_source(stats: Mapping[str, Any]) -> bool:
    """Return True if the spider of a run visits declared sources."""
    return "walsh/sources/due" in stats


def source_counts(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of sources by outcome; ``denied`` is by gate."""
    counts: dict[str, Any] = {name: stats.get(f"walsh/sources/{name}", 0) for name in _COUNTED}
    return counts | {"denied": _denied(stats, _DENIED_SOURCES)}


def done_sources(stats: Mapping[str, Any]) -> int:
    """Return the number of sources that have an outcome in this run."""
    counts = source_counts(stats)
    ended = sum(counts[name] for name in ("fetched", "unchanged", "deferred", "failed", "gone"))
    return int(ended + sum(counts["denied"].values()))


def is_none_read(stats: Mapping[str, Any]) -> bool:
    """Return True if sources failed, and none was fetched or unchanged: the exit status is 1.

    Denied, deferred and later sources have not failed, but they are not a success either.
    """
    counts = source_counts(stats)
    return bool(counts["failed"]) and not (counts["fetched"] or counts["unchanged"])


def summary_of(
    stats: Mapping[str, Any], problems: Problems, reason: str, now: float
) -> dict[str, Any]:
    """Return the summary of a run: by source with its problems, or by request without any.

    ``reason`` is the end of the run, as Scrapy names it, ``now`` its moment in epoch seconds.
    """
    if not is_by_source(stats):
        return {
            "finish_reason": reason,
            "responses": stats.get("response_received_count", 0),
            "denied": _denied(stats, _DENIED_REQUESTS),
            "undeclared": stats.get("walsh/scope/dropped", 0),
            "deferred": stats.get("walsh/requests/deferred", 0),
            "retried": stats.get("walsh/backoff/retried", 0),
        }
    summary = source_counts(stats)
    deferred_hosts = sorted(problems.deferred.items(), key=lambda item: item[1])
    summary |= {
        "finish_reason": reason,
        "not_reached": max(summary["due"] - done_sources(stats), 0),
        "deferred_until": stats.get("walsh/sources/deferred_until"),
        "deferred_hosts": dict(deferred_hosts[:MAX_DEFERRED_HOSTS]),
        "stopped": stats.get("walsh/sources/resting", 0),
        "next_due": stats.get("walsh/sources/next_due"),
        "new_entries": stats.get("walsh/entries/new", 0),
        "known_entries": stats.get("walsh/entries/known", 0),
        "comments": stats.get("walsh/robots/comments", {}),
        "failures": [
            {
                "reason": group.reason,
                "sources": group.sources,
                "hosts": group.hosts[:MAX_HOSTS],
                "more_hosts": max(0, len(group.hosts) - MAX_HOSTS),
            }
            for group in problems.failures.largest_first()[:MAX_REASONS]
        ],
    }
    return summary | {"next": _next_steps(summary, now)}


def _denied(stats: Mapping[str, Any], pattern: re.Pattern[str]) -> dict[str, int]:
    """Return the denials by gate, in the order of their names."""
    matches = ((pattern.fullmatch(name), count) for name, count in sorted(stats.items()))
    return {match[1]: count for match, count in matches if match}


def _next_steps(summary: Mapping[str, Any], now: float) -> list[str]:
    """Return the next steps of the operator, one phrase each; none if all is well."""
    steps = []
    if summary["failed"]:
        shows = "shows the start of each failure, and the next visit"
        steps.append(f"`{program_name()} sources` {shows}")
    if still_due := summary["deferred"] + summary["not_reached"]:
        until = summary["deferred_until"] or 0.0
        is_later = until > now and summary["finish_reason"] in _FINISHED
        when = f" after {format_moment(until)}" if is_later else ""
        steps.append(f"start the run again{when}: {count_of(still_due, 'source')} still due")
    return steps


# ---- the lines of the log ----


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return a line for each outcome that any source or request had, and the next steps."""
    denied = sum(summary["denied"].values())
    by_gate = ", ".join(f"{count} by {gate}" for gate, count in summary["denied"].items())
    if "due" not in summary:
        return _table(
            [
                ("responses", summary["responses"], "robots.txt included"),
                ("denied", denied, by_gate),
                ("undeclared", summary["undeclared"], "not requested (R6)"),
                ("deferred", summary["deferred"], "to a later run; the log has the reasons"),
                ("retried", summary["retried"], "after 429 or 503"),
            ]
        )
    first = next(iter(summary["deferred_hosts"].items()), None)
    deferred = f"the first until {format_moment(first[1])}: {first[0]}" if first else ""
    next_due = summary["next_due"]
    next_visit = "" if next_due is None else f"the next one at {format_moment(next_due)}"
    unchanged = "304 Not Modified, or an llms.txt that was read before"
    gone = f"410: no visit before `{program_name()} sources resume URL`"
    rows = [
        ("fetched", summary["fetched"], ""),
        ("unchanged", summary["unchanged"], unchanged),
        ("denied", denied, by_gate),
        ("deferred", summary["deferred"], deferred),
        ("failed", summary["failed"], *_failure_lines(summary)),
        ("gone", summary["gone"], gone),
        ("not reached", summary["not_reached"], "still due: the run ended before"),
        ("not due", summary["not_due"], next_visit),
        ("stopped", summary["stopped"], "gone (410) on an earlier visit"),
        ("new entries", summary["new_entries"], f"{summary['known_entries']} known before"),
    ]
    steps = [f"next: {step}" for step in summary["next"]]
    return [*_table(rows), *_comment_lines(summary["comments"]), *steps]


def _table(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return the lines of each row with a count: its name, its count and its remarks."""
    lines = []
    for name, count, *remarks in rows:
        if count or name in _ALWAYS:
            first, *further = remarks if count and remarks else [""]
            lines.append(f"{name:<12}{count:>7}   {first}".rstrip())
            lines += [f"{'':<22}{remark}" for remark in further]
    return lines


def _failure_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return why sources failed: the most common reasons with hosts, and the number of others."""
    lines = []
    unexplained = summary["failed"]
    for failure in summary["failures"][:_MAX_REASON_LINES]:
        hosts = failure["hosts"][:_MAX_LINE_HOSTS]
        hidden = len(failure["hosts"]) + failure["more_hosts"] - len(hosts)
        more = f" and {count_of(hidden, 'more host')}" if hidden else ""
        lines.append(f"{failure['sources']} {failure['reason']}: {', '.join(hosts)}{more}")
        unexplained -= failure["sources"]
    if lines and unexplained > 0:
        lines.append(f"{unexplained} for other reasons")
    return lines


def _comment_lines(comments: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the Comment lines of robots.txt files to the operator, of the first sites with any."""
    lines = [
        f"{origin}/robots.txt has the comment: {' · '.join(texts)}"
        for origin, texts in islice(comments.items(), _MAX_SITES)
    ]
    hidden = len(comments) - _MAX_SITES
    return [*lines, f"{and_more(hidden)} with comments in robots.txt"] if hidden > 0 else lines


def progress_counts(stats: Mapping[str, Any]) -> str:
    """Return what a run has done: `57 of 206 sources done, 31 new entries, 4 failed, 3 denied`."""
    if not is_by_source(stats):
        return count_of(stats.get("response_received_count", 0), "response")
    counts = source_counts(stats)
    counts["denied"] = sum(counts["denied"].values())
    parts = [
        f"{done_sources(stats)} of {count_of(counts['due'], 'source')} done",
        count_of(stats.get("walsh/entries/new", 0), "new entry", "new entries"),
        f"{counts['failed']} failed",
    ]
    names = ("unchanged", "denied", "deferred", "gone")
    return ", ".join([*parts, *(f"{counts[name]} {name}" for name in names if counts[name])])


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
