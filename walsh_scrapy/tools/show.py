"""The rows of a view: a table at a terminal, tab-separated in a pipe, or one JSON object per line.

Texts in the rows may be those of strangers. The lines of a terminal and of a pipe have no control
characters; JSON has only ASCII.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from walsh_scrapy.policy.wording import format_seconds, printable
from walsh_scrapy.programname import program_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.state import State

#: Terminal cells of a line; the last column may be longer, because no URL is cut.
MAX_WIDTH: Final = 100
#: Cells that are kept for the last column if it needs them, while others are cut to MIN_WIDTH.
_LAST_WIDTH: Final = 20
#: Cells of a column that are only cut at a narrow terminal: the length of a time.
_MIN_WIDTH: Final = 16
#: Rows that are measured, so that a list of any length needs no memory; others are cut to fit.
_MEASURED_ROWS: Final = 1000
#: Terminal cells that aligned cells are padded to at most.
_MAX_PADDING: Final = 60
_GAP: Final = "  "
_YELLOW: Final = "\x1b[33m"
_RED: Final = "\x1b[31m"
_RESET: Final = "\x1b[0m"
#: Problems that nobody has to act on at once; all others are red.
_MILD: Final = frozenset(
    {"warning", "refused", "denied", "moved", "resent", "hold", "unreachable", "server errors"}
)
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ")
_ONE_LINE: Final = str.maketrans("\t\r\n", "   ")
#: Columns with commands to copy, which views write as `walsh COMMAND`.
_WITH_COMMANDS: Final = ("advice", "command")


def show(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str
) -> None:
    """Print rows in the way that suits standard output; JSON has every column of a row.

    ``columns`` are those of a table and of a pipe. ``empty`` is the sentence for no rows: a pipe
    gets it on standard error, and JSON not at all.
    """
    named_rows = map(_name_row, rows)
    if as_json:
        for row in named_rows:
            print(json.dumps(row))
        return
    if sys.stdout.isatty():
        lines = _table(named_rows, columns)
    else:
        lines = _tab_separated(named_rows, columns)
        print("\t".join(columns))
    is_empty = True
    for line in lines:
        print(line)
        is_empty = False
    if is_empty:
        print(empty, file=sys.stdout if sys.stdout.isatty() else sys.stderr)


def show_facts(row: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> None:
    """Print columns of one row below the headings of their groups; no value is cut.

    A value that is missing, no or 0 has no line.
    """
    named_row = _name_row(row)
    width = max(len(name) for names in groups.values() for name in names)
    for heading, names in groups.items():
        cells = {name: _readable(named_row[name]) for name in names if named_row[name]}
        if cells:
            print(heading)
        for name, cell in cells.items():
            print(f"  {_heading(name):{width}}  {cell}")


class ViewList(NamedTuple):
    """A view of the state as a command lists it."""

    view: str
    columns: Sequence[str]  #: of a table and of a pipe
    order_by: str
    empty: str  #: the sentence for no rows

    def show(
        self,
        state: State | None,
        *,
        as_json: bool,
        where: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Print the rows that match a condition in SQL; none if there is no state."""
        if state is None:
            empty = "there is no state yet, or crawls have another WALSH_STATE_URL"
            show((), self.columns, as_json=as_json, empty=empty)
            return
        # A few columns of a million rows are read much faster than all of them.
        columns = "*" if as_json else ", ".join(self.columns)
        rows = state.rows(
            self.view, columns=columns, where=where, order_by=self.order_by, params=params
        )
        show(rows, self.columns, as_json=as_json, empty=self.empty)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines to standard output, each safe for a terminal."""
    for line in lines:
        print(printable(line))


def align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each row, with the cells of a column aligned, and made printable.

    Nothing is cut, so a very long cell moves the rest of its line to the right.
    """
    printed = [[printable(cell) for cell in row] for row in rows]
    columns = zip(*printed, strict=True)
    widths = [min(max(map(cell_len, cells)), _MAX_PADDING) for cells in columns]
    for row in printed:
        cells = zip(row, widths, strict=True)
        padded = [cell + " " * (width - cell_len(cell)) for cell, width in cells]
        yield _GAP.join(padded).rstrip()


def name_program(text: str) -> str:
    """Return a text with its commands, `walsh COMMAND`, as they have to be called here."""
    return re.sub(r"\bwalsh (?=[a-z])", f"{program_name()} ", text)


def to_the_minute(text: str) -> str:
    """Return a text with its RFC 3339 times as people read them: `2026-05-23 06:00`."""
    return _TIME.sub(r"\1 \2", text)


def _name_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with its commands as they have to be called here."""
    named_row = dict(row)
    for column in _WITH_COMMANDS:
        if named_row.get(column):
            named_row[column] = name_program(row[column])
    return named_row


def _tab_separated(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    for row in rows:
        yield "\t".join(_cell(row[column]) for column in columns)


def _table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """Yield aligned lines of at most `MAX_WIDTH` cells, and of the terminal's if it is narrower."""
    remaining = iter(rows)
    first = list(islice(remaining, _MEASURED_ROWS))
    if not first:
        return
    headings = [_heading(column) for column in columns]
    measured = [headings, *([_readable(row[column]) for column in columns] for row in first)]
    widths = [max(map(cell_len, cells)) for cells in zip(*measured, strict=True)]
    _fit(widths, [place for place, name in enumerate(columns[:-1]) if name != "command"])
    has_colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    yield _line(headings, widths)
    for row in chain(first, remaining):
        line = _line([_readable(row[column]) for column in columns], widths)
        problem = row.get("severity") or row.get("problem")
        if problem and has_colours:
            line = f"{_YELLOW if problem in _MILD else _RED}{line}{_RESET}"
        yield line


def _fit(widths: list[int], cut_columns: Sequence[int]) -> None:
    """Make the widest of ``cut_columns`` narrower, so that a line fits."""
    space = min(MAX_WIDTH, shutil.get_terminal_size().columns) - len(_GAP) * (len(widths) - 1)
    for last_width, min_width in ((min(widths[-1], _LAST_WIDTH), _MIN_WIDTH), (0, 1)):
        while sum(widths[:-1]) + last_width > space:
            widest = max(cut_columns, key=widths.__getitem__)
            if widths[widest] <= min_width:
                break
            widths[widest] -= 1


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    *middle, last = cells
    cut = [_cut(cell, width) for cell, width in zip(middle, widths, strict=False)]
    return _GAP.join([*cut, last]).rstrip()


def _cut(cell: str, width: int) -> str:
    """Return a cell in exactly ``width`` terminal cells, with an ellipsis where it was cut."""
    if cell_len(cell) > width:
        cell = set_cell_size(cell, width - 1) + "…"
    return set_cell_size(cell, width)


def _heading(column: str) -> str:
    return column.replace("_", " ")


def _readable(value: Any) -> str:  # noqa: ANN401 - of any column
    """Return a value for people: times to the minute, and seconds as a duration."""
    if isinstance(value, float):
        return format_seconds(value)
    return to_the_minute(_cell(value))


def _cell(value: Any) -> str:  # noqa: ANN401 - of any column
    """Return a value on one line; an empty text if there is none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value).translate(_ONE_LINE))
