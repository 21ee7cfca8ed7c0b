"""The log of requests and denials, as commands read it: a span of time, as of one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, func, or_, select

from walsh_scrapy.policy.audit.record import DAY, LoggedDenial, LoggedRequest
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state.auditrecord import BY_HOST, BY_TIME, AuditRecord, rows_of
from walsh_scrapy.state.tables import ITS_URL, denials, entries, requests

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlalchemy import Column, ColumnElement

#: Hosts that are suggested.
MOST_HOSTS: Final = 5
_REQUEST: Final = rows_of(LoggedRequest, requests)
_DENIAL: Final = rows_of(LoggedDenial, denials)
_ENDED: Final = requests.c.sent_at + requests.c.waited + func.coalesce(requests.c.seconds, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """A span of time, in epoch seconds, and the run that the records name; None for any run."""

    since: float = 0.0
    until: float | None = None  #: the last moment
    run: int | None = None


class SeenEntry(NamedTuple):
    """An entry as the state has it: ``first_seen`` in epoch seconds, ``item`` as JSON."""

    source: str
    first_seen: float
    item: str


class Log(AuditRecord):
    """The record as of one moment, with what a span of time, a run, a URL or a host has in it.

    A ``paced`` host is the host itself, or its registrable domain if domains are paced.
    """

    def requests(
        self, span: TimeSpan, paced: str | None = None, most: int | None = None
    ) -> list[LoggedRequest]:
        """Return the requests to one host after another, each in the order of their times.

        They are those of a span, of any run; ``paced`` is the only host to read. Of more than
        ``most`` these are the last ones.
        """
        wanted = [*_within(span, requests.c.sent_at), *_at(paced)]
        newest = _REQUEST.where(*wanted).order_by(*(each.desc() for each in BY_TIME))
        found = newest.limit(most).subquery()
        ordered = (found.c.host, found.c.sent_at, found.c.id)
        return list(self.each(LoggedRequest, select(found).order_by(*ordered)))

    def requests_before(self, moment: float, paced: str | None = None) -> list[LoggedRequest]:
        """Return what counts for pauses and holds after a moment, ordered as `requests` are.

        These are the exchange with each host that ended last, and those whose holds go on.
        """
        wanted = and_(requests.c.sent_at < moment, *_at(paced))
        last = func.max(_ENDED).label("ended")
        newest = select(requests.c.host, last).where(wanted).group_by(requests.c.host).subquery()
        is_newest = and_(requests.c.host == newest.c.host, newest.c.ended == _ENDED)
        counts = or_(is_newest, _ENDED + requests.c.hold > moment)
        found = _REQUEST.join(newest, requests.c.host == newest.c.host)
        return list(self.each(LoggedRequest, found.where(wanted, counts).order_by(*BY_HOST)))

    def denials(self, span: TimeSpan, host: str) -> list[LoggedDenial]:
        """Return what was denied of a host, the first denial first."""
        found = _DENIAL.where(denials.c.host == host, *_within(span, denials.c.at))
        return list(self.each(LoggedDenial, found.order_by(denials.c.at, denials.c.id)))

    def first_seen(self, span: TimeSpan) -> dict[str, list[float]]:
        """Return when the entries of a span were first seen, by their sources."""
        columns = (entries.c.source, entries.c.first_seen)
        seen_then = _within(span, entries.c.first_seen, entries.c.run)
        found = select(*columns).where(*seen_then).order_by(entries.c.first_seen)
        seen: dict[str, list[float]] = {}
        for source, first_seen in self._connection.execute(found):
            seen.setdefault(source, []).append(first_seen)
        return seen

    def newest(self, span: TimeSpan, of_each: int, most: int) -> list[SeenEntry]:
        """Return the newest entries of a span: some of each source, and at most ``most``."""
        conditions = _within(span, entries.c.first_seen, entries.c.run)
        order = (entries.c.first_seen.desc(), entries.c.key)
        place = func.row_number().over(partition_by=entries.c.source, order_by=order)
        ranked = select(entries.c.key, place.label("place")).where(*conditions).subquery()
        chosen = (
            select(entries.c.source, entries.c.first_seen, entries.c.item)
            .join(ranked, and_(ranked.c.key == entries.c.key, ranked.c.place <= of_each))
            .order_by(ranked.c.place, *order)
            .limit(most)
        )
        return list(self.each(SeenEntry, chosen))

    def last_of(self, run: int, begun: float, until: float) -> float | None:
        """Return when a run sent its last request until a moment; None if it sent none.

        Times are in epoch seconds. ``begun`` is its begin: what was sent before need not be looked
        through.
        """
        sent = select(func.max(requests.c.sent_at)).where(
            requests.c.sent_at.between(begun, until), requests.c.run == run
        )
        last: float | None = self._connection.scalar(sent)
        return last

    def last_for(self, source: str, paced: Collection[str], most: int) -> list[LoggedRequest]:
        """Return the last requests that were for a source, to these hosts, the newest first."""
        own = and_(requests.c.source == ITS_URL, requests.c.url == source)
        wanted = _REQUEST.where(requests.c.host.in_(paced), or_(own, requests.c.source == source))
        newest = wanted.order_by(requests.c.sent_at.desc(), requests.c.id.desc())
        return list(self.each(LoggedRequest, newest.limit(most)))

    def last_day(self, host: str, paced: str) -> int | None:
        """Return the last day with a request or a denial of a host, in days since 1970."""
        at, url = requests.c.sent_at, requests.c.url
        sent = select(at, url).where(requests.c.host == paced).order_by(at.desc())
        denied = select(func.max(denials.c.at)).where(denials.c.host == host)
        with self._connection.execute(sent) as rows:
            moments = [next((at for at, url in rows if host_of(url) == host), None)]
        moments.append(self._connection.scalar(denied))
        return max((int(moment // DAY) for moment in moments if moment is not None), default=None)

    def subdomains(self, host: str) -> Sequence[str]:
        """Return hosts below ``host`` that the log of requests has, at most `MOST_HOSTS`."""
        name = requests.c.host
        wanted = select(name).where(name.endswith(f".{host}", autoescape=True)).distinct()
        return self._connection.scalars(wanted.order_by(name).limit(MOST_HOSTS)).all()


def _at(paced: str | None) -> Iterator[ColumnElement[bool]]:
    if paced is not None:
        yield requests.c.host == paced


def _within(
    span: TimeSpan, at: Column[Any], run: Column[Any] | None = None
) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions for rows of a span; with ``run`` also for those of its run."""
    yield at >= span.since
    if span.until is not None:
        yield at <= span.until
    if run is not None and span.run is not None:
        yield run == span.run
