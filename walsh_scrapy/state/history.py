"""What was sent and found in a span of time: the rows behind ``scrapy report``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, func, select

from walsh_scrapy.state.tables import acts, denials, entries, requests

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import Column, ColumnElement

    from walsh_scrapy.state.database import Database

#: URLs in one SELECT; databases limit the parameters of a statement.
_URLS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span of time, in epoch seconds, and the run that the records name; None for any run."""

    since: float = 0.0
    until: float | None = None
    run: int | None = None


class LoggedRequest(NamedTuple):
    """A request as the log has it. An earlier version recorded no run, pause, hold or rule."""

    sent_at: float  #: epoch seconds
    host: str  #: the name under which the ledger paces it
    url: str
    gates: str
    status: int | None
    seconds: float
    error: str
    run: int | None
    pause: float | None  #: seconds: the spacing asked for before it
    hold: float | None  #: seconds for which its answer put the host on hold
    rule: str | None  #: the record of robots.txt that let it go
    line: int | None  #: of that rule, from 1

    @property
    def ended_at(self) -> float:
        """The end of its exchange, in epoch seconds."""
        return self.sent_at + self.seconds


class DenialCount(NamedTuple):
    """How many requests to a host a gate denied, for one reason."""

    host: str
    gate: str
    reason: str
    number: int


class SeenEntry(NamedTuple):
    """An entry as the state has it: ``first_seen`` in epoch seconds, ``item`` as JSON."""

    source: str
    first_seen: float
    item: str


class Visit(NamedTuple):
    """One run that requested a URL, and when it did so first, in epoch seconds."""

    url: str
    run: int | None
    at: float


class History:
    """Reads the records of a span. Methods raise StateError if the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def requests(
        self, since: float, until: float | None, host: str | None, most: int
    ) -> list[LoggedRequest]:
        """Return the requests sent in a span, of any run, the first sent first.

        ``host`` is a name under which the ledger paces; None for all. Of more than ``most`` these
        are the last ones.
        """
        wanted = [requests.c.sent_at >= since]
        if until is not None:
            wanted.append(requests.c.sent_at <= until)
        if host is not None:
            wanted.append(requests.c.host == host)
        columns = (requests.c[name] for name in LoggedRequest._fields)
        newest_first = (requests.c.sent_at.desc(), requests.c.id.desc())
        found = select(*columns).where(*wanted).order_by(*newest_first).limit(most)
        with self._database.read() as connection:
            records = [LoggedRequest(*row) for row in connection.execute(found)]
        return records[::-1]

    def last_before(self, moment: float, host: str | None) -> list[LoggedRequest]:
        """Return the last request to each host before a moment, the first sent first.

        ``host`` is a name under which the ledger paces; None for all.
        """
        columns = (requests.c[name] for name in LoggedRequest._fields)
        wanted = [requests.c.sent_at < moment]
        if host is not None:
            wanted.append(requests.c.host == host)
        last = func.max(requests.c.sent_at).label("sent_at")
        newest = select(requests.c.host, last).where(*wanted).group_by(requests.c.host).subquery()
        is_newest = and_(requests.c.host == newest.c.host, requests.c.sent_at == newest.c.sent_at)
        found = select(*columns).join(newest, is_newest).order_by(requests.c.sent_at)
        with self._database.read() as connection:
            return [LoggedRequest(*row) for row in connection.execute(found)]

    def denials(self, span: Span) -> list[DenialCount]:
        """Return how often each gate denied requests in a span, by host and reason."""
        kinds = (denials.c.host, denials.c.gate, denials.c.reason)
        conditions = _in(span, denials.c.at, denials.c.run)
        counted = select(*kinds, func.count()).where(*conditions).group_by(*kinds).order_by(*kinds)
        with self._database.read() as connection:
            return [DenialCount(*row) for row in connection.execute(counted)]

    def moments(self, span: Span) -> dict[str, list[float]]:
        """Return when the entries of a span were first seen, by their sources."""
        columns = (entries.c.source, entries.c.first_seen)
        found = select(*columns).where(*_seen_in(span)).order_by(entries.c.first_seen)
        seen: dict[str, list[float]] = {}
        with self._database.read() as connection:
            for source, first_seen in connection.execute(found):
                seen.setdefault(source, []).append(first_seen)
        return seen

    def newest(
        self, span: Span, of_each: int, most: int, sources: Collection[str] | None = None
    ) -> list[SeenEntry]:
        """Return the newest entries of a span: some of each source, and at most ``most``.

        ``sources`` are the URLs of the only sources to read; None for all.
        """
        conditions = [*_seen_in(span)]
        if sources is not None:
            conditions.append(entries.c.source.in_(sources))
        order = (entries.c.first_seen.desc(), entries.c.key)
        place = func.row_number().over(partition_by=entries.c.source, order_by=order)
        ranked = select(entries.c.key, place.label("place")).where(*conditions).subquery()
        chosen = (
            select(entries.c.source, entries.c.first_seen, entries.c.item)
            .join(ranked, and_(ranked.c.key == entries.c.key, ranked.c.place <= of_each))
            .order_by(ranked.c.place, *order)
            .limit(most)
        )
        with self._database.read() as connection:
            return [SeenEntry(*row) for row in connection.execute(chosen)]

    def visits(self, urls: Collection[str]) -> list[Visit]:
        """Return the runs in the log that requested these URLs, the newest first."""
        found: list[Visit] = []
        ordered = sorted(urls)
        first = func.min(requests.c.sent_at)
        with self._database.read() as connection:
            for start in range(0, len(ordered), _URLS_AT_ONCE):
                some = ordered[start : start + _URLS_AT_ONCE]
                wanted = select(requests.c.url, requests.c.run, first)
                grouped = wanted.where(requests.c.url.in_(some)).group_by(
                    requests.c.url, requests.c.run
                )
                found += (Visit(*row) for row in connection.execute(grouped))
        return sorted(found, key=lambda visit: -visit.at)

    def releases(self) -> dict[str, list[float]]:
        """Return when the operator lifted holds, in epoch seconds, by host, the first one first."""
        wanted = select(acts.c.host, acts.c.at).where(acts.c.act == "release").order_by(acts.c.id)
        lifted: dict[str, list[float]] = {}
        with self._database.read() as connection:
            for host, at in connection.execute(wanted):
                lifted.setdefault(host, []).append(at)
        return lifted


def _seen_in(span: Span) -> Iterator[ColumnElement[bool]]:
    return _in(span, entries.c.first_seen, entries.c.run)


def _in(span: Span, at: Column[Any], run: Column[Any]) -> Iterator[ColumnElement[bool]]:
    yield at >= span.since
    if span.until is not None:
        yield at <= span.until
    if span.run is not None:
        yield run == span.run
