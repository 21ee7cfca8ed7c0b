"""The record as an audit reads it: as of one moment, in order, a few rows in memory at once."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import and_, func, select

from walsh_scrapy.policy.audit.facts import Act, Kept, KeptBack, Run, RunFacts, Sent
from walsh_scrapy.state.entries import ROWS_AT_ONCE
from walsh_scrapy.state.evidence import hash_of
from walsh_scrapy.state.tables import acts, copies, denials, entries, requests, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sqlalchemy import ColumnElement, Connection, Select

    from walsh_scrapy.state.database import Database

_Row = TypeVar("_Row")
#: Seconds after its last request in which a run without an end may still go on, and the seconds
#: before now of which its record may still lack requests that are out.
GOES_ON: Final = 600.0
IN_FLIGHT: Final = 300.0

_SENT: Final = tuple(requests.c[name] for name in Sent._fields)
_KEPT_BACK: Final = tuple(denials.c[name] for name in KeptBack._fields)


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
    begun: float
    versions: str
    settings: str


class ActRow(NamedTuple):
    """A row of `acts`."""

    id: int
    at: float
    host: str
    act: str
    seconds: float
    reason: str


class AuditStore:
    """Reads the whole record, also while a crawl writes more of it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def snapshot(self) -> Iterator[AuditSnapshot]:
        """Open the record as it is now; what is written during the block is not seen.

        Raises StateError if the database fails meanwhile.
        """
        with self._database.snapshot() as connection:
            yield AuditSnapshot(connection)


class AuditSnapshot:
    """The record as of one moment. Every reader takes the bounds of what is judged."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

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

    def requests_by_host(self, bounds: Bounds) -> Iterator[Sent]:
        """Yield the requests of one host after another, each in the order of their times."""
        order = (requests.c.host, requests.c.sent_at, requests.c.id)
        return self._each(Sent, self._requests(bounds).order_by(*order))

    def requests_by_time(self, bounds: Bounds) -> Iterator[Sent]:
        """Yield the requests in the order of their times."""
        order = (requests.c.sent_at, requests.c.id)
        return self._each(Sent, self._requests(bounds).order_by(*order))

    def denials_by_host(self, bounds: Bounds) -> Iterator[KeptBack]:
        """Yield the denials of one host after another."""
        order = (denials.c.host, denials.c.at, denials.c.id)
        return self._each(KeptBack, self._denials(bounds).order_by(*order))

    def denials_by_time(self, bounds: Bounds) -> Iterator[KeptBack]:
        """Yield the denials in the order of their times."""
        return self._each(KeptBack, self._denials(bounds).order_by(denials.c.at, denials.c.id))

    def entries(self, bounds: Bounds) -> Iterator[Kept]:
        """Yield the entries, those first seen earliest first."""
        columns = (entries.c[name] for name in Kept._fields)
        found = select(*columns).where(entries.c.first_seen <= bounds.until)
        return self._each(Kept, found.order_by(entries.c.first_seen, entries.c.key))

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

    def runs(self, bounds: Bounds) -> dict[int, Run]:
        """Return what an audit needs of each run, by its number. Equal settings are one object."""
        known: dict[str, RunFacts] = {}
        found = {}
        for row in self.run_rows(bounds):
            if row.settings not in known:
                known[row.settings] = _facts(json.loads(row.settings))
            found[row.id] = Run(row.begun, known[row.settings])
        return found

    def act_rows(self, bounds: Bounds) -> Iterator[ActRow]:
        """Yield what the operator did, in order."""
        columns = (acts.c[name] for name in ActRow._fields)
        return self._each(
            ActRow, select(*columns).where(acts.c.id <= bounds.acts).order_by(acts.c.id)
        )

    def acts(self, bounds: Bounds) -> list[Act]:
        """Return what the operator did to hosts."""
        return [Act(row.at, row.host, row.act) for row in self.act_rows(bounds)]

    def list_hosts(self, bounds: Bounds) -> frozenset[str]:
        """Return the hosts that requests for the blocklist went to."""
        for_list = self._requests(bounds, requests.c.host).where(requests.c.purpose == "blocklist")
        return frozenset(self._connection.scalars(for_list.distinct()))

    def copy(self, name: str) -> bytes | None:
        """Return a document by its name; None if it is not kept, or is not what it was."""
        body = self._connection.scalar(select(copies.c.body).where(copies.c.hash == name))
        return bytes(body) if body is not None and hash_of(bytes(body)) == name else None

    def pruned_until(self, since: float, now: float) -> float:
        """Return until when runs after ``since`` may have deleted the log, in epoch seconds."""
        ended = func.coalesce(runs.c.ended, now)
        rows = self._connection.execute(select(ended, runs.c.settings).where(ended >= since))
        cuts = (at - float(json.loads(text)["log_days"]) * 86_400.0 for at, text in rows)
        return max(cuts, default=0.0)

    def _requests(self, bounds: Bounds, *columns: ColumnElement[Any]) -> Select[Any]:
        is_judged = and_(requests.c.id <= bounds.requests, requests.c.sent_at <= bounds.until)
        return select(*(columns or _SENT)).where(is_judged)

    def _denials(self, bounds: Bounds) -> Select[Any]:
        is_judged = and_(denials.c.id <= bounds.denials, denials.c.at <= bounds.until)
        return select(*_KEPT_BACK).where(is_judged)

    def _each(self, kind: Callable[..., _Row], found: Select[Any]) -> Iterator[_Row]:
        for row in self._connection.execute(found, execution_options=_STREAMED):
            yield kind(*row)


_STREAMED: Final = {"yield_per": ROWS_AT_ONCE}


def _facts(settings: Mapping[str, Any]) -> RunFacts:
    return RunFacts(**{name: settings.get(name, "") for name in RunFacts._fields})
