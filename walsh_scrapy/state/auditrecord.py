"""The record that `scrapy attest` judges: all rows up to its bounds, a few in memory at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import and_, func, or_, select

from walsh_scrapy.policy.audit.clocks import SetClocks, Timed
from walsh_scrapy.policy.audit.record import (
    Basis,
    Documents,
    EntryRow,
    LoggedDenial,
    LoggedOverride,
    LoggedRequest,
    ReportedRun,
    RunFacts,
    RunTerms,
)
from walsh_scrapy.policy.robots.access import LONGEST_SETTLING
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state.evidence import hash_of, selected
from walsh_scrapy.state.tables import (
    FOR_RULES,
    copies,
    denials,
    entries,
    overrides,
    requests,
    runs,
    sources,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Column, ColumnElement, Connection, Select, Table

_Row = TypeVar("_Row")
#: Seconds after its last request in which a run without an end may still go on, and the seconds
#: before now of which its record may still lack the ends of requests that are out.
GOES_ON: Final = 600.0
IN_FLIGHT: Final = 300.0
_MOVED: Final = select(sources.c.url, sources.c.moved_to).where(sources.c.moved_to.is_not(None))
BY_TIME: Final = (requests.c.sent_at, requests.c.id)
BY_HOST: Final = (requests.c.host, *BY_TIME)


class Bounds(NamedTuple):
    """From when until when a record is judged, in epoch seconds."""

    since: float
    until: float


class RunRow(NamedTuple):
    """What an attestation says of a row of `runs`."""

    id: int
    versions: str
    settings: str


class AuditRecord:
    """The record as of one moment; what is written meanwhile is not seen."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def bounds(self, now: float, since: float = 0.0) -> Bounds:
        """Return the bounds of the record at ``now``, in epoch seconds.

        If a run may go on, its last minutes are left out: requests that are out have no end yet.
        """
        newest = select(requests.c.sent_at).where(
            requests.c.run == runs.c.id, requests.c.sent_at > now - GOES_ON
        )
        goes_on = select(runs.c.id).where(runs.c.ended.is_(None), newest.exists()).limit(1)
        is_over = self._connection.scalar(goes_on) is None
        return Bounds(since, now if is_over else now - IN_FLIGHT)

    def basis(self, bounds: Bounds) -> Basis:
        """Return what requests are judged by. Runs with equal settings share one object."""
        known: dict[str, RunFacts] = {}
        found = {}
        columns = (runs.c.id, runs.c.begun, runs.c.ended, runs.c.settings, runs.c.command)
        for number, begun, ended, settings, command in self._connection.execute(select(*columns)):
            if settings not in known:
                values = json.loads(settings)
                given = {name: values.get(name, "") for name in RunFacts._fields}
                known[settings] = RunFacts(**given)
            end = None if ended is None or ended > bounds.until else ended
            found[number] = RunTerms(begun, end, known[settings], command)
        within = _is_within(bounds, requests.c.sent_at)
        made = rows_of(LoggedOverride, overrides).order_by(overrides.c.id)
        for_list = (FOR_RULES, requests.c.purpose == "blocklist", within)
        urls = {url for each in known.values() for url in each.list_urls}
        asked = select(requests.c.host).where(*for_list).distinct()
        hosts = {*self._connection.scalars(asked), *map(host_of, urls)}
        return Basis(
            runs=found,
            overrides=list(self.each(LoggedOverride, made)),
            list_hosts=frozenset(hosts),
            documents=Documents(self.copy),
            since=self._since(bounds),
            moved=dict(map(tuple, self._connection.execute(_MOVED))),
            clocks=SetClocks(self._timed(bounds)),
        )

    def _since(self, bounds: Bounds) -> float:
        """Return from when on all is recorded that a request may depend on.

        A row before, or one that was deleted, may have brought a robots.txt that counted only
        later.
        """
        first = select(requests.c.id, requests.c.sent_at).where(requests.c.sent_at >= bounds.since)
        row = self._connection.execute(first.order_by(*BY_TIME).limit(1)).first()
        if row is None:
            return 0.0
        number, sent_at = row
        return float(sent_at) + (0.0 if number == 1 else LONGEST_SETTLING)

    def _timed(self, bounds: Bounds) -> Iterator[Timed]:
        """Yield the clocks of the requests; rows of the future, which are not judged, count too."""
        found = rows_of(Timed, requests).where(requests.c.sent_at >= bounds.since)
        yield from self.each(Timed, found.order_by(requests.c.id))

    def copy(self, name: str) -> bytes | None:
        """Return a document by its name; None if it is not kept, or is not what it was."""
        body = self._connection.scalar(select(copies.c.body).where(copies.c.hash == name))
        return bytes(body) if body is not None and hash_of(bytes(body)) == name else None

    def requests_by_host(self, bounds: Bounds) -> Iterator[LoggedRequest]:
        """Yield the requests of one host after another, each in the order of their times."""
        return self.each(LoggedRequest, _judged(bounds).order_by(*BY_HOST))

    def requests_by_time(self, bounds: Bounds) -> Iterator[LoggedRequest]:
        """Yield the requests in the order of their times."""
        return self.each(LoggedRequest, _judged(bounds).order_by(*BY_TIME))

    def requests_after(self, moment: float) -> Iterator[LoggedRequest]:
        """Yield the requests after a moment, in epoch seconds, whatever the bounds are."""
        found = rows_of(LoggedRequest, requests).where(requests.c.sent_at > moment)
        return self.each(LoggedRequest, found.order_by(*BY_TIME))

    def entries_after(self, moment: float) -> int:
        """Return how many entries were first seen after a moment, in epoch seconds."""
        found = select(func.count()).select_from(entries).where(entries.c.first_seen > moment)
        return self._connection.scalar(found) or 0

    def denials_by_host(self, bounds: Bounds) -> Iterator[LoggedDenial]:
        """Yield the denials of one host after another."""
        return self._denials(bounds, denials.c.host, denials.c.at, denials.c.id)

    def denials_by_time(self, bounds: Bounds) -> Iterator[LoggedDenial]:
        """Yield the denials in the order of their times."""
        return self._denials(bounds, denials.c.at, denials.c.id)

    def entries(self, bounds: Bounds) -> Iterator[EntryRow]:
        """Yield the entries, those first seen earliest first."""
        found = rows_of(EntryRow, entries).where(_is_within(bounds, entries.c.first_seen))
        return self.each(EntryRow, found.order_by(entries.c.first_seen, entries.c.key))

    def duplicates(self, bounds: Bounds) -> Iterator[str]:
        """Yield one key of each set of entries of a page with one id or one title (decision 19).

        One of them was first seen within the bounds.
        """
        for same in (entries.c.own_key, entries.c.title_key):
            shared = (
                select(func.max(entries.c.key))
                .where(entries.c.first_seen <= bounds.until, same.is_not(None))
                .group_by(same)
                .having(func.count() > 1, func.max(entries.c.first_seen) >= bounds.since)
                .order_by(func.max(entries.c.key))
            )
            yield from self._connection.scalars(shared)

    def reported(self, bounds: Bounds) -> Iterator[ReportedRun]:
        """Yield how many new entries each run that has ended reported, and has in the record."""
        counted = select(entries.c.run, func.count()).group_by(entries.c.run)
        stored: dict[int | None, int] = dict(map(tuple, self._connection.execute(counted)))
        is_over = _is_within(bounds, runs.c.ended)
        found = select(runs.c.id, runs.c.ended, runs.c.summary).where(is_over)
        for number, ended, text in self._connection.execute(found.order_by(runs.c.id)):
            reported = json.loads(text or "{}").get("new_entries", 0)
            yield ReportedRun(number, ended, reported, stored.get(number, 0))

    def run_rows(self, bounds: Bounds) -> Iterator[RunRow]:
        """Yield the runs in the order of their numbers, but for those that ended before."""
        is_judged = or_(runs.c.ended.is_(None), runs.c.ended >= bounds.since)
        return self.each(RunRow, rows_of(RunRow, runs).where(is_judged).order_by(runs.c.id))

    def each(self, kind: Callable[..., _Row], found: Select[Any]) -> Iterator[_Row]:
        """Yield the rows of a query as objects of a class that takes their columns in order."""
        for row in self._connection.execute(found):
            yield kind(*row)

    def _denials(self, bounds: Bounds, *order: ColumnElement[Any]) -> Iterator[LoggedDenial]:
        found = rows_of(LoggedDenial, denials).where(_is_within(bounds, denials.c.at))
        return self.each(LoggedDenial, found.order_by(*order))


def rows_of(kind: Any, table: Table) -> Select[Any]:  # noqa: ANN401 - a class of named tuples
    """Return the query for the columns of a table that a class of rows has, in its order.

    What is a number in `copies` is the name of the copy there.
    """
    return selected(table, kind._fields)


def _judged(bounds: Bounds) -> Select[Any]:
    return rows_of(LoggedRequest, requests).where(_is_within(bounds, requests.c.sent_at))


def _is_within(bounds: Bounds, at: Column[float]) -> ColumnElement[bool]:
    return and_(at >= bounds.since, at <= bounds.until)
