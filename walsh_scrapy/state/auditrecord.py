"""The record that `scrapy attest` judges: all rows up to its bounds, a few in memory at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import and_, func, select

from walsh_scrapy.policy.audit.clocks import SetClocks, Timed
from walsh_scrapy.policy.audit.declared import parts_of
from walsh_scrapy.policy.audit.judgements import Judgement
from walsh_scrapy.policy.audit.record import (
    Basis,
    Documents,
    EntryRow,
    LoggedAct,
    LoggedDenial,
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
    acts,
    copies,
    denials,
    entries,
    judgements,
    requests,
    runs,
    sources,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import ColumnElement, Select, Table

    from walsh_scrapy.state.connection import Connection

_Row = TypeVar("_Row")
#: Seconds after its last request in which a run without an end may still go on, and the seconds
#: before now of which its record may still lack the ends of requests that are out.
GOES_ON: Final = 600.0
IN_FLIGHT: Final = 300.0
_MOVED: Final = select(sources.c.url, sources.c.moved_to).where(sources.c.moved_to.is_not(None))
BY_TIME: Final = (requests.c.sent_at, requests.c.id)
BY_HOST: Final = (requests.c.host, *BY_TIME)


class Bounds(NamedTuple):
    """Where the judged record ends: rows after it are not judged, and change nothing."""

    until: float  #: epoch seconds
    requests: int  #: the last row, by its id; 0 if there is none
    denials: int
    runs: int
    acts: int


class RunRow(NamedTuple):
    """What never changes in a row of `runs`."""

    id: int
    spider: str
    command: str
    begun: float
    versions: str
    settings: str


class RunEnd(NamedTuple):
    """How a run ended. A row of `runs` gets that later, and it stays."""

    id: int
    ended: float  #: epoch seconds
    how: str


class SourceRow(NamedTuple):
    """What never changes in a row of `sources` once it was visited."""

    url: str
    kind: str
    visited_since: float  #: epoch seconds


class AuditRecord:
    """The record as of one moment; what is written meanwhile is not seen."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def bounds(self, now: float) -> Bounds:
        """Return the bounds of the record at ``now``, in epoch seconds: its last rows.

        If a run may go on, its last minutes are left out: requests that are out have no end yet.
        """
        last = (
            self._connection.scalar(select(func.max(table.c.id))) or 0
            for table in (requests, denials, runs, acts)
        )
        newest = select(requests.c.sent_at).where(
            requests.c.run == runs.c.id, requests.c.sent_at > now - GOES_ON
        )
        goes_on = select(runs.c.id).where(runs.c.ended.is_(None), newest.exists()).limit(1)
        is_over = self._connection.scalar(goes_on) is None
        return Bounds(now if is_over else now - IN_FLIGHT, *last)

    def basis(self, bounds: Bounds) -> Basis:
        """Return what requests are judged by. Runs with equal settings share one object."""
        known: dict[str, RunFacts] = {}
        ended = {run.id: run.ended for run in self.run_ends(bounds)}
        found = {}
        for row in self.run_rows(bounds):
            if row.settings not in known:
                values = json.loads(row.settings)
                given = {name: values.get(name, "") for name in RunFacts._fields}
                known[row.settings] = RunFacts(**given)
            facts, end = known[row.settings], ended.get(row.id)
            found[row.id] = RunTerms(row.begun, end, facts, row.command)
        for_list = (FOR_RULES, requests.c.purpose == "blocklist", _is_judged(bounds))
        urls = {url for each in known.values() for url in each.list_urls}
        asked = select(requests.c.host).where(*for_list).distinct()
        hosts = {*self._connection.scalars(asked), *map(host_of, urls)}
        return Basis(
            runs=found,
            acts=list(self.acts(bounds)),
            list_hosts=frozenset(hosts),
            documents=Documents(self.copy),
            since=self._since(),
            moved=dict(self._connection.all(_MOVED)),
            clocks=SetClocks(self._timed(bounds)),
        )

    def _since(self) -> float:
        """Return from when on all is recorded that a request may depend on.

        If rows were deleted, one of them may have brought a robots.txt that counted only later.
        """
        first = select(requests.c.id, requests.c.sent_at).order_by(*BY_TIME).limit(1)
        row = self._connection.first(first)
        if row is None:
            return 0.0
        number, sent_at = row
        return float(sent_at) + (0.0 if number == 1 else LONGEST_SETTLING)

    def _timed(self, bounds: Bounds) -> Iterator[Timed]:
        """Yield the clocks of the requests; rows of the future, which are not judged, count too."""
        found = rows_of(Timed, requests).where(requests.c.id <= bounds.requests)
        yield from self.each(Timed, found.order_by(requests.c.id))

    def copy(self, name: str) -> bytes | None:
        """Return a document by its name; None if it is not kept, or is not what it was."""
        body = self._connection.scalar(select(copies.c.body).where(copies.c.hash == name))
        return bytes(body) if body is not None and hash_of(bytes(body)) == name else None

    def requests_by_host(self, bounds: Bounds) -> Iterator[LoggedRequest]:
        """Yield the requests of one host after another, each in the order of their times."""
        return self.each(LoggedRequest, _judged(bounds).order_by(*BY_HOST))

    def requests_by_time(self, bounds: Bounds, since: float = 0.0) -> Iterator[LoggedRequest]:
        """Yield the requests from a moment on, in epoch seconds, in the order of their times."""
        found = _judged(bounds).where(requests.c.sent_at >= since)
        return self.each(LoggedRequest, found.order_by(*BY_TIME))

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

    def denials_by_time(self, bounds: Bounds, since: float = 0.0) -> Iterator[LoggedDenial]:
        """Yield the denials from a moment on, in epoch seconds, in the order of their times."""
        return self._denials(bounds, denials.c.at, denials.c.id, since=since)

    def entries(self, bounds: Bounds) -> Iterator[EntryRow]:
        """Yield the entries, those first seen earliest first."""
        found = rows_of(EntryRow, entries).where(entries.c.first_seen <= bounds.until)
        return self.each(EntryRow, found.order_by(entries.c.first_seen, entries.c.key))

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
            for (key,) in self._connection.stream(shared):
                yield key

    def reported(self, bounds: Bounds) -> Iterator[ReportedRun]:
        """Yield how many new entries each run that has ended reported, and has in the record."""
        counted = select(entries.c.run, func.count()).group_by(entries.c.run)
        stored: dict[int | None, int] = dict(self._connection.all(counted))
        is_over = and_(runs.c.id <= bounds.runs, runs.c.ended <= bounds.until)
        found = select(runs.c.id, runs.c.ended, runs.c.summary).where(is_over)
        for number, ended, text in self._connection.stream(found.order_by(runs.c.id)):
            reported = json.loads(text or "{}").get("new_entries", 0)
            yield ReportedRun(number, ended, reported, stored.get(number, 0))

    def run_rows(self, bounds: Bounds) -> Iterator[RunRow]:
        """Yield the runs in the order of their numbers."""
        found = rows_of(RunRow, runs).where(runs.c.id <= bounds.runs)
        return self.each(RunRow, found.order_by(runs.c.id))

    def acts(self, bounds: Bounds) -> Iterator[LoggedAct]:
        """Yield what the operator did, in order."""
        found = rows_of(LoggedAct, acts).where(acts.c.id <= bounds.acts)
        return self.each(LoggedAct, found.order_by(acts.c.id))

    def run_ends(self, bounds: Bounds) -> Iterator[RunEnd]:
        """Yield the ends of the runs that were over by then, in the order of their numbers."""
        is_over = and_(runs.c.id <= bounds.runs, runs.c.ended <= bounds.until)
        return self.each(RunEnd, rows_of(RunEnd, runs).where(is_over).order_by(runs.c.id))

    def source_rows(self, bounds: Bounds) -> Iterator[SourceRow]:
        """Yield the sources that were visited by then, in the order of their URLs."""
        found = rows_of(SourceRow, sources).where(sources.c.visited_since <= bounds.until)
        return self.each(SourceRow, found.order_by(sources.c.url))

    def missing_copies(self, bounds: Bounds, since: float = 0.0) -> list[str]:
        """Return the names of copies that rows name and that are not kept as they were.

        A run names what it declared, if it began at ``since`` or later, in epoch seconds.
        """
        young = (row for row in self.run_rows(bounds) if row.begun >= since)
        names = {json.loads(row.settings).get("declared") for row in young}
        for name in list(names):
            names.update(parts_of(self.copy(name) or b"") if name else ())
        for table, is_judged in (
            (requests, _is_judged(bounds)),
            (denials, _is_judged_denial(bounds)),
        ):
            for column in (table.c.robots, table.c.blocklist):
                named = selected(table, (column.name,)).where(is_judged).distinct()
                names.update(self._connection.scalars(named))
        return sorted(name for name in names if name and self.copy(name) is None)

    def each(self, kind: Callable[..., _Row], found: Select[Any]) -> Iterator[_Row]:
        """Yield the rows of a query as objects of a class that takes their columns in order."""
        for row in self._connection.stream(found):
            yield kind(*row)

    def judgements(self) -> list[Judgement]:
        """Return what was found in days and months that were judged before, by their names."""
        found = rows_of(Judgement, judgements).order_by(judgements.c.period)
        return list(self.each(Judgement, found))

    def _denials(
        self, bounds: Bounds, *order: ColumnElement[Any], since: float = 0.0
    ) -> Iterator[LoggedDenial]:
        is_judged = and_(_is_judged_denial(bounds), denials.c.at >= since)
        found = rows_of(LoggedDenial, denials).where(is_judged)
        return self.each(LoggedDenial, found.order_by(*order))


def rows_of(kind: Any, table: Table) -> Select[Any]:  # noqa: ANN401 - a class of named tuples
    """Return the query for the columns of a table that a class of rows has, in its order.

    What is a number in `copies` is the name of the copy there.
    """
    return selected(table, kind._fields)


def _judged(bounds: Bounds) -> Select[Any]:
    return rows_of(LoggedRequest, requests).where(_is_judged(bounds))


def _is_judged(bounds: Bounds) -> ColumnElement[bool]:
    return and_(requests.c.id <= bounds.requests, requests.c.sent_at <= bounds.until)


def _is_judged_denial(bounds: Bounds) -> ColumnElement[bool]:
    return and_(denials.c.id <= bounds.denials, denials.c.at <= bounds.until)
