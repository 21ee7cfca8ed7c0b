"""Every source with what is known of it: the declared ones joined with the state."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, get_args

from walsh_scrapy.policy.frontier import start_order
from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.urls import host_of, registrable_domain
from walsh_scrapy.sources import Kind, Source
from walsh_scrapy.state.sourcerecord import KnownSources, SourceRecord
from walsh_scrapy.tools.sources.nextvisit import NextVisit, next_visit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.state.ledger import HostSnapshot


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A source as declared (None: no longer), as known, and what follows from both."""

    source: Source | None
    record: SourceRecord
    due: NextVisit
    entries: int
    host: str
    resting: HostSnapshot | None = field(default=None, repr=False)  #: of the host, if it must wait

    @property
    def kind(self) -> str:
        """What it is read as."""
        return self.source.kind if self.source else self.record.kind

    @property
    def trouble(self) -> tuple[float, ...]:
        """Sort key: what needs the operator first, then whatever is visited next."""
        record, due_at = self.record, self.due.at or 0.0
        if self.source is None:
            return (5, due_at)
        if self.due.rule == "gone":
            return (0, due_at)
        if record.outcome.startswith("denied"):
            return (2, due_at)
        if record.failures:
            return (1, -record.failures, due_at)
        return (3 if self.due.rule == "new" else 4, due_at)

    @property
    def host_waits(self) -> tuple[str, float] | None:
        """What keeps the host from being asked now, and until when in epoch seconds."""
        if self.resting is None:
            return None
        times, now = self.resting.times, self.resting.now
        until = now + self.resting.wait
        if times.lease_until > now:
            return "lease", until
        return ("hold" if times.hold_until >= until else "spacing"), until

    def as_dict(self) -> dict[str, Any]:
        """Return the line for programs (``--json``): times as RFC 3339, null for unknown."""
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
            "due": self.due.is_due,
            "due_at": rfc3339(self.due.at),
            "due_rule": self.due.rule,
            "due_why": self.due.why,
            "moved_to": record.moved_to,
            "moved_since": rfc3339(record.moved_since),
            "move_settled": record.move_settled,
            "entries": self.entries,
            "host": self.host,
            "host_waits": waits[0] if waits else None,
            "host_waits_until": rfc3339(waits[1]) if waits else None,
        }


@dataclass(frozen=True, slots=True)
class Overview:
    """All lines: of the sources that are declared, and of those that are so no longer."""

    declared: Sequence[SourceLine]
    undeclared: Sequence[SourceLine]

    def by_trouble(self, *, undeclared: bool = False) -> list[SourceLine]:
        """Return the lines, trouble first, then by the next visit."""
        lines = [*self.declared, *self.undeclared] if undeclared else self.declared
        return sorted(lines, key=attrgetter("trouble"))

    def start_order(self, intervals: Mapping[str, float]) -> list[SourceLine]:
        """Return what runs would ask for now, each spider's in the order in which it would."""
        turns: list[SourceLine] = []
        for kind in get_args(Kind):
            due = (
                (line.host, line.due.at or 0.0, line)
                for line in self.declared
                if line.due.is_due and line.kind == kind
            )
            turns += start_order(due, intervals)
        return turns


def overview(
    sources: Sequence[Source], state: State | None, options: Options, now: float
) -> Overview:
    """Join what is declared with what the state knows; without a state every source is new."""
    known = KnownSources(state.sources.all() if state else ())
    counts = state.sources.entry_counts() if state else {}
    resting = state.ledger.waiting() if state else {}

    def line(source: Source | None, found: SourceRecord) -> SourceLine:
        record = found.with_url(source.url) if source else found
        host = host_of(record.address)
        if options.pace_by == "domain":
            host = registrable_domain(host)
        return SourceLine(
            source=source,
            record=record,
            due=next_visit(record, source, options.min_revisit, now),
            entries=counts.get(found.url, 0),
            host=host,
            resting=resting.get(host),
        )

    declared = [
        line(source, known.find(source.url) or SourceRecord(url=source.url, kind=source.kind))
        for source in sources
    ]
    undeclared = known.others(source.url for source in sources)
    return Overview(declared, [line(None, record) for record in undeclared])
