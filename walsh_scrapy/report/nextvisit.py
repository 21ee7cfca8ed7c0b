"""When a source is visited next, and which rule says so (R8, ruling 20)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.policy.durations import format_seconds
from walsh_scrapy.policy.freshness import NEVER

if TYPE_CHECKING:
    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.sources import SourceRecord


class NextVisit(NamedTuple):
    """The next visit; ``at`` is in epoch seconds, None if there is no such moment."""

    at: float | None
    rule: str  #: one word for programs
    why: str  #: the same for people
    is_due: bool = False


def next_visit(
    record: SourceRecord | None, source: Source | None, min_revisit: float, now: float
) -> NextVisit:
    """Say when a source is visited next; ``source`` is None for one that is not declared."""
    if source is None:
        return NextVisit(None, "undeclared", "no longer declared")
    if record is None or record.fetched_at is None:
        return NextVisit(None, "new", "not visited yet", is_due=True)
    if record.due_at >= NEVER:
        return NextVisit(None, "gone", "when you resume it")
    if record.due_at <= 0:
        return NextVisit(None, "resumed", "you resumed it", is_due=True)
    skips = record.skip_hours or record.skip_days
    opens = record.due_from(now) if skips else record.due_at
    if opens > max(record.due_at, now):  # it is let in at certain hours only, and not now
        return NextVisit(opens, "skip", _skips(record))
    every = source.every.total_seconds() if source.every else 0.0
    rule, why = _rule(record, record.due_at - record.fetched_at, min_revisit, every)
    return NextVisit(record.due_at, rule, why, is_due=record.due_at <= now)


def _rule(record: SourceRecord, pause: float, revisit: float, every: float) -> tuple[str, str]:
    """Return the rule that made the pause: what a server asked is known by it alone."""
    if record.skip_hours or record.skip_days:
        before = record.due_at - 1.0
        if record.wishes.opens(before) > before:
            return "skip", _skips(record)
    least = max(revisit, every)
    doubled = least * 2.0 ** min(max(record.failures - 1, 0), 40)
    if record.failures and pause <= doubled + 1.0:
        how = "doubled to" if record.failures > 1 else "again after"
        return "failing", f"failing, {how} {format_seconds(pause)}"
    if pause > least + 1.0:
        asks = f"asked for {format_seconds(pause)}"
        from_feed = record.wished_interval >= pause - 1.0
        return ("feed", f"the feed {asks}") if from_feed else ("server", f"the server {asks}")
    if every > revisit:
        return "every", f"every {format_seconds(every)}, as declared"
    return "revisit", f"every {format_seconds(revisit)}"


def _skips(record: SourceRecord) -> str:
    names = [
        name
        for name, value in (("skipHours", record.skip_hours), ("skipDays", record.skip_days))
        if value
    ]
    return f"the feed's {' and '.join(names)}"
