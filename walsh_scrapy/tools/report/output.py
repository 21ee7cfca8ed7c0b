"""The output of tools: rows as JSON and as text, for a pipe or a terminal; and lines.

A row has a list of columns. JSON has every column. Text has those that are shown: in a pipe one
line per row, at a terminal its title, and its facts below. No URL is cut. A list that is longer
than the screen is shown in a pager.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from rich.cells import cell_len

from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.wording import format_seconds, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.text import Text

#: Terminal cells that a column is padded to at most.
_WIDEST: Final = 60
_INDENT: Final = "  "


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of rows: its name in JSON, its value there, and whether text has it too."""

    name: str
    of: Callable[[Row], Any]
    shown: bool = True

    @property
    def heading(self) -> str:
        """The name in text."""
        return self.name.replace("_", " ")

    def cell(self, row: Row) -> str:
        """Return the value in text, a float as a duration; "-" if it is not known or empty."""
        value = self.of(row)
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, float):
            return format_seconds(value) if value else "-"
        if isinstance(value, dict):
            value = " ".join(str(each) for each in value.values() if each)
        elif isinstance(value, list):
            value = ", ".join(value)
        return "-" if value in (None, "") else str(value)


def as_dict(row: Row, columns: Iterable[Column[Row]]) -> dict[str, Any]:
    """Return every column of a row, for JSON."""
    return {column.name: column.of(row) for column in columns}


def shown(columns: Iterable[Column[Row]]) -> list[Column[Row]]:
    """Return the columns that text has."""
    return [column for column in columns if column.shown]


def table(rows: Iterable[Row], of: Iterable[Column[Row]]) -> Iterator[str]:
    """Yield the headings and a line for each row; nothing for no rows."""
    chosen = shown(of)
    cells = [[column.cell(row) for column in chosen] for row in rows]
    return columns([[column.heading for column in chosen], *cells]) if cells else iter(())


def facts(row: Row, columns: Iterable[Column[Row]]) -> Iterator[str]:
    """Yield name and value of each shown column but the first, unless it is empty or 0."""
    for column in shown(columns)[1:]:
        cell = column.cell(row)
        if cell not in ("-", "0"):
            yield f"{column.heading} {cell}"


def record(row: Row, columns: Sequence[Column[Row]]) -> Iterator[str]:
    """Yield every column of one row that has a value, shown in lists or not, on one line each."""
    title, *others = columns
    yield title.cell(row)
    width = max(len(column.heading) for column in others)
    for column in others:
        if (cell := column.cell(row)) != "-":
            yield f"  {column.heading:{width}}  {cell}"


def screen(
    rows: Iterable[Row],
    columns: Sequence[Column[Row]],
    width: int,
    style: Callable[[Row], str] = lambda _: "",
) -> Iterator[Text]:
    """Yield lines for a terminal of ``width`` cells: the first column, and below it the facts.

    Only the first is longer than the terminal is wide. Markup in texts of strangers has no effect.
    """
    from rich.style import Style
    from rich.text import Text

    for row in rows:
        given = columns[0].cell(row)
        title, colour = printable(given), style(row)
        # A link that a terminal opens; an escaped text is not an address.
        link = Style(link=title) if title == given and "://" in title else Style()
        yield Text(title, Style(bold=True) + Style.parse(colour) + link)
        for line in fold(map(printable, facts(row, columns)), width - len(_INDENT)):
            yield Text(_INDENT + line, colour)


def show_rows(
    rows: Sequence[Row],
    columns: Sequence[Column[Row]],
    *,
    as_json: bool,
    style: Callable[[Row], str] = lambda _: "",
) -> None:
    """Print rows: as JSON, or in the way that suits the standard output."""
    if as_json:
        print_lines(json_array(as_dict(row, columns) for row in rows))
    elif rows and sys.stdout.isatty():
        from rich.console import Console

        show(screen(rows, columns, Console().width, style))
    else:
        print_lines(table(rows, columns))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to standard output, each safe for a terminal."""
    for line in lines:
        print(printable(line))


def minute(at: float | None) -> str:
    """Return an epoch second to the minute, in UTC; "never" for None."""
    written = rfc3339(at)
    return written[:16].replace("T", " ") if written else "never"


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each row, with the cells of a column aligned, and made printable.

    Nothing is cut or wrapped, so a very long cell moves the rest of its line to the right.
    """
    rows = [[*map(printable, row)] for row in rows]
    widths = [min(max(map(cell_len, cells)), _WIDEST) for cells in zip(*rows, strict=True)]
    for row in rows:
        padded = (
            cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)
        )
        yield "  ".join(padded).rstrip()


def json_array(objects: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Yield the lines of a JSON array, one object a line."""
    before = "["
    for each in objects:
        yield before + json.dumps(each)
        before = ","
    yield "]" if before == "," else "[]"


def show(lines: Iterable[Text]) -> None:
    """Print lines; at a terminal that they do not fit, in the pager that `PAGER` names, or less.

    Lines are not wrapped here: a terminal that wraps one lets it be copied whole. Colours and links
    are written to terminals only. `PAGER=cat` prints without a pager.
    """
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    if not console.is_terminal:
        for line in lines:
            print(line.plain)
        return
    rows = 0
    with console.capture() as captured:
        for line in lines:
            rows += max(1, -(-line.cell_len // console.width))
            console.print(line)
    if rows < console.height or not sys.stdin.isatty() or not _page(captured.get()):
        sys.stdout.write(captured.get())


def fold(parts: Iterable[str], width: int) -> Iterator[str]:
    """Yield lines of at most ``width`` cells with the parts, separated by a dot.

    A part that is longer than a line is broken between words. A longer word, such as a URL, is
    never broken, and is on a separate line.
    """
    line = ""
    for part in parts:
        joined = f"{line} · {part}" if line else part
        if cell_len(joined) <= width:
            line = joined
            continue
        if line:
            yield line
        *whole, line = _break(part, width)
        yield from whole
    if line:
        yield line


def _break(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= width or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(word)
    return lines


def _page(text: str) -> bool:
    """Show a text in the pager; return False if there is none."""
    import shlex
    import subprocess

    command = shlex.split(os.environ.get("PAGER", "less"))
    if not command or command == ["cat"] or os.environ.get("TERM") == "dumb":
        return False
    # As git does: colours and links, no pager for a short text, and the text stays on the screen.
    environment = {"LESS": "FRX"} | os.environ
    try:
        with _without_interrupts():
            subprocess.run(  # noqa: S603 - the operator's program
                command, input=text.encode(errors="backslashreplace"), env=environment, check=False
            )
    except OSError:
        return False
    return True


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Leave Ctrl-C to the pager, which handles it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
