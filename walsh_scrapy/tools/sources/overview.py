"""The rows of ``scrapy sources``: each source, what the state knows of it, and its next visit."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.policy.frontier import start_order
from walsh_scrapy.policy.urls import host_of, url_key
from walsh_scrapy.policy.wording import count_of, format_seconds
from walsh_scrapy.sources.source import Kind, host_pauses, with_pauses
from walsh_scrapy.state.records import SourceRecord
from walsh_scrapy.state.sources import KnownSource
from walsh_scrapy.tools.hosts import on_hold

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.state.hosts import HostSnapshot


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source: its declaration, its record in the state, and when it is due."""

    source: Source | None  #: None if it is no longer declared
    record: SourceRecord
    due: NextVisit
    entries: int  #: of all its visits
    newest: float | None  #: when the last of them was first seen, in epoch seconds
    host: str  #: the host or registrable domain that paces it
    #: What is known of its host, if that may not be requested now.
    waiting: HostSnapshot | None = field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """The kind it is declared as, or was when it was last visited."""
        return self.source.kind if self.source else self.record.kind

    @property
    def urgency(self) -> tuple[float, ...]:
        """The sort key: gone, failing, refused, denied, new, visited, undeclared; then due."""
        record, due_at = self.record, self.due.at or 0.0
        if self.source is None:
            return (6, due_at)
        if self.due.rule == "gone":
            return (0, due_at)
        if record.outcome.startswith("denied"):
            return (3, due_at)
        if record.failures:
            return (1, -record.failures, due_at)
        if record.is_refused:
            return (2, record.refused_since or 0.0)
        return (4 if self.due.rule == "new" else 5, due_at)

    @property
    def is_in_trouble(self) -> bool:
        """True if it is gone, failing, refused or denied, and declared."""
        return self.urgency[0] <= 3

    @property
    def refused_until(self) -> float | None:
        """Until when its site refuses it, in epoch seconds; None if that is over, or not so."""
        return (self.due.held_until or self.due.at) if self.record.is_refused else None

    @property
    def resent_why(self) -> str:
        """Why its server seems to know no 304, in words; empty if it does (R7)."""
        record = self.record
        if not record.ignores_validators:
            return ""
        if record.etag and record.etag.startswith(b"W/"):
            cause = "its ETag is weak: a proxy such as nginx with gzip may have weakened it"
        else:
            cause = "its server does not compare them"
        times = count_of(record.resent, "time")
        return f"never 304: the same document came {times} in a row for its own validators; {cause}"

    def is_stale(self, moment: float) -> bool:
        """Return True if it gave no new entry since ``moment`` (epoch seconds).

        That counts from its first visit if it never gave one.
        """
        since = self.newest or self.record.visited_since
        return since is not None and since < moment

    @property
    def host_waits(self) -> tuple[str, float] | None:
        """Why the host must wait, and until when in epoch seconds; None if it need not."""
        if self.waiting is None or self.waiting.reason is None:
            return None
        return self.waiting.reason, self.waiting.times.ready_at()

    def as_dict(self) -> dict[str, Any]:
        """Return the row for ``--json``: times as RFC 3339 in UTC, None for what is not known."""
        source, record, waits = self.source, self.record, self.host_waits
        return {
            "url": record.url,
            "name": source.name if source else None,
            "kind": self.kind,
            "tags": list(source.tags) if source else [],
            "declared": source is not None,
            "fetched_at": rfc3339(record.fetched_at),
            "outcome": record.outcome,
            "status": record.status,
            "detail": record.detail or None,
            "failures": record.failures,
            "failing_since": rfc3339(record.failing_since),
            "refused_since": rfc3339(record.refused_since),
            "refused_until": rfc3339(self.refused_until),
            "resent": record.resent,
            "due": self.due.is_due,
            "due_at": rfc3339(self.due.at),
            "due_rule": self.due.rule,
            "due_why": self.due.why,
            "moved_to": record.moved_to,
            "moved_since": rfc3339(record.moved_since),
            "move_settled": record.move_settled,
            "entries": self.entries,
            "newest_entry": rfc3339(self.newest),
            "host": self.host,
            "host_waits": waits[0] if waits else None,
            "host_waits_until": rfc3339(waits[1]) if waits else None,
        }


@dataclass(frozen=True, slots=True)
class Overview:
    """The rows of all declared sources, and of sources that only the state still has."""

    declared: Sequence[SourceRow]
    undeclared: Sequence[SourceRow]
    pauses: Mapping[str, float]  #: seconds by host, that the sources file asks for

    def by_urgency(self, *, undeclared: bool = False) -> list[SourceRow]:
        """Return the rows, those that need the operator first, then by the next visit."""
        rows = [*self.declared, *self.undeclared] if undeclared else self.declared
        return sorted(rows, key=attrgetter("urgency"))

    def due(self, delays: Mapping[str, float]) -> list[SourceRow]:
        """Return the rows that are due now, one kind after the other, in the order of a run.

        ``delays`` are the known delays of hosts, in seconds.
        """
        known = with_pauses(delays, self.pauses)
        ordered: list[SourceRow] = []
        for kind in get_args(Kind):
            due = (
                (row.host, row.due.at or 0.0, row)
                for row in self.declared
                if row.due.is_due and row.kind == kind
            )
            ordered += start_order(due, known)
        return ordered


def build_overview(
    sources: Sequence[Source], state: State | None, options: Options, now: float
) -> Overview:
    """Join the declared sources with the state; without a state all of them are new."""
    known = known_sources(state, sources, options, now)
    totals = state.sources.entry_totals() if state else {}
    waiting = state.hosts.waiting() if state else {}

    def row(source: Source | None, found: KnownSource) -> SourceRow:
        record = found.record
        host = options.pace_by.unit(record.address)
        due = next_visit(found, source, options.min_revisit, now)
        entries, newest = totals.get(record.url, (0, None))
        waits = waiting.get(host)
        if waits and waits.hold:
            due = due.held(host_of(record.address), waits.times.hold_until)
        return SourceRow(
            source=source,
            record=record,
            due=due,
            entries=entries,
            newest=newest,
            host=host,
            waiting=waits,
        )

    declared = [row(source, declared_source(source, known)) for source in sources]
    others = [row(None, found) for found in undeclared(sources, known)]
    pauses = host_pauses(sources, options.pace_by.unit)
    return Overview(declared, others, pauses)


def known_sources(
    state: State | None, sources: Sequence[Source], options: Options, now: float
) -> dict[int, KnownSource]:
    """Return what the state knows of all sources, as of ``now``; nothing without a state."""
    return state.sources.known(options.min_revisit, now, sources) if state else {}


def declared_source(source: Source, known: Mapping[int, KnownSource]) -> KnownSource:
    """Return what is known of a declared source, under its declared URL."""
    if (found := known.get(url_key(source.url))) is None:
        return KnownSource(SourceRecord(url=source.url, kind=source.kind), 0.0, "new")
    return found._replace(record=found.record.with_url(source.url))


def undeclared(sources: Iterable[Source], known: Mapping[int, KnownSource]) -> list[KnownSource]:
    """Return what is known of all sources except these."""
    keys = {url_key(source.url) for source in sources}
    return [found for key, found in known.items() if key not in keys]


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
    known: KnownSource, source: Source | None, min_revisit: float, now: float
) -> NextVisit:
    """Return the next visit of a source as of ``now`` (epoch seconds).

    ``source`` is None for one that is not declared.
    ``min_revisit`` is in seconds.
    """
    if source is None:
        return NextVisit(None, "undeclared", "no longer declared")
    record, at, rule = known
    if rule == "operator":
        is_rarer = source.revisit_interval(min_revisit) > min_revisit
        rule = "failing" if record.failures else "every" if is_rarer else "revisit"
    elif rule == "asked":
        asked = max(record.asked_interval, record.wished_interval)
        is_skip = bool(record.skip_hours or record.skip_days) and at > (
            (record.fetched_at or 0.0) + asked
        )
        is_feed = record.wished_interval >= record.asked_interval
        rule = "skip" if is_skip else "feed" if is_feed else "server"
    moment = at if 0.0 < at < NEVER else None
    return NextVisit(moment, rule, _why(rule, record, at), is_due=at <= now)


def _why(rule: str, record: SourceRecord, at: float) -> str:
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
        "every": f"every {pause}, as declared",
        "revisit": f"every {pause}",
    }[rule]


def _skips(record: SourceRecord) -> str:
    names = [
        name
        for name, value in (("skipHours", record.skip_hours), ("skipDays", record.skip_days))
        if value
    ]
    return f"the feed's {' and '.join(names)}"
