"""The log: the requests that were sent or denied, and the evidence (decision 33).

A crawl writes it; commands read a span of time, and the audit all of it, as of one moment. It is
kept for ``WALSH_LOG_DAYS``, to answer the questions of site owners.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import (
    String,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    true,
    union_all,
    update,
)

from walsh_scrapy.policy.audit.clocks import SetClocks, Timed
from walsh_scrapy.policy.audit.record import (
    DAY,
    Basis,
    Documents,
    EntryRow,
    LoggedDenial,
    LoggedOverride,
    LoggedRequest,
    ReportedRun,
    RunFacts,
    RunTerms,
    SharedPage,
)
from walsh_scrapy.policy.robots.copy import LONGEST_SETTLING
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.documents import hash_of
from walsh_scrapy.state.records import row_of
from walsh_scrapy.state.retention import OldRows
from walsh_scrapy.state.runs import run_of
from walsh_scrapy.state.tables import (
    COPIED,
    FOR_RULES,
    ITS_URL,
    blocklist,
    copies,
    denials,
    entries,
    overrides,
    requests,
    robots,
    runs,
    sources,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Select, Table

    from walsh_scrapy.state.runs import RunRecord

#: Seconds that a copy outlasts the rows that may name it. The longest Crawl-delay that a copy stays
#: in use for is 30 days (decision 7).
MARGIN: Final = 31 * 86_400.0
#: Characters. A URL that is denied may have a longer host than any that can be requested.
_LONGEST_HOST: Final = 255
#: With its number it stands for a copy that is no longer there, which only a change of the state
#: explains.
LOST: Final = "?"
_NAMES: Final = {name: f"name_of_{name}" for name in COPIED}
_NUMBERS: Final = {
    name: select(copies.c.id).where(copies.c.sha256 == bindparam(of_name)).scalar_subquery()
    for name, of_name in _NAMES.items()
}
_INSERT: Final = insert(requests).values(_NUMBERS)
_BEGIN: Final = _INSERT.returning(requests.c.id)
#: The columns that are not known before the end of an exchange.
_ENDS: Final = (
    *("status", "duration", "connect_duration", "monotonic"),
    *("error", "hold", "retry_after", "has_validator"),
)
_OF_NUMBER: Final = requests.c.id == bindparam("number")
_END: Final = update(requests).where(_OF_NUMBER)
_FORGET: Final = delete(requests).where(_OF_NUMBER)
_INSERT_DENIAL: Final = insert(denials).values(_NUMBERS).returning(denials.c.id)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The documents and rules that decided about one request; None where none did.

    The origin of the robots.txt is that of the request's URL.
    """

    rule: str | None = None  #: the line of robots.txt, or the listed domain
    line: int | None = None  #: of the rule in that robots.txt, from 1
    #: The copy of robots.txt that decided, by its SHA-256. A request for robots.txt itself gets the
    #: next three when the copy that counts after it is kept.
    robots: str | None = None
    robots_at: float | None = None  #: when it was last requested, in epoch seconds
    blocklist: str | None = None  #: the blocklist in force, by its SHA-256
    blocklist_at: float | None = None  #: when it was last requested, in epoch seconds
    robots_status: int | None = None  #: of the answer at ``robots_at``; None if there was none
    redirected_from: str | None = None  #: the URL whose answer redirected to this one

    def of_gate(self, gate: str) -> Evidence:
        """Return the evidence for a denial by ``gate``.

        A retry, or a redirect to another host, carries earlier evidence.
        """
        if gate == "robots":
            return self
        rule = self.rule if gate == "blocklist" else None
        return Evidence(
            rule=rule,
            blocklist=self.blocklist,
            blocklist_at=self.blocklist_at,
            redirected_from=self.redirected_from,
        )


NO_EVIDENCE: Final = Evidence()


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request and its outcome; ``status`` is None if there was no response but ``error``."""

    requested_at: (
        float  #: epoch seconds; in the table the moment of its begin, ``connect_duration`` earlier
    )
    host: str
    url: str
    gates: str
    status: int | None = None
    duration: float | None = None  #: seconds; None until its end is known
    monotonic: float = 0.0  #: seconds of the machine's monotonic clock, at its end
    error: str = ""
    run: int | None = None  #: its number in `runs`
    purpose: str = "target"  #: or "robots" or "blocklist"
    #: Seconds: the delay in force before it, as it was when the request began.
    delay: float = 0.0
    #: Seconds for which its answer put the host on hold.
    hold: float = 0.0
    #: Seconds that its answer asked for; None without a Retry-After that can be read.
    retry_after: float | None = None
    conditional: bool = False  #: whether it had validators (R7)
    has_validator: bool = False  #: whether its answer had an ETag or a Last-Modified
    evidence: Evidence = NO_EVIDENCE
    source: str | None = None  #: the declared source that a target was for


class LoggedBegin(NamedTuple):
    """The row of a request in the log that was written with its begin."""

    id: int
    at: float  #: epoch seconds of its begin


@dataclass(frozen=True, slots=True)
class DenialRecord:
    """One request that a gate denied; it was not sent."""

    denied_at: float  #: epoch seconds
    host: str
    url: str
    gate: str
    reason: str
    run: int | None
    evidence: Evidence


def log_begin(connection: Connection, record: RequestRecord) -> LoggedBegin:
    """Log a request that is about to be sent, within the transaction of its begin."""
    number = connection.execute(_BEGIN, _row(record)).scalar_one()
    return LoggedBegin(number, record.requested_at)


def log_end(
    connection: Connection, record: RequestRecord, begun: LoggedBegin | None = None
) -> None:
    """Log how a request ended, within the transaction of its end.

    Its whole row is written if it has none: it was not logged when it began.
    """
    row = _row(record)
    if begun is None:
        connection.execute(_INSERT, row)
        return
    row["connect_duration"] = max(0.0, record.requested_at - begun.at)
    connection.execute(_END, {name: row[name] for name in _ENDS} | {"number": begun.id})


def forget_begin(connection: Connection, begun: LoggedBegin) -> None:
    """Delete the row of a request that was never sent (decision 29)."""
    connection.execute(_FORGET, {"number": begun.id})


def selected(table: Table, names: tuple[str, ...]) -> Select[Any]:
    """Return the query for columns of a table of the log, as they were before they were written.

    The name of a copy replaces its number, and the URL of the request `ITS_URL` as its source.
    """
    source: Any = table
    columns: list[ColumnElement[Any]] = []
    for name in names:
        column = table.c[name]
        if name in COPIED:
            copy = copies.alias(f"copy_of_{name}")
            source = source.outerjoin(copy, copy.c.id == column)
            lost = literal(LOST, String) + cast(column, String)
            columns.append(func.coalesce(copy.c.sha256, lost).label(name))
        elif column is requests.c.source:
            its_own = (column == ITS_URL, requests.c.url)
            columns.append(case(its_own, else_=column).label(name))
        else:
            columns.append(column)
    return select(*columns).select_from(source)


def denial(record: DenialRecord) -> Callable[[Connection], None]:
    """Return a function that logs a denial in a transaction: once, even if it is tried again."""
    attempts = list[int]()

    def write(connection: Connection) -> None:
        for earlier in attempts:  # the answer to its COMMIT was lost
            connection.execute(delete(denials).where(denials.c.id == earlier))
        attempts.append(connection.execute(_INSERT_DENIAL, _row(record)).scalar_one())

    return write


class EvidenceStore(Store):
    """Finds old rows of the log and its documents."""

    def old_rows(self, now: float, log_seconds: float) -> tuple[OldRows, ...]:
        """Return requests and denials that are older, and copies that no row can name.

        The log is kept for ``log_seconds``, and each day of it as a whole; ``now`` is in epoch
        seconds. A copy that is in force stays, however old. Old rows that are not deleted yet count
        as well.
        """
        until = (now - log_seconds) // DAY * DAY
        times = (requests.c.requested_at, denials.c.denied_at)
        firsts = (select(func.min(at).label("at")) for at in times)
        moments = union_all(*firsts, select(literal(until))).subquery()
        first = select(func.min(moments.c.at)).scalar_subquery()
        is_in_force = or_(
            select(robots.c.origin).where(robots.c.copy == copies.c.sha256).exists(),
            select(blocklist.c.url).where(blocklist.c.copy == copies.c.sha256).exists(),
        )
        is_old = copies.c.last_used_at < first - MARGIN
        return (
            OldRows(requests, requests.c.requested_at < until, requests.c.requested_at),
            OldRows(denials, denials.c.denied_at < until, denials.c.denied_at),
            OldRows(copies, is_old & ~is_in_force, copies.c.last_used_at),
        )


def _row(record: RequestRecord | DenialRecord) -> dict[str, Any]:
    row = row_of(record)
    row["host"] = row["host"][:_LONGEST_HOST]
    if row.get("source") == row["url"]:
        row["source"] = ITS_URL
    found = row_of(row.pop("evidence"))
    return row | {_NAMES.get(name, name): value for name, value in found.items()}


_Row = TypeVar("_Row")
#: Seconds after its last request in which a run without an end may still go on, and the seconds
#: before now whose rows may still lack the ends of requests in flight.
GOES_ON: Final = 600.0
IN_FLIGHT: Final = 300.0
_MOVED: Final = select(sources.c.url, sources.c.moved_to).where(sources.c.moved_to.is_not(None))
BY_TIME: Final = (requests.c.requested_at, requests.c.id)
#: The moment of a row that a check sees, and the next column of the order.
_ORDER: Final[Mapping[type, tuple[Column[Any], Column[Any]]]] = {
    LoggedRequest: (requests.c.requested_at, requests.c.id),
    LoggedDenial: (denials.c.denied_at, denials.c.id),
    EntryRow: (entries.c.first_seen, entries.c.key),
}
#: Hosts that are suggested.
MOST_HOSTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """A span of time, in epoch seconds, and the run that the rows name; None for any run."""

    since: float = 0.0
    until: float = math.inf  #: the last moment
    run: int | None = None

    def has(self, at: Column[Any], run: Column[Any] | None = None) -> ColumnElement[bool]:
        """Return the condition for rows of the span; with ``run`` for those of its run too."""
        is_its_run = true() if run is None or self.run is None else run == self.run
        return and_(at >= self.since, at <= self.until, is_its_run)


class Log:
    """The request log as of one moment: of all, a span of time, a run, a URL or a host.

    Rows that are written meanwhile are not seen. A ``paced`` host is the host itself, or its
    registrable domain if domains are paced.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def connection(self) -> Connection:
        """The connection of the snapshot, for the audit."""
        return self._connection

    def each(self, kind: Callable[..., _Row], found: Select[Any]) -> Iterator[_Row]:
        """Yield the rows of a query as objects of a class that takes their columns in order."""
        for row in self._connection.execute(found):
            yield kind(*row)

    # ---- for the audit ----

    def bounds(self, now: float, since: float = 0.0) -> TimeSpan:
        """Return the bounds of the log at ``now``, in epoch seconds.

        If a run may go on, its last minutes are left out: requests in flight have no end yet.
        """
        newest = select(requests.c.requested_at).where(
            requests.c.run == runs.c.id, requests.c.requested_at > now - GOES_ON
        )
        goes_on = select(runs.c.id).where(runs.c.ended_at.is_(None), newest.exists()).limit(1)
        is_over = self._connection.scalar(goes_on) is None
        return TimeSpan(since=since, until=now if is_over else now - IN_FLIGHT)

    def basis(self, bounds: TimeSpan) -> Basis:
        """Return the basis of the checks of requests. Runs with equal settings share one object."""
        known: dict[str, RunFacts] = {}
        found = {}
        columns = (runs.c.id, runs.c.started_at, runs.c.ended_at, runs.c.settings, runs.c.command)
        for number, begun, ended, settings, command in self._connection.execute(select(*columns)):
            if settings not in known:
                values = json.loads(settings)
                defaults = dict.fromkeys(RunFacts._fields, "") | RunFacts._field_defaults
                given = {name: values.get(name, default) for name, default in defaults.items()}
                known[settings] = RunFacts(**given)
            end = None if ended is None or ended > bounds.until else ended
            found[number] = RunTerms(begun, end, known[settings], command)
        within = bounds.has(requests.c.requested_at)
        made = rows_of(LoggedOverride, overrides).order_by(overrides.c.id)
        for_list = (FOR_RULES, requests.c.purpose == "blocklist", within)
        urls = {url for each in known.values() for url in each.list_urls}
        requested = select(requests.c.host).where(*for_list).distinct()
        hosts = {*self._connection.scalars(requested), *map(host_of, urls)}
        return Basis(
            runs=found,
            overrides=list(self.each(LoggedOverride, made)),
            list_hosts=frozenset(hosts),
            documents=Documents(self.copy),
            since=self._since(bounds),
            moved=dict(map(tuple, self._connection.execute(_MOVED))),
            clocks=SetClocks(self._timed(bounds)),
        )

    def _since(self, bounds: TimeSpan) -> float:
        """Return the moment since which all is logged that a request may depend on.

        A row before, or one that was deleted, may have brought a robots.txt that counted only
        later.
        """
        first = select(requests.c.id, requests.c.requested_at).where(
            requests.c.requested_at >= bounds.since
        )
        row = self._connection.execute(first.order_by(*BY_TIME).limit(1)).first()
        if row is None:
            return 0.0
        number, requested_at = row
        return float(requested_at) + (0.0 if number == 1 else LONGEST_SETTLING)

    def _timed(self, bounds: TimeSpan) -> Iterator[Timed]:
        """Yield the clocks of the requests; unchecked rows of the future count too."""
        found = rows_of(Timed, requests).where(requests.c.requested_at >= bounds.since)
        yield from self.each(Timed, found.order_by(requests.c.id))

    def copy(self, name: str) -> bytes | None:
        """Return a document by its name; None if it is not kept, or has changed."""
        body = self._connection.scalar(select(copies.c.body).where(copies.c.sha256 == name))
        return bytes(body) if body is not None and hash_of(bytes(body)) == name else None

    def rows(self, kind: type[_Row], bounds: TimeSpan, *, by_host: bool = False) -> Iterator[_Row]:
        """Yield the rows of a class that a check sees, by their times, or host by host."""
        if kind is SharedPage:
            yield from map(kind, self._shared_pages(bounds))
        elif kind is ReportedRun:
            yield from self._reported(bounds)  # type: ignore[misc]  # that is the class
        else:
            at, number = _ORDER[kind]
            order = (at.table.c.host, at, number) if by_host else (at, number)
            found = rows_of(kind, at.table).where(bounds.has(at))
            yield from self.each(kind, found.order_by(*order))

    def _shared_pages(self, bounds: TimeSpan) -> Iterator[str]:
        """Yield one key of each set of entries of a page that are the same (decision 19).

        These have one id, or one title and no dates that differ. One of them was first seen within
        the bounds.
        """
        has_same_dates = func.count() > func.count(
            func.nullif(entries.c.evident_date, "").distinct()
        )
        for same, are_the_same in (
            (entries.c.own_key, func.count() > 1),
            (entries.c.title_key, and_(func.count() > 1, has_same_dates)),
        ):
            shared = (
                select(func.max(entries.c.key))
                .where(entries.c.first_seen <= bounds.until, same.is_not(None))
                .group_by(same)
                .having(are_the_same, func.max(entries.c.first_seen) >= bounds.since)
                .order_by(func.max(entries.c.key))
            )
            yield from self._connection.scalars(shared)

    def _reported(self, bounds: TimeSpan) -> Iterator[ReportedRun]:
        """Yield the new entries of each ended run: the reported and the stored number."""
        counted = select(entries.c.run, func.count()).group_by(entries.c.run)
        stored: dict[int | None, int] = dict(map(tuple, self._connection.execute(counted)))
        found = select(runs.c.id, runs.c.ended_at, runs.c.summary).where(
            bounds.has(runs.c.ended_at)
        )
        for number, ended, text in self._connection.execute(found.order_by(runs.c.id)):
            reported = json.loads(text or "{}").get("new_entries", 0)
            yield ReportedRun(number, ended, reported, stored.get(number, 0))

    def runs(self, bounds: TimeSpan) -> Iterator[RunRecord]:
        """Yield the runs in the order of their numbers, except for those that ended before."""
        is_checked = or_(runs.c.ended_at.is_(None), runs.c.ended_at >= bounds.since)
        return map(
            run_of, self._connection.execute(select(runs).where(is_checked).order_by(runs.c.id))
        )

    # ---- for commands ----

    def subdomains(self, host: str) -> Sequence[str]:
        """Return hosts below ``host`` that the log of requests has, at most `MOST_HOSTS`."""
        name = requests.c.host
        wanted = select(name).where(name.endswith(f".{host}", autoescape=True)).distinct()
        return self._connection.scalars(wanted.order_by(name).limit(MOST_HOSTS)).all()


def rows_of(kind: Any, table: Table) -> Select[Any]:  # noqa: ANN401 - a class of named tuples
    """Return the query for the columns of a table that a class of rows has, in its order.

    The name of a copy replaces its number.
    """
    return selected(table, kind._fields)
