"""The table of ``scrapy sources``, for a terminal and for a pipe."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from rich.style import Style
from rich.text import Text

from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.tools.output import columns, fold, minute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from walsh_scrapy.tools.sources.overview import SourceRow

_INDENT: Final = "  "
_HEADINGS: Final = (
    "outcome", "status", "failures", "last visit", "next due", "why", "entries",
    "newest entry", "kind", "source", "remarks",
)  # fmt: skip
_HOST_WAITS: Final = {
    "hold": "its host on hold until",
    "in flight": "request to its host in flight until",
    "delay": "delay of its host until",
}


def sources_screen(rows: Iterable[SourceRow], width: int) -> Iterator[Text]:
    """Yield lines for a terminal of ``width`` cells: the URL of a source, and below it the facts.

    Only a URL is longer than the terminal is wide. Markup in texts of strangers has no effect.
    """
    for row in rows:
        url = printable(row.record.url)
        # A link that a terminal opens; what had to be escaped is no address.
        link = Style(link=url) if url == row.record.url else Style()
        yield Text(url, Style(bold=True) + Style.parse(_style(row)) + link)
        for facts in (_visits(row), _marks(row)):
            for line in fold(map(printable, facts), width - len(_INDENT)):
                yield Text(_INDENT + line, _style(row))


def sources_text(rows: Sequence[SourceRow]) -> Iterator[str]:
    """Yield the table as lines for a pipe: one line for each source, nothing cut or wrapped."""
    return columns([_HEADINGS, *map(_cells, rows)])


def totals(rows: Sequence[SourceRow]) -> str:
    """Return one line: the number of sources, of each kind of trouble, and of due ones."""
    troubles = Counter(
        "gone" if row.due.rule == "gone" else row.record.outcome.split()[0]
        for row in rows
        if row.urgency[0] < 5
    )
    parts = [f"{count} {what}" for what, count in troubles.items()]
    held = sum(row.due.held_until is not None for row in rows)
    parts.append(f"{sum(row.due.is_due for row in rows) - held} due now")
    if held:
        parts.append(f"{held} due but on hold")
    return f"{count_of(len(rows), 'source')}: {', '.join(parts)}"


def hidden_line(count: int) -> str:
    """Return one line: how many sources are not listed because they are no longer declared."""
    return f"no longer declared, listed only with --all: {count_of(count, 'source')}"


def facts_of(row: SourceRow) -> Iterator[str]:
    """Yield what came of its visits, when the next one is and why, and where it moved."""
    yield from _visits(row)
    if row.record.detail:
        yield row.record.detail
    yield from _remarks(row)


def _cells(row: SourceRow) -> tuple[str, ...]:
    record, source = row.record, row.source
    remarks = [f'"{source.name}"'] if source and source.name else []
    remarks += [*_remarks(row), *([record.detail] if record.detail else [])]
    return (
        record.outcome,
        str(record.status or "-"),
        str(record.failures),
        rfc3339(record.fetched_at) or "never",
        _next(row, rfc3339),
        row.due.why,
        str(row.entries),
        rfc3339(row.newest) or "-",
        row.kind,
        record.url,
        "; ".join(remarks),
    )


def _visits(row: SourceRow) -> Iterator[str]:
    """Yield what came of the last visit, when the next one is, and what came of all."""
    record = row.record
    status = f" {record.status}" if record.status else ""
    times = f", {record.failures} times" if record.failures > 1 else ""
    yield f"{record.outcome}{status}{times}"
    if record.fetched_at is not None:
        yield f"visited {minute(record.fetched_at)}"
    if row.source is None:
        yield row.due.why
    else:
        yield f"due {_next(row, minute)} ({row.due.why})"
    newest = f", the last {minute(row.newest)}" if row.newest else ""
    yield f"{count_of(row.entries, 'entry', 'entries')}{newest}"


def _marks(row: SourceRow) -> Iterator[str]:
    if row.source and row.source.name:
        yield f'"{row.source.name}"'
    if row.kind != "feed":
        yield row.kind
    if row.record.detail:
        yield row.record.detail
    yield from _remarks(row)


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
    if record.is_refused:
        until = f" until {rfc3339(row.refused_until)}" if row.refused_until else ""
        yield f"refused since {rfc3339(record.refused_since)}{until}"
    if row.resent_why:
        yield row.resent_why
    if (waits := row.host_waits) and row.due.held_until is None:
        yield f"{_HOST_WAITS[waits[0]]} {rfc3339(waits[1])}"


def _next(row: SourceRow, written: Callable[[float | None], str | None]) -> str:
    """Return when the source can be visited; a hold of its host comes before that."""
    if row.due.is_due and row.due.held_until is None:
        return "now"
    return written(row.due.held_until or row.due.at) or "never"


def _style(row: SourceRow) -> str:
    return "" if not row.is_in_trouble else "yellow" if row.urgency[0] in (2, 3) else "red"
