"""What is known of one declared source, and what follows from it (R7, R8; decisions 17 to 21)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.freshness import (
    CLOCK_SKEW,
    NEVER,
    Due,
    LastVisit,
    UpdateHints,
    due,
)
from walsh_scrapy.policy.redirects import Move
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.state.tables import sources

if TYPE_CHECKING:
    from collections.abc import Iterable


#: The outcome of a visit that its site refused with 429 or 503.
REFUSED: Final = "refused"
#: Unchanged documents in a row after which the operator is told that validators are ignored.
MOST_RESENT: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """One source: a row of the table ``sources``. Times are epoch seconds."""

    url: str
    kind: str
    visited_since: float | None = None  #: the end of its first visit
    fetched_at: float | None = None  #: the end of its last visit
    due_at: float = 0.0  #: as of the last visit; NEVER if it is gone (410), 0 if it was resumed
    outcome: str = "new"
    detail: str = ""
    failures: int = 0  #: in a row
    failing_since: float | None = None  #: the first failure of those in a row
    status: int | None = None  #: of the last response
    refused_since: float | None = None  #: the first refusal (429, 503) of those in a row
    asked_interval: float = 0.0  #: seconds that the responses of the last visit asked for
    wished_interval: float = 0.0  #: seconds that the feed asks for
    skip_hours: str = ""  #: numbers separated by commas, UTC
    skip_days: str = ""  #: English names separated by commas, UTC
    moved_to: str | None = None
    moved_since: float | None = None
    move_settled: bool = False  #: from now on it is requested there
    move_failing_since: float | None = None
    onward_to: str | None = None  #: where permanent redirects lead from there
    onward_since: float | None = None
    validator_url: str | None = None  #: the one URL that the validators may be sent to
    etag: bytes | None = None
    last_modified: bytes | None = None
    body_hash: str | None = None  #: SHA-256 of the last document that came as a whole
    resent: int = 0  #: times in a row that it came again although its validators were sent
    #: As what its last document was read: "rss20", "markdown"; "shared" if it was read for another
    #: source only, "" if none was.
    format: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether its site answered the last visit with 429 or 503, or does not take one yet."""
        return self.outcome == REFUSED

    @property
    def failed_for(self) -> float:
        """Seconds from the first of its failures in a row to the last one; 0 if it is denied now.

        Nothing is known of the time after its last visit.
        """
        if self.outcome.startswith("denied") or None in (self.failing_since, self.fetched_at):
            return 0.0
        return (self.fetched_at or 0.0) - (self.failing_since or 0.0)

    @property
    def ignores_validators(self) -> bool:
        """Whether its server seems never to answer 304 (R7)."""
        return self.resent >= MOST_RESENT

    @property
    def update_hints(self) -> UpdateHints:
        """How often, and when not, the feed asks to be fetched (`ttl`, `skipHours` and so on)."""
        hours = frozenset(map(int, filter(None, self.skip_hours.split(","))))
        days = frozenset(filter(None, self.skip_days.split(",")))
        return UpdateHints(self.wished_interval, hours, days)

    def due(self, revisit_interval: float, now: float) -> Due:
        """Return when the source is due, and which rule decided it (R8, decision 20).

        ``revisit_interval`` is the operator's least time between two visits, in seconds.
        """
        if self.fetched_at is None:
            return due(None, revisit_interval, now)
        last = LastVisit(
            self.fetched_at,
            self.asked_interval,
            self.failures,
            self.update_hints,
            is_gone=self.due_at == NEVER,
            is_resumed=self.due_at <= 0.0,
        )
        return due(last, revisit_interval, now)

    @property
    def address(self) -> str:
        """The URL at which the source is requested: as declared, or where its move settled."""
        return self.moved_to if self.moved_to and self.move_settled else self.url

    def covers_moved_source(self, kind: str, revisit_interval: float, now: float) -> bool:
        """Return True if a source of ``kind`` that moved here may rely on this one's visits.

        So a document that both declare is fetched once. False if this source has moved itself,
        because two sources could then wait for each other. False too if it is gone (410), or
        overdue by more than ``revisit_interval`` seconds, as it then probably is not declared any
        more.
        """
        has_moved = self.address != self.url
        if self.kind != kind or has_moved:
            return False
        return now < self.due(revisit_interval, now).at + revisit_interval < NEVER

    def after_refusal(self, status: int, now: float) -> SourceRecord:
        """Return the record after a refusal (429, 503) at ``now``; a row of them has one begin."""
        since = _first(self.refused_since, now)
        return replace(self, outcome=REFUSED, status=status, refused_since=since)

    def after_visit(self, now: float) -> SourceRecord:
        """Return the record after a visit that ended at ``now``; rows of trouble go on or end."""
        return replace(
            self,
            visited_since=self.visited_since or now,
            fetched_at=now,
            failing_since=_first(self.failing_since, now) if self.failures else None,
            refused_since=self.refused_since if self.is_refused else None,
        )

    def with_body(self, body_hash: str | None, *, is_conditional: bool) -> SourceRecord:
        """Return the record after a document came, None if not as a whole.

        ``is_conditional`` says whether the request had the validators of the last document.
        """
        is_again = is_conditional and body_hash is not None and body_hash == self.body_hash
        return replace(self, body_hash=body_hash, resent=self.resent + 1 if is_again else 0)

    def with_update_hints(self, hints: UpdateHints) -> SourceRecord:
        """Return the record with these update hints instead of its own."""
        return replace(
            self,
            wished_interval=hints.interval,
            skip_hours=",".join(map(str, sorted(hints.skip_hours))),
            skip_days=",".join(sorted(hints.skip_days)),
        )

    @property
    def move(self) -> Move | None:
        """Where permanent redirects lead, if anywhere, settled or not (decision 21)."""
        if self.moved_to is None:
            return None
        onward = None
        if self.onward_to is not None:
            onward = Move(self.onward_to, self.onward_since or 0.0, is_settled=False)
        return Move(
            self.moved_to,
            self.moved_since or 0.0,
            self.move_settled,
            onward,
            self.move_failing_since,
        )

    def with_move(self, move: Move | None) -> SourceRecord:
        """Return the record with this move, or none, instead of its own."""
        onward = move.onward if move else None
        return replace(
            self,
            moved_to=move.to if move else None,
            moved_since=move.since if move else None,
            move_settled=bool(move and move.is_settled),
            move_failing_since=move.failing_since if move else None,
            onward_to=onward.to if onward else None,
            onward_since=onward.since if onward else None,
        )

    def with_url(self, url: str) -> SourceRecord:
        """Return the record of the same source, declared under another spelling of its URL.

        A move to that very spelling is over: the source is declared there now.
        """
        if url == self.url:
            return self
        record = replace(self, url=url)
        return record.with_move(None) if record.moved_to == url else record


def _first(since: float | None, now: float) -> float:
    """Return when a row of troubles began that goes on at ``now``; a wrong clock does not count."""
    return now if since is None or since > now + CLOCK_SKEW else since


#: The columns of a record, in the order of its fields.
COLUMNS: Final = tuple(sources.c[field.name] for field in fields(SourceRecord))


class KnownSources:
    """Records of sources by URL. All spellings of a URL are one source: `/feed` is `/feed/`."""

    def __init__(self, records: Iterable[SourceRecord]) -> None:
        self._by_url = {record.url: record for record in records}

    def find(self, url: str) -> SourceRecord | None:
        """Return the record of a URL, or of the spelling of it that was visited last, or None."""
        if not self._by_url:  # in the very first run 100,000 URLs need not be parsed
            return None
        return self._by_url.get(url) or self._by_canonical_url.get(canonical_url(url))

    def others(self, urls: Iterable[str]) -> list[SourceRecord]:
        """Return the records of all sources except those with these URLs, however spelled."""
        excluded = set(map(canonical_url, urls))
        return [each for url, each in self._by_url.items() if canonical_url(url) not in excluded]

    @cached_property
    def _by_canonical_url(self) -> dict[str, SourceRecord]:
        records = sorted(self._by_url.values(), key=lambda record: record.fetched_at or 0.0)
        return {canonical_url(record.url): record for record in records}
