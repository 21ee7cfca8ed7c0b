"""The log of requests and denials, as commands read it: as of one moment.

`scrapy attest` reads all up to its bounds, a few rows in memory at once. The other commands read a
span of time.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import and_, func, or_, select

from walsh_scrapy.policy.audit.record import (
    DAY,
    Basis,
    Documents,
    EntryRow,
    LoggedAct,
    LoggedDenial,
    LoggedRequest,
    RunFacts,
    RunTerms,
)
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state.entries import ROWS_AT_ONCE
from walsh_scrapy.state.evidence import hash_of
from walsh_scrapy.state.tables import acts, copies, denials, entries, requests, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Select

_Row = TypeVar("_Row")
#: Seconds after its last request in which a run without an end may still go on, and the seconds
#: before now of which its record may still lack requests that are out.
GOES_ON: Final = 600.0
IN_FLIGHT: Final = 300.0
#: URLs in one SELECT; databases limit the parameters of a statement.
_URLS_AT_ONCE: Final = 500
#: Hosts that are suggested.
MOST_HOSTS: Final = 5
_STREAMED: Final = {"yield_per": ROWS_AT_ONCE}

_REQUEST: Final = tuple(requests.c[name] for name in LoggedRequest._fields)
_DENIAL: Final = tuple(denials.c[name] for name in LoggedDenial._fields)
_BY_TIME: Final = (requests.c.sent_at, requests.c.id)
_BY_HOST: Final = (requests.c.host, *_BY_TIME)
_ENDED: Final = requests.c.sent_at + requests.c.seconds


class Bounds(NamedTuple):
    """Where the judged record ends: rows after it are not judged, and change nothing."""

    until: float  #: epoch seconds
    requests: int  #: the last row, by its id; 0 if there is none
    denials: int
    runs: int
    acts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """A span of time, in epoch seconds, and the run that the records name; None for any run."""

    since: float = 0.0
    until: float | None = None  #: the last moment
    run: int | None = None


class RunRow(NamedTuple):
    """What never changes in a row of `runs`."""

    id: int
    spider: str
    begun: float
    versions: str
    settings: str


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


class RunVisit(NamedTuple):
    """One run that requested a URL, and when it did so first, in epoch seconds."""

    url: str
    run: int | None
    at: float


class Log:
    """The record as of one moment; what is written meanwhile is not seen.

    A ``paced`` host is the name under which the ledger paces it: a registrable domain, or the host
    itself.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # What all judge by.

    def bounds(self, now: float) -> Bounds:
        """Return the bounds of the record at ``now``, in epoch seconds.

        If a run may go on, its last minutes are left out: requests that are out have no row yet.
        """
        newest = select(requests.c.sent_at).where(
            requests.c.run == runs.c.id, requests.c.sent_at > now - GOES_ON
        )
        goes_on = select(runs.c.id).where(runs.c.ended.is_(None), newest.exists()).limit(1)
        is_over = self._connection.scalar(goes_on) is None
        last = (
            self._connection.scalar(select(func.max(table.c.id))) or 0
            for table in (requests, denials, runs, acts)
        )
        return Bounds(now if is_over else now - IN_FLIGHT, *last)

    def basis(self, bounds: Bounds) -> Basis:
        """Return what requests are judged by. Runs with equal settings share one object."""
        known: dict[str, RunFacts] = {}
        found = {}
        for row in self.run_rows(bounds):
            if row.settings not in known:
                values = json.loads(row.settings)
                facts = {name: values.get(name, "") for name in RunFacts._fields}
                known[row.settings] = RunFacts(**facts)
            found[row.id] = RunTerms(row.begun, known[row.settings])
        for_list = _judged(bounds, requests.c.host).where(requests.c.purpose == "blocklist")
        urls = {url for each in known.values() for url in each.list_urls}
        hosts = {*self._connection.scalars(for_list.distinct()), *map(host_of, urls)}
        return Basis(found, list(self.acts(bounds)), frozenset(hosts), Documents(self.copy))

    def copy(self, name: str) -> bytes | None:
        """Return a document by its name; None if it is not kept, or is not what it was."""
        body = self._connection.scalar(select(copies.c.body).where(copies.c.hash == name))
        return bytes(body) if body is not None and hash_of(bytes(body)) == name else None

    # The whole record, up to its bounds.

    def requests_by_host(self, bounds: Bounds) -> Iterator[LoggedRequest]:
        """Yield the requests of one host after another, each in the order of their times."""
        return self._each(LoggedRequest, _judged(bounds).order_by(*_BY_HOST))

    def requests_by_time(self, bounds: Bounds) -> Iterator[LoggedRequest]:
        """Yield the requests in the order of their times."""
        return self._each(LoggedRequest, _judged(bounds).order_by(*_BY_TIME))

    def denials_by_host(self, bounds: Bounds) -> Iterator[LoggedDenial]:
        """Yield the denials of one host after another."""
        return self._denials(bounds, denials.c.host, denials.c.at, denials.c.id)

    def denials_by_time(self, bounds: Bounds) -> Iterator[LoggedDenial]:
        """Yield the denials in the order of their times."""
        return self._denials(bounds, denials.c.at, denials.c.id)

    def entries(self, bounds: Bounds) -> Iterator[EntryRow]:
        """Yield the entries, those first seen earliest first."""
        columns = (entries.c[name] for name in EntryRow._fields)
        found = select(*columns).where(entries.c.first_seen <= bounds.until)
        return self._each(EntryRow, found.order_by(entries.c.first_seen, entries.c.key))

    def duplicates(self, bounds: Bounds) -> Iterator[str]:
        """Yield one key of each set of entries of a page with one id or one title (decision 19)."""
        for same in (entries.c.own_key, entries.c.title_key):
            shared = (
                select(func.max(entries.c.key))
                .where(entries.c.first_seen <= bounds.until, same.is_not(None))
                .group_by(same)
                .having(func.count() > 1)
                .order_by(func.max(entries.c.key))
            )
            yield from self._connection.scalars(shared, execution_options=_STREAMED)

    def run_rows(self, bounds: Bounds) -> Iterator[RunRow]:
        """Yield the runs in the order of their numbers."""
        columns = (runs.c[name] for name in RunRow._fields)
        found = select(*columns).where(runs.c.id <= bounds.runs).order_by(runs.c.id)
        return self._each(RunRow, found)

    def acts(self, bounds: Bounds) -> Iterator[LoggedAct]:
        """Yield what the operator did, in order."""
        columns = (acts.c[name] for name in LoggedAct._fields)
        found = select(*columns).where(acts.c.id <= bounds.acts).order_by(acts.c.id)
        return self._each(LoggedAct, found)

    def pruned_until(self, since: float, now: float) -> float:
        """Return until when runs after ``since`` may have deleted the log, in epoch seconds."""
        ended = func.coalesce(runs.c.ended, now)
        rows = self._connection.execute(select(ended, runs.c.settings).where(ended >= since))
        cuts = (at - float(json.loads(text)["log_days"]) * DAY for at, text in rows)
        return max(cuts, default=0.0)

    # A span of time.

    def requests(
        self, span: TimeSpan, paced: str | None = None, most: int | None = None
    ) -> list[LoggedRequest]:
        """Return the requests to one host after another, each in the order of their times.

        They are those of a span, of any run; ``paced`` is the only host to read. Of more than
        ``most`` these are the last ones.
        """
        wanted = [*_within(span, requests.c.sent_at), *_at(paced)]
        newest = select(*_REQUEST).where(*wanted).order_by(*(each.desc() for each in _BY_TIME))
        found = newest.limit(most).subquery()
        ordered = (found.c.host, found.c.sent_at, found.c.id)
        return list(self._each(LoggedRequest, select(found).order_by(*ordered)))

    def requests_before(self, moment: float, paced: str | None = None) -> list[LoggedRequest]:
        """Return what counts for pauses and holds after a moment, ordered as `requests` are.

        These are the exchange with each host that ended last, and those whose holds go on.
        """
        wanted = and_(requests.c.sent_at < moment, *_at(paced))
        last = func.max(_ENDED).label("ended")
        newest = select(requests.c.host, last).where(wanted).group_by(requests.c.host).subquery()
        is_newest = and_(requests.c.host == newest.c.host, newest.c.ended == _ENDED)
        counts = or_(is_newest, _ENDED + requests.c.hold > moment)
        found = select(*_REQUEST).join(newest, requests.c.host == newest.c.host)
        return list(self._each(LoggedRequest, found.where(wanted, counts).order_by(*_BY_HOST)))

    def denials(self, span: TimeSpan, host: str) -> list[LoggedDenial]:
        """Return what was denied of a host, the first denial first."""
        found = select(*_DENIAL).where(denials.c.host == host, *_within(span, denials.c.at))
        return list(self._each(LoggedDenial, found.order_by(denials.c.at, denials.c.id)))

    def denial_counts(self, span: TimeSpan) -> list[DenialCount]:
        """Return how often each gate denied requests in a span, by host and reason."""
        kinds = (denials.c.host, denials.c.gate, denials.c.reason)
        conditions = _in(span, denials.c.at, denials.c.run)
        counted = select(*kinds, func.count()).where(*conditions).group_by(*kinds).order_by(*kinds)
        return list(self._each(DenialCount, counted))

    def first_seen(self, span: TimeSpan) -> dict[str, list[float]]:
        """Return when the entries of a span were first seen, by their sources."""
        columns = (entries.c.source, entries.c.first_seen)
        found = select(*columns).where(*_seen_in(span)).order_by(entries.c.first_seen)
        seen: dict[str, list[float]] = {}
        for source, first_seen in self._connection.execute(found):
            seen.setdefault(source, []).append(first_seen)
        return seen

    def newest(
        self, span: TimeSpan, of_each: int, most: int, sources: Collection[str] | None = None
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
        return list(self._each(SeenEntry, chosen))

    # One run, one URL, one host.

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

    def visits(self, urls: Collection[str]) -> list[RunVisit]:
        """Return the runs in the log that requested these URLs, the newest first."""
        found: list[RunVisit] = []
        ordered = sorted(urls)
        first = func.min(requests.c.sent_at)
        for start in range(0, len(ordered), _URLS_AT_ONCE):
            some = requests.c.url.in_(ordered[start : start + _URLS_AT_ONCE])
            wanted = select(requests.c.url, requests.c.run, first).where(some)
            found += self._each(RunVisit, wanted.group_by(requests.c.url, requests.c.run))
        return sorted(found, key=lambda visit: -visit.at)

    def days(self, host: str, paced: str) -> dict[int, int]:
        """Return how many requests and denials each day has, by days since 1970, in order."""
        sent = select(requests.c.sent_at, requests.c.url).where(requests.c.host == paced)
        denied = select(denials.c.at, denials.c.url).where(denials.c.host == host)
        counts: Counter[int] = Counter()
        for wanted in (sent, denied):
            rows = self._connection.execute(wanted)
            counts.update(int(at // DAY) for at, url in rows if host_of(url) == host)
        return dict(sorted(counts.items()))

    def asked_for_robots(self, url: str, paced: str, until: float) -> LoggedRequest | None:
        """Return the last request for the robots.txt at a URL that was sent until a moment."""
        wanted = select(*_REQUEST).where(
            requests.c.host == paced,
            requests.c.url == url,
            requests.c.purpose == "robots",
            requests.c.sent_at <= until,
        )
        newest = wanted.order_by(requests.c.sent_at.desc(), requests.c.id.desc()).limit(1)
        row = self._connection.execute(newest).one_or_none()
        return None if row is None else LoggedRequest(*row)

    def subdomains(self, host: str) -> Sequence[str]:
        """Return hosts below ``host`` that the log of requests has, at most `MOST_HOSTS`."""
        name = requests.c.host
        wanted = select(name).where(name.endswith(f".{host}", autoescape=True)).distinct()
        return self._connection.scalars(wanted.order_by(name).limit(MOST_HOSTS)).all()

    def _denials(self, bounds: Bounds, *order: ColumnElement[Any]) -> Iterator[LoggedDenial]:
        is_judged = and_(denials.c.id <= bounds.denials, denials.c.at <= bounds.until)
        return self._each(LoggedDenial, select(*_DENIAL).where(is_judged).order_by(*order))

    def _each(self, kind: Callable[..., _Row], found: Select[Any]) -> Iterator[_Row]:
        for row in self._connection.execute(found, execution_options=_STREAMED):
            yield kind(*row)


def _judged(bounds: Bounds, *columns: ColumnElement[Any]) -> Select[Any]:
    is_judged = and_(requests.c.id <= bounds.requests, requests.c.sent_at <= bounds.until)
    return select(*(columns or _REQUEST)).where(is_judged)


def _at(paced: str | None) -> Iterator[ColumnElement[bool]]:
    if paced is not None:
        yield requests.c.host == paced


def _within(span: TimeSpan, at: Column[Any]) -> Iterator[ColumnElement[bool]]:
    yield at >= span.since
    if span.until is not None:
        yield at <= span.until


def _in(span: TimeSpan, at: Column[Any], run: Column[Any]) -> Iterator[ColumnElement[bool]]:
    yield from _within(span, at)
    if span.run is not None:
        yield run == span.run


def _seen_in(span: TimeSpan) -> Iterator[ColumnElement[bool]]:
    return _in(span, entries.c.first_seen, entries.c.run)
