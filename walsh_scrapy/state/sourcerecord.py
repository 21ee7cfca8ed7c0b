"""The line of one declared source: what is known of it, and what follows from that (R7, R8)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from walsh_scrapy.policy.freshness import NEVER, Due, LastVisit, UpdateHints, due
from walsh_scrapy.policy.moves import Move
from walsh_scrapy.policy.urls import canonical_url

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """One source's line; times are epoch seconds."""

    url: str
    kind: str
    fetched_at: float | None = None
    due_at: float = 0.0  #: as the last visit left it; NEVER if it is gone, 0 if it was resumed
    outcome: str = "new"
    detail: str = ""
    failures: int = 0
    status: int | None = None  #: of the last answer
    asked_interval: float = 0.0  #: seconds, by the answers of the last visit
    wished_interval: float = 0.0  #: seconds, by the feed
    skip_hours: str = ""  #: numbers with commas between them; so are the days' names
    skip_days: str = ""
    moved_to: str | None = None
    moved_since: float | None = None
    move_settled: bool = False  #: from now on it is asked for there
    move_failing_since: float | None = None
    onward_to: str | None = None  #: where permanent redirects lead from there
    onward_since: float | None = None
    validator_url: str | None = None  #: the one URL that the validators may be sent to
    etag: bytes | None = None
    last_modified: bytes | None = None

    @property
    def wishes(self) -> UpdateHints:
        """What the feed asked of whoever comes again."""
        hours = frozenset(map(int, filter(None, self.skip_hours.split(","))))
        return UpdateHints(
            self.wished_interval, hours, frozenset(filter(None, self.skip_days.split(",")))
        )

    def due(self, least: float, now: float) -> Due:
        """Say when the source may be asked for next; ``least`` is the operator's own time."""
        if self.fetched_at is None:
            return due(None, least, now)
        last = LastVisit(
            self.fetched_at,
            self.asked_interval,
            self.failures,
            self.wishes,
            is_gone=self.due_at == NEVER,
            is_resumed=self.due_at <= 0.0,
        )
        return due(last, least, now)

    def stands_for(self, kind: str, least: float, now: float) -> bool:
        """Tell whether a source of ``kind`` that moved here may go by this one, once asked for.

        One that has moved itself is none to go by: two could wait for each other. If it is declared
        no longer it is soon overdue, and the other has the address for itself.
        """
        is_at_home = self.kind == kind and self.address == self.url
        return is_at_home and now < self.due(least, now).at + least < NEVER

    @property
    def address(self) -> str:
        """Where to ask for the source: where it is declared, or where it settled."""
        return self.moved_to if self.moved_to and self.move_settled else self.url

    def wishing(self, wishes: UpdateHints) -> SourceRecord:
        """Return the line with other wishes."""
        return replace(
            self,
            wished_interval=wishes.interval,
            skip_hours=",".join(map(str, sorted(wishes.skip_hours))),
            skip_days=",".join(sorted(wishes.skip_days)),
        )

    @property
    def move(self) -> Move | None:
        """Where the source moved to, or seems to."""
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

    def moving(self, move: Move | None) -> SourceRecord:
        """Return the line with another move, or none."""
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

    def spelled(self, url: str) -> SourceRecord:
        """Return the line of the same source under another spelling of its URL.

        Where it moved to is no move any more once it is declared there.
        """
        if url == self.url:
            return self
        record = replace(self, url=url)
        return record.moving(None) if record.moved_to == url else record


class Known:
    """The lines of sources by their URLs, however these are spelled: `/feed` is `/feed/`."""

    def __init__(self, records: Iterable[SourceRecord]) -> None:
        self._by_url = {record.url: record for record in records}

    def of(self, url: str) -> SourceRecord | None:
        """Return a source's line, under its URL or that of its spellings visited last."""
        if not self._by_url:  # the first run of all: 100,000 URLs need not be read
            return None
        return self._by_url.get(url) or self._by_page.get(canonical_url(url))

    def but(self, urls: Iterable[str]) -> list[SourceRecord]:
        """Return the lines of all other sources."""
        pages = set(map(canonical_url, urls))
        return [each for url, each in self._by_url.items() if canonical_url(url) not in pages]

    @cached_property
    def _by_page(self) -> dict[str, SourceRecord]:
        records = sorted(self._by_url.values(), key=lambda record: record.fetched_at or 0.0)
        return {canonical_url(record.url): record for record in records}
