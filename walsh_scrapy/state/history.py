"""What was sent and found in a span of time: the rows behind ``scrapy report``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import and_, func, select

from walsh_scrapy.state.acts import Act
from walsh_scrapy.state.requests import RequestRecord
from walsh_scrapy.state.tables import acts, entries, requests

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import ColumnElement

    from walsh_scrapy.state.database import Database

#: URLs in one SELECT; databases limit the parameters of a statement.
_URLS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span of time, in epoch seconds, and the run that the records name; None for any run."""

    since: float = 0.0
    until: float | None = None
    run: int | None = None


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
    ) -> list[RequestRecord]:
        """Return the requests sent in a span, of any run, the first sent first.

        ``host`` is a name under which the ledger paces; None for all. Of more than ``most`` these
        are the last ones.
        """
        wanted = [requests.c.sent_at >= since]
        if until is not None:
            wanted.append(requests.c.sent_at <= until)
        if host is not None:
            wanted.append(requests.c.host == host)
        columns = (
            *(requests.c.sent_at, requests.c.host, requests.c.url, requests.c.gates),
            *(requests.c.status, requests.c.seconds, requests.c.error, requests.c.run),
        )
        newest_first = (requests.c.sent_at.desc(), requests.c.id.desc())
        found = select(*columns).where(*wanted).order_by(*newest_first).limit(most)
        with self._database.read() as connection:
            records = [RequestRecord(*row) for row in connection.execute(found)]
        return records[::-1]

    def moments(self, span: Span) -> dict[str, list[float]]:
        """Return when the entries of a span were first seen, by their sources."""
        columns = (entries.c.source, entries.c.first_seen)
        found = select(*columns).where(*_in(span)).order_by(entries.c.first_seen)
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
        conditions = [*_in(span)]
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

    def pauses(self) -> dict[str, list[Act]]:
        """Return the pauses that the operator gave to hosts, by host, the first one first."""
        columns = (acts.c.at, acts.c.host, acts.c.act, acts.c.seconds, acts.c.reason)
        wanted = select(*columns).where(acts.c.act == "pause").order_by(acts.c.id)
        given: dict[str, list[Act]] = {}
        with self._database.read() as connection:
            for row in connection.execute(wanted):
                given.setdefault(row.host, []).append(Act(*row))
        return given


def _in(span: Span) -> Iterator[ColumnElement[bool]]:
    yield entries.c.first_seen >= span.since
    if span.until is not None:
        yield entries.c.first_seen <= span.until
    if span.run is not None:
        yield entries.c.run == span.run
