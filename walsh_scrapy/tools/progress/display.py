"""The display at a terminal: a few lines that stay below the log."""

from __future__ import annotations

import atexit
import logging
import sys
from typing import TYPE_CHECKING, Final, TextIO, cast

from scrapy.utils.log import get_scrapy_root_handler

from walsh_scrapy.policy.wording import format_seconds, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from walsh_scrapy.tools.progress.snapshot import Snapshot

#: The scheme by which Scrapy exports to the standard output.
_STDOUT: Final = "stdout:"


class Display:
    """Shows snapshots on the terminal of the standard error, with the log above them.

    The handler that Scrapy sets up for all loggers writes through the display meanwhile, so that a
    line of the log never stands within it.
    """

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._terminal = sys.stderr
        self._handler = _terminal_handler()
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=self._handler
            is not None,  # the summary takes its place, if it is logged here
            redirect_stdout=_is_terminal(sys.stdout),
        )
        self._live.start()
        atexit.register(self.close)  # a second signal ends the process without an end of the crawl
        if self._handler:
            self._handler.setStream(cast("TextIO", _AboveDisplay(console)))

    @classmethod
    def open(cls, exports: list[str]) -> Display | None:
        """Return the display, or None if the standard error is no terminal that can show it.

        ``exports`` are the URIs of a crawl's exports: one that goes to the same terminal would
        tear the display. So would a second display, of another crawl in the process.
        """
        is_proxied = hasattr(sys.stderr, "rich_proxied_file")
        is_shared = is_proxied or (_is_terminal(sys.stdout) and _has_stdout(exports))
        if is_shared or not _is_terminal(sys.stderr):
            return None
        from rich.console import Console

        console = Console(file=sys.stderr, highlight=False)
        return cls(console) if console.is_interactive else None

    def show(self, snapshot: Snapshot) -> None:
        """Replace what is shown; a terminal that was closed shows nothing."""
        try:
            self._live.update(rendered(snapshot), refresh=True)
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


def rendered(snapshot: Snapshot) -> RenderableType:
    """Return what a terminal shows of a snapshot: at most three lines, none of them wrapped."""
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


def _terminal_handler() -> logging.StreamHandler[TextIO] | None:
    """Return Scrapy's handler if it writes to the terminal."""
    handler = get_scrapy_root_handler()
    is_terminal = isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr
    return handler if is_terminal else None  # type: ignore[return-value]


def _is_terminal(stream: object) -> bool:
    """Return True for a terminal; what ``LOG_STDOUT`` puts in place of a stream has no isatty."""
    return bool(getattr(stream, "isatty", bool)())


def _has_stdout(exports: list[str]) -> bool:
    return any(uri.startswith(_STDOUT) for uri in exports)
