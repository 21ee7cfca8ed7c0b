"""When a source is visited next, and by which rule (R8, decision 20)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.policy.wording import counted, format_seconds
from walsh_scrapy.state.sourcerecord import SourceRecord
from walsh_scrapy.tools.hosts.table import on_hold

if TYPE_CHECKING:
    from walsh_scrapy.policy.freshness import EntryHistory
    from walsh_scrapy.sources import Source


class NextVisit(NamedTuple):
    """The next visit of a source.

    ``at`` is in epoch seconds; it is None for a source that was never visited, was resumed, is gone
    or is not declared.
    """

    at: float | None
    rule: str  #: one word, for programs
    why: str  #: the same in words, for operators
    is_due: bool = False
    held_until: float | None = None  #: epoch seconds: it is due, but its host is on hold

    def held(self, host: str, until: float) -> NextVisit:
        """Return this visit while its host is on hold until then; one that is not due stays."""
        if not self.is_due:
            return self
        return self._replace(why=f"due, but {on_hold(host, until)}", held_until=until)


def next_visit(
    record: SourceRecord | None,
    source: Source | None,
    min_revisit: float,
    now: float,
    history: EntryHistory | None = None,
) -> NextVisit:
    """Return the next visit of a source as of ``now`` (epoch seconds).

    ``record`` is None for a source that was never visited, ``source`` for one that is not declared.
    ``min_revisit`` is in seconds. ``history`` is given if it counts (WALSH_ADAPTIVE).
    """
    if source is None:
        return NextVisit(None, "undeclared", "no longer declared")
    if record is None:
        record = SourceRecord(url=source.url, kind=source.kind)
    at, rule = record.due(source.revisit_interval(min_revisit), now, history)
    if rule == "operator":
        rule = "every" if source.revisit_interval(min_revisit) > min_revisit else "revisit"
    moment = at if 0.0 < at < NEVER else None
    return NextVisit(moment, rule, _why(rule, record, at, history), is_due=at <= now)


def _why(rule: str, record: SourceRecord, at: float, history: EntryHistory | None) -> str:
    pause = format_seconds(at - (record.fetched_at or 0.0)) if 0.0 < at < NEVER else ""
    return {
        "new": f"refused ({record.status})" if record.is_refused else "not visited yet",
        "clock": f"its last visit lies in the future, {format_moment(record.fetched_at or 0.0)}",
        "gone": "when you resume it",
        "resumed": "you resumed it",
        "skip": _skips(record),
        "failing": f"failing, {'doubled to' if record.failures > 1 else 'again after'} {pause}",
        "feed": f"the feed asked for {pause}",
        "server": f"the server asked for {pause}",
        "adaptive": f"every {pause}, because {_finds(record, history)}",
        "every": f"every {pause}, as declared",
        "revisit": f"every {pause}",
    }[rule]


def _finds(record: SourceRecord, history: EntryHistory | None) -> str:
    if history is None:
        return ""
    length = format_seconds(history.seconds(record.fetched_at or 0.0))
    return f"it had something new {counted(history.finds, 'time')} in {length}"


def _skips(record: SourceRecord) -> str:
    names = [
        name
        for name, value in (("skipHours", record.skip_hours), ("skipDays", record.skip_days))
        if value
    ]
    return f"the feed's {' and '.join(names)}"
