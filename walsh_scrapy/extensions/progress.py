"""Progress of a run: a display at a terminal, else lines of the log (``WALSH_PROGRESS``).

The display stays below the log.
"""

from __future__ import annotations

import atexit
import logging
import math
import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.log import get_scrapy_root_handler

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.extensions.summary import SourceCounts, is_by_source
from walsh_scrapy.policy.wording import count_of, format_seconds, printable, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console, RenderableType

    from walsh_scrapy.crawl.context import Retry
    from walsh_scrapy.crawl.crawl import Crawl
    from walsh_scrapy.crawl.queue import Queue

logger = logging.getLogger(__name__)

#: Seconds from one line of the log to the next.
LINE_SECONDS = 60.0
#: Seconds from one change of the display to the next.
DISPLAY_SECONDS = 1.0
#: Changes of the display over which the rate of responses is measured.
WINDOW: Final = 60
#: A delay up to this many seconds needs no mention.
_USUAL: Final = 1.0


class Progress(Component):
    """Shows the progress each second, or logs one line per minute if something was done since.

    Raises NotConfigured if progress is off.
    """

    def __init__(self, crawl: Crawl) -> None:
        if crawl.context.options.progress == "off":
            raise NotConfigured
        super().__init__(crawl)  # its queues are made with the scheduler
        self._clock = crawl.context.clock
        self._began = self._clock.monotonic()
        #: Times and numbers of responses, over the last minute of a display.
        self._seen = deque([(self._began, 0)], maxlen=WINDOW)
        self._last = ""
        self._display: Display | None = None
        self._timer = create_looping_call(self._tell)
        crawl.crawler.signals.connect(self.spider_opened, signals.spider_opened)
        crawl.crawler.signals.connect(self.spider_closed, signals.spider_closed)

    def spider_opened(self) -> None:
        """Start the timer, and the display if there is a terminal."""
        self._display = Display.open([*map(str, self._crawl.settings.getdict("FEEDS"))])
        self._timer.start(DISPLAY_SECONDS if self._display else LINE_SECONDS, now=False)

    def spider_closed(self) -> None:
        """Stop the timer, and end the display with its last state."""
        if self._timer.running:
            self._timer.stop()
        if self._display:
            self._display.show(self._snapshot())
            self._display.close()

    def _tell(self) -> None:
        snapshot = self._snapshot()
        if self._display:
            self._display.show(snapshot)
        elif snapshot.counts != self._last:
            logger.info("so far: %s", snapshot.line)
            self._last = snapshot.counts

    def _snapshot(self) -> ProgressSnapshot:
        stats, now = self._crawl.stats.get_stats(), self._clock.monotonic()
        due, done, outcomes = outcomes_of(stats)
        self._seen.append((now, stats.get("response_received_count", 0)))
        queue, workers = self._crawl.queue, self._crawl.hosts.workers
        if workers > 1:
            outcomes = (*outcomes, f"one of {workers} workers")
        return ProgressSnapshot(
            due=due,
            done=done,
            outcomes=outcomes,
            seconds=now - self._began,
            rate=rate_of(self._seen),
            left=math.inf if due is None else queue.remaining(due - done),
            awaited=awaited(queue, self._crawl.context.retries, now),
        )


def rate_of(seen: Sequence[tuple[float, int]]) -> float:
    """Return responses per second; ``seen`` has times, in seconds, and their numbers."""
    (began, before), (now, responses) = seen[0], seen[-1]
    return (responses - before) / (now - began) if now > began else 0.0


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """The progress of a run. ``due`` is None without declared sources. Durations are seconds."""

    due: int | None
    done: int
    outcomes: tuple[str, ...]  #: `31 new entries`, `4 failed`
    seconds: float  #: since the run began
    rate: float  #: responses per second
    left: float  #: the least that the run still takes; infinite if nobody knows
    awaited: str  #: the host of the request in flight, or of the wait, and why

    @property
    def how_far(self) -> str:
        """The done part of the due sources: `57 of 206 sources done`."""
        if self.due is None:
            return count_of(self.done, "response")
        return f"{self.done} of {count_of(self.due, 'source')} done"

    @property
    def time_left(self) -> str:
        """The remaining time, by the delays, in words; empty if nobody knows."""
        if not 0 < self.left < math.inf:
            return ""
        return f"at least {format_seconds(max(1.0, round(self.left)))} left"

    @property
    def counts(self) -> str:
        """The progress and the outcomes, as one phrase."""
        return ", ".join((self.how_far, *self.outcomes))

    @property
    def line(self) -> str:
        """All of it as one line of a log."""
        return "; ".join(filter(None, (self.counts, self.time_left, self.awaited)))


def outcomes_of(stats: Mapping[str, Any]) -> tuple[int | None, int, tuple[str, ...]]:
    """Return the numbers of due and done sources, and the outcomes, from the stats of a run."""
    if not is_by_source(stats):
        return None, stats.get("response_received_count", 0), ()
    counts = SourceCounts.of(stats)
    others = {
        "unchanged": counts.unchanged,
        "denied": sum(counts.denied.values()),
        "deferred": counts.deferred,
        "gone": counts.gone,
    }
    new = count_of(counts.new_entries, "new entry", "new entries")
    told = [f"{count} {name}" for name, count in others.items() if count]
    return counts.due, counts.done, (new, f"{counts.failed} failed", *told)


def awaited(queue: Queue, retries: Mapping[str, Retry], now: float) -> str:
    """Return the host that a run requests or waits for at ``now``, and why; empty for none."""
    tries = {host: retry for host, retry in retries.items() if retry.at > now}
    if of_list := [retry for retry in tries.values() if retry.for_blocklist]:
        return f"waiting for the blocklist: {of_list[0].sentence(now)}"
    if hosts := queue.in_flight:
        purpose = " for the blocklist" if queue.frontier.is_restricted else ""
        return f"requesting {shorten(tuple(hosts), 1)}{purpose}"
    found = queue.frontier.next_host()
    if found is None or found.ready_at <= now:
        return ""
    host = found.host
    if retry := tries.get(host):
        return f"waiting for {host}, which {retry.why}: {retry.sentence(now)}"
    host = "the blocklist" if queue.frontier.is_restricted else host
    delay = found.delay or _USUAL
    slow = f" (its delay is {format_seconds(delay)})" if delay > _USUAL else ""
    return f"waiting for {host}: next request in {format_seconds(found.ready_at - now)}{slow}"


#: The scheme of Scrapy's exports to the standard output.
_STDOUT: Final = "stdout:"


class Display:
    """Shows snapshots on the terminal of the standard error, with the log above them.

    The handler that Scrapy sets up for all loggers writes through the display meanwhile, so that a
    line of the log never stands within it.
    """

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._terminal, handler = sys.stderr, get_scrapy_root_handler()
        is_here = isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr
        self._handler = cast("logging.StreamHandler[TextIO]", handler) if is_here else None
        self._live = Live(
            console=console,
            auto_refresh=False,
            # The summary takes its place, if it is logged here.
            transient=self._handler is not None,
            redirect_stdout=_is_terminal(sys.stdout),
        )
        self._live.start()
        atexit.register(self.close)  # a second signal ends the process without an end of the crawl
        if self._handler:
            self._handler.setStream(cast("TextIO", _AboveDisplay(console)))

    @classmethod
    def open(cls, exports: list[str]) -> Display | None:
        """Return the display, or None if the standard error is not a terminal that can show it.

        ``exports`` are the URIs of a crawl's exports: one that goes to the same terminal would
        tear the display. So would a second display, of another crawl in the process.
        """
        to_stdout = any(uri.startswith(_STDOUT) for uri in exports)
        if hasattr(sys.stderr, "rich_proxied_file") or (to_stdout and _is_terminal(sys.stdout)):
            return None
        if not _is_terminal(sys.stderr):
            return None
        from rich.console import Console

        console = Console(file=sys.stderr, highlight=False)
        return cls(console) if console.is_interactive else None

    def show(self, snapshot: ProgressSnapshot) -> None:
        """Replace the shown state; a terminal that was closed shows nothing."""
        try:
            self._live.update(render(snapshot), refresh=True)
        except OSError:
            self.close()

    def close(self) -> None:
        """End the display, and let the log write to the terminal itself again."""
        if self._handler:
            self._handler.setStream(self._terminal)
            self._handler = None
        try:
            self._live.stop()
        except OSError:  # the terminal was closed
            return
        finally:
            atexit.unregister(self.close)


class _AboveDisplay:
    """A stream whose text a console writes above its live display, unchanged."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> None:
        self._console.out(text, end="", highlight=False)

    def flush(self) -> None:
        """Do nothing: the console flushes."""


def render(snapshot: ProgressSnapshot) -> RenderableType:
    """Return a snapshot for a terminal: at most three lines, none of them wrapped."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    def line(*parts: str) -> Text:
        return Text(" · ".join(filter(None, parts)), no_wrap=True, overflow="ellipsis")

    time = format_seconds(int(snapshot.seconds))
    far = line(snapshot.how_far, time, snapshot.time_left)
    if snapshot.due:
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True)
        bar = ProgressBar(total=snapshot.due, completed=snapshot.done, complete_style="green")
        grid.add_row(bar, far)
    rate, awaited = f"{snapshot.rate:.1f} responses/s", printable(snapshot.awaited)
    rows = [grid if snapshot.due else far, line(*snapshot.outcomes, rate), line(awaited)]
    return Group(*rows)


def _is_terminal(stream: object) -> bool:
    """Return True for a terminal; streams under ``LOG_STDOUT`` have no isatty."""
    return bool(getattr(stream, "isatty", bool)())
