"""The table of ``scrapy sources``, for a terminal and for a pipe."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.wording import counted
from walsh_scrapy.tools.printable import columns, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from walsh_scrapy.tools.sources.overview import SourceRow

#: Most rows that are shown as a table by rich, which takes long to lay out more.
MOST_FRAMED: Final = 2000
_HEADINGS: Final = (
    "outcome", "status", "failures", "last visit", "next due", "why", "entries", "kind", "source",
    "remarks",
)  # fmt: skip
_HOST_WAITS: Final = {
    "hold": "host on hold until",
    "lease": "host in use by another run until",
    "spacing": "host waits until",
}


def sources_table(rows: Sequence[SourceRow]) -> Table:
    """Return the table for a terminal; markup in texts of servers and files has no effect."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("source", overflow="fold", ratio=3)
    table.add_column("kind")
    table.add_column("last visit", no_wrap=True)
    table.add_column("outcome", overflow="fold", ratio=2)
    table.add_column("next due, why", overflow="fold", min_width=len("2026-05-23 06:00"))
    table.add_column("entries", justify="right", min_width=len("entries"))
    for row in rows:
        record = row.record
        status = f" {record.status}" if record.status else ""
        times = f", {record.failures} times" if record.failures > 1 else ""
        detail = f"\n{record.detail}" if record.detail else ""
        table.add_row(
            _text("\n".join([*_name_and_url(row), *_remarks(row)])),
            _text(row.kind),
            _text(_moment(record.fetched_at) or "never"),
            _text(f"{record.outcome}{status}{times}{detail}"),
            _text(f"{_next(row, _moment)}\n{row.due.why}"),
            _text(str(row.entries)),
            style=_style(row),
        )
    return table


def sources_text(rows: Sequence[SourceRow]) -> Iterator[str]:
    """Yield the table as lines for a pipe: one line for each source, nothing cut or wrapped."""
    return columns([_HEADINGS, *map(_cells, rows)])


def totals(rows: Sequence[SourceRow]) -> str:
    """Return one line: the number of sources, of each kind of trouble, and of due ones."""
    troubles = Counter(
        row.due.rule if row.due.rule in ("gone", "new") else row.record.outcome.split()[0]
        for row in rows
        if row.urgency[0] < 4
    )
    parts = [f"{count} {what}" for what, count in troubles.items()]
    held = sum(row.due.held_until is not None for row in rows)
    parts.append(f"{sum(row.due.is_due for row in rows) - held} due now")
    if held:
        parts.append(f"{held} due but on hold")
    return f"{counted(len(rows), 'source')}: {', '.join(parts)}"


def hidden_line(count: int) -> str:
    """Return one line: how many sources are not listed because they are no longer declared."""
    return f"no longer declared, listed only with --all: {counted(count, 'source')}"


def _cells(row: SourceRow) -> tuple[str, ...]:
    record, source = row.record, row.source
    remarks = [f'"{source.name}"'] if source and source.name else []
    remarks += [*_remarks(row), *([record.detail] if record.detail else [])]
    cells = (
        record.outcome,
        str(record.status or "-"),
        str(record.failures),
        rfc3339(record.fetched_at) or "never",
        _next(row, rfc3339),
        row.due.why,
        str(row.entries),
        row.kind,
        record.url,
        "; ".join(remarks),
    )
    return tuple(map(printable, cells))


def _name_and_url(row: SourceRow) -> Iterator[str]:
    if row.source and row.source.name:
        yield row.source.name
    yield row.record.url


def _remarks(row: SourceRow) -> Iterator[str]:
    record = row.record
    if move := record.move:
        how = "visited there" if move.is_settled else f"watched since {rfc3339(move.since)}"
        if move.is_doubted:
            how = f"failing since {rfc3339(move.failing_since)}, visited where it is declared"
        yield f"moved to {move.to} ({how})"
        if move.onward:
            since = rfc3339(move.onward.since)
            yield f"moved on to {move.onward.to} (watched since {since})"
    if (waits := row.host_waits) and row.due.held_until is None:
        yield f"{_HOST_WAITS[waits[0]]} {rfc3339(waits[1])}"


def _next(row: SourceRow, written: Callable[[float | None], str | None]) -> str:
    """Return when the source can be visited; a hold of its host comes before that."""
    if row.due.is_due and row.due.held_until is None:
        return "now"
    return written(row.due.held_until or row.due.at) or "never"


def _moment(at: float | None) -> str | None:
    """Return a time to the minute, in UTC."""
    written = rfc3339(at)
    return written[:-4].replace("T", " ") if written else None


def _style(row: SourceRow) -> str:
    return {0: "red", 1: "red", 2: "yellow"}.get(int(row.urgency[0]), "")


def _text(text: str) -> Text:
    return Text("\n".join(map(printable, text.split("\n"))))
