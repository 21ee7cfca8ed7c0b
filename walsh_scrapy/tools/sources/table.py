"""The table of ``scrapy sources``, for a terminal and for a pipe."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.tools.printable import columns, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walsh_scrapy.tools.sources.lines import SourceLine

#: More rows than a person looks through are not measured and framed: that takes rich a while.
FRAMED: Final = 2000
_HEADINGS: Final = (
    "outcome", "status", "failures", "last visit", "next due", "why", "entries", "kind", "source",
    "remarks",
)  # fmt: skip
_HOST_WAITS: Final = {
    "hold": "host on hold until",
    "lease": "host asked by another run, until",
    "spacing": "host at rest until",
}


def sources_table(lines: Sequence[SourceLine]) -> Table:
    """Return the table for a terminal; what servers and files say stands in it as plain text."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("source", overflow="fold", ratio=3)
    table.add_column("kind")
    table.add_column("last visit", no_wrap=True)
    table.add_column("outcome", overflow="fold", ratio=2)
    table.add_column("next due, why", overflow="fold", min_width=len("2026-05-23 06:00"))
    table.add_column("entries", justify="right", min_width=len("entries"))
    for line in lines:
        record = line.record
        status = f" {record.status}" if record.status else ""
        often = f", {record.failures} times" if record.failures > 1 else ""
        detail = f"\n{record.detail}" if record.detail else ""
        table.add_row(
            _text("\n".join([*_called(line), *_remarks(line)])),
            _text(line.kind),
            _text(_moment(record.fetched_at)),
            _text(f"{record.outcome}{status}{often}{detail}"),
            _text(f"{_due(line)}\n{line.due.why}"),
            _text(str(line.entries)),
            style=_style(line),
        )
    return table


def sources_text(lines: Sequence[SourceLine]) -> Iterator[str]:
    """Yield the table as lines for a pipe: a source a line, nothing cut, the URL whole."""
    return columns([_HEADINGS, *map(_cells, lines)])


def summary(lines: Sequence[SourceLine]) -> str:
    """Say in a line how many sources there are, how many in trouble, and how many due."""
    troubles = Counter(
        line.due.rule if line.due.rule in ("gone", "new") else line.record.outcome.split()[0]
        for line in lines
        if line.trouble[0] < 4
    )
    parts = [f"{count} {what}" for what, count in troubles.items()]
    due = sum(line.due.is_due for line in lines)
    noun = "source" if len(lines) == 1 else "sources"
    return f"{len(lines)} {noun}: {', '.join([*parts, f'{due} due now'])}"


def undeclared(count: int) -> str:
    """Say in a line that the state knows more than is declared."""
    return f"{count} more in the state are no longer declared; --all shows them"


def _cells(line: SourceLine) -> tuple[str, ...]:
    record, source = line.record, line.source
    remarks = [f'"{source.name}"'] if source and source.name else []
    remarks += [*_remarks(line), *([record.detail] if record.detail else [])]
    cells = (
        record.outcome,
        str(record.status or "-"),
        str(record.failures),
        rfc3339(record.fetched_at) or "never",
        "now" if line.due.is_due else rfc3339(line.due.at) or "never",
        line.due.why,
        str(line.entries),
        line.kind,
        record.url,
        "; ".join(remarks),
    )
    return tuple(map(printable, cells))


def _called(line: SourceLine) -> Iterator[str]:
    if line.source and line.source.name:
        yield line.source.name
    yield line.record.url


def _remarks(line: SourceLine) -> Iterator[str]:
    record = line.record
    if move := record.move:
        how = "asked for there" if move.is_settled else f"watched since {rfc3339(move.since)}"
        if move.is_doubted:
            how = f"fails since {rfc3339(move.failing_since)}, asked for where it is declared"
        yield f"moved to {move.to} ({how})"
        if move.onward:
            since = rfc3339(move.onward.since)
            yield f"moved on to {move.onward.to} (watched since {since})"
    if waits := line.host_waits:
        yield f"{_HOST_WAITS[waits[0]]} {rfc3339(waits[1])}"


def _due(line: SourceLine) -> str:
    return "now" if line.due.is_due else _moment(line.due.at)


def _moment(at: float | None) -> str:
    """Return a time to the minute, in UTC."""
    written = rfc3339(at)
    return written[:-4].replace("T", " ") if written else "never"


def _style(line: SourceLine) -> str:
    return {0: "red", 1: "red", 2: "yellow"}.get(int(line.trouble[0]), "")


def _text(text: str) -> Text:
    return Text("\n".join(map(printable, text.split("\n"))))
