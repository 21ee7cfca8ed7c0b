"""Printing rows: a table at a terminal, tab-separated values in a pipe, or JSON lines.

The rows may quote sites and files. So control characters are escaped in a table and in a pipe, and
JSON has only ASCII.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from datetime import datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from walsh_scrapy.policy.wording import format_relative, format_seconds, printable
from walsh_scrapy.programname import program_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from walsh_scrapy.state import State
    from walsh_scrapy.state.sql import Terms

#: The width of a table in terminal cells. The last column may be wider, because URLs are not cut.
MAX_WIDTH: Final = 100
#: Other columns are cut, down to _MIN_WIDTH, until the last column has this width if it needs it:
#: a name is shown on one line, and a sentence goes on in the next one.
_NAME_WIDTH: Final = 40
_SENTENCE_WIDTH: Final = 20
#: The width to which columns are cut first, which is the length of a time such as `12 h ago`.
_MIN_WIDTH: Final = 8
#: Columns that a terminal of less than `MAX_WIDTH` cells does not show.
_WIDE_ONLY: Final = frozenset({"since", "operator_delay", "published"})
#: The number of rows that set the widths of the columns, so that a long list needs no memory.
_MEASURED_ROWS: Final = 1000
#: The maximum width to which `align` pads a column.
_MAX_PADDING: Final = 60
_GAP: Final = "  "
_YELLOW: Final = "\x1b[33m"
_RED: Final = "\x1b[31m"
_RESET: Final = "\x1b[0m"
#: Problems that can wait, and are yellow; all others are red.
_MILD_PROBLEMS: Final = frozenset(
    {
        *("warning", "note", "refused", "robots", "delay", "denied", "moved", "resent"),
        *("hold", "unreachable", "server errors"),
    }
)
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ")
_ONE_LINE: Final = str.maketrans("\t\r\n", "   ")
#: Columns with commands to copy, which have the name `walsh` in the views.
_COMMAND_COLUMNS: Final = ("advice", "command")


def show(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str
) -> None:
    """Print rows as a table at a terminal, as tab-separated values in a pipe, or as JSON.

    A table and a pipe have the ``columns``; JSON has every column of the rows. If there are no
    rows, the sentence ``empty`` is printed instead, in a pipe on standard error, and not for JSON.
    """
    named_rows = map(_name_program_in, rows)
    if as_json:
        for row in named_rows:
            print(json.dumps(row))
        return
    if sys.stdout.isatty():
        is_wide = shutil.get_terminal_size().columns >= MAX_WIDTH
        shown = [column for column in columns if is_wide or column not in _WIDE_ONLY]
        lines = _format_table(named_rows, shown)
    else:
        lines = _format_tabs(named_rows, columns)
        print("\t".join(columns))
    is_empty = True
    for line in lines:
        print(line)
        is_empty = False
    if is_empty:
        print(empty, file=sys.stdout if sys.stdout.isatty() else sys.stderr)


def show_facts(row: Mapping[str, Any], groups: Mapping[str, Sequence[str]]) -> None:
    """Print the columns of one row in groups with a heading, without cutting a value.

    Values that are missing, False or 0 are left out.
    """
    named_row = _name_program_in(row)
    width = max(len(name) for names in groups.values() for name in names)
    for heading, names in groups.items():
        cells = {name: _format_readable(named_row[name]) for name in names if named_row[name]}
        if cells:
            print(heading)
        for name, cell in cells.items():
            print(f"  {_heading(name):{width}}  {cell}")


class ViewList(NamedTuple):
    """A list that a command prints: a view of the state database, with columns and an order."""

    view: str
    columns: Sequence[str]  #: the columns of a table and of a pipe
    order_by: str
    empty: str  #: the sentence if there are no rows
    #: adds the words to a row with all columns of the view
    complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    #: the columns that a table and a pipe read, and what adds their words; if they are others
    reads: Sequence[str] = ()
    complete_table: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None

    def show(
        self,
        state: State | None,
        *,
        as_json: bool,
        where: str = "",
        params: Mapping[str, Any] | None = None,
        terms: Terms | None = None,
    ) -> None:
        """Print the rows that match a condition in SQL; none without a state database."""
        if state is None:
            show(
                (),
                self.columns,
                as_json=as_json,
                empty="no crawl has run yet, or WALSH_STATE_URL names another database",
            )
            return
        rows = state.rows(
            self.view,
            columns="*" if as_json else ", ".join(self.reads or self.columns),
            where=where,
            order_by=self.order_by,
            params=params,
            terms=terms,
        )
        complete = self.complete if as_json else self.complete_table or self.complete
        show(map(complete, rows), self.columns, as_json=as_json, empty=self.empty)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, with control characters escaped."""
    for line in lines:
        print(printable(line))


def align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each row, with aligned columns, and with control characters escaped.

    Nothing is cut: a very long cell moves the rest of its line to the right.
    """
    printable_rows = [[printable(cell) for cell in row] for row in rows]
    columns = zip(*printable_rows, strict=True)
    widths = [min(max(map(cell_len, cells)), _MAX_PADDING) for cells in columns]
    for row in printable_rows:
        cells = zip(row, widths, strict=True)
        padded = [cell + " " * (width - cell_len(cell)) for cell, width in cells]
        yield _GAP.join(padded).rstrip()


def name_program(text: str) -> str:
    """Replace `walsh` in commands by the name under which the program was called."""
    return re.sub(r"\bwalsh (?=[a-z])", f"{program_name()} ", text)


def to_the_minute(text: str) -> str:
    """Replace RFC 3339 times in a text by times such as `2026-05-23 06:00`."""
    return _TIME.sub(r"\1 \2", text)


def _name_program_in(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with the name under which the program was called in its commands."""
    named_row = dict(row)
    for column in _COMMAND_COLUMNS:
        if named_row.get(column):
            named_row[column] = name_program(row[column])
    return named_row


def _format_tabs(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    for row in rows:
        yield "\t".join(_format_cell(row[column]) for column in columns)


def _format_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """Yield aligned lines that fit the terminal, and are at most `MAX_WIDTH` cells wide."""
    remaining = iter(rows)
    first_rows = list(islice(remaining, _MEASURED_ROWS))
    if not first_rows:
        return
    headings = [_heading(column) for column in columns]
    now = time.time()
    measured = [
        headings,
        *([_format_brief(row[column], now) for column in columns] for row in first_rows),
    ]
    widths = [max(map(cell_len, cells)) for cells in zip(*measured, strict=True)]
    last_width = _SENTENCE_WIDTH if columns[-1] == "problem" else _NAME_WIDTH
    cut_columns = [place for place, name in enumerate(columns[:-1]) if name != "command"]
    _fit_widths(widths, cut_columns, min(widths[-1], last_width))
    has_colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    yield _format_line(headings, widths)
    for row in chain(first_rows, remaining):
        line = _format_line([_format_brief(row[column], now) for column in columns], widths)
        problem = row.get("severity") or row.get("problem")
        if problem and has_colours:
            line = f"{_YELLOW if problem in _MILD_PROBLEMS else _RED}{line}{_RESET}"
        yield line


def _fit_widths(widths: list[int], cut_columns: Sequence[int], wanted_width: int) -> None:
    """Make the widest of ``cut_columns`` narrower until a line fits.

    The last column gets ``wanted_width`` if possible.
    """
    space = min(MAX_WIDTH, shutil.get_terminal_size().columns) - len(_GAP) * (len(widths) - 1)
    for last_width, min_width in ((wanted_width, _MIN_WIDTH), (0, 1)):
        while sum(widths[:-1]) + last_width > space:
            widest = max(cut_columns, key=widths.__getitem__)
            if widths[widest] <= min_width:
                break
            widths[widest] -= 1


def _format_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    *middle, last = cells
    cut_cells = [_cut(cell, width) for cell, width in zip(middle, widths, strict=False)]
    return _GAP.join([*cut_cells, last]).rstrip()


def _cut(cell: str, width: int) -> str:
    """Pad or cut a text to ``width`` terminal cells, with an ellipsis if it was cut."""
    if cell_len(cell) > width:
        cell = set_cell_size(cell, width - 1) + "…"
    return set_cell_size(cell, width)


def _heading(column: str) -> str:
    return column.replace("_", " ")


def _format_readable(value: Any) -> str:  # noqa: ANN401 - columns have any type
    """Format a value for people: times to the minute, and seconds as a duration."""
    if isinstance(value, float):
        return format_seconds(value)
    return to_the_minute(_format_cell(value))


def _format_brief(value: Any, now: float) -> str:  # noqa: ANN401 - columns have any type
    """Format a value for a table: a time by its distance from now."""
    if isinstance(value, str) and _TIME.fullmatch(value):
        return format_relative(datetime.fromisoformat(value).timestamp() - now)
    return _format_readable(value)


def _format_cell(value: Any) -> str:  # noqa: ANN401 - columns have any type
    """Format a value on one line; a missing value is an empty text."""
    if value is None:
        return ""
    if isinstance(value, float):
        return str(round(value, 3))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value).translate(_ONE_LINE))
