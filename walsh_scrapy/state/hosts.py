"""The protocol of workers that share hosts: each owns the host that it requests (decision 41).

A worker is a crawl that shares the state. It takes a host before it reads the rows of the host, and
owns it until its results are written. One row of `hosts` arbitrates. Each function here is one
statement, so the caller composes transactions: first the statement that proves that the host is
still the worker's, then the other writes. A function whose answer shows that the host was lost has
changed nothing but caution; then the caller forgets the host.

========== ======================================== ===========================================
function   when                                     writes
========== ======================================== ===========================================
beat       a crawl of sources: at the start, then   ``workers.expires_at``, 45 s from now. It costs
           every 5 s                                the same however many hosts are owned.
take       before the first request to a host       ``owner``, where the host is free and was
                                                    not deferred since the worker's run began.
begin      PacingMiddleware, before each request    ``in_flight_until``, where the worker owns the
                                                    host, nothing is in flight, and delay and
                                                    hold are over.
end        after an exchange                        ``ended``, ``delay``, the counts, the hold
                                                    of this answer, no ``in_flight_until``.
                                                    The host was lost: ``ended``, ``delay`` and
                                                    ``hold_until`` only grow.
withdraw   nothing was sent                         no ``in_flight_until``.
let_go     no request of a host is in the           no ``owner``; ``deferred_at``, if the host is
           process, or it is given up for the run   given up.
leave      the end of a run                         no row in ``workers``: all its hosts are free.
operator   any time                                 ``operator_delay``; no ``hold_until``. The
                                                    next begin reads both.
========== ======================================== ===========================================

A host is free if its ``in_flight_until`` has passed, and its owner is empty, unknown, or expired:
its ``expires_at`` has passed, which only a process decides that `TakeoverGuard` lets. An exchange
whose worker died counts as ended at ``in_flight_until``.

The statements give the same result if their transaction runs again because its connection was lost.
Only before `begin` a transaction that runs again withdraws: its first run may have been committed.

The clock is that of the database, in the statement. Passed time is given as an age.
"""

from __future__ import annotations

import math
import time
from dataclasses import astuple, dataclass, fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from sqlalchemy import (
    Double,
    Integer,
    String,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.pacing import (
    MARGIN,
    MAX_EXCHANGE_SECONDS,
    NO_HOLD,
    WORKER_SECONDS,
    Hold,
    HostTimes,
)
from walsh_scrapy.programname import program_name
from walsh_scrapy.state.database import StateError, Store
from walsh_scrapy.state.records import upsert
from walsh_scrapy.state.retention import OldRows
from walsh_scrapy.state.tables import choices, hosts, overrides, workers

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection
    from sqlalchemy.sql.dml import ReturningInsert, Update

#: Seconds for which the row of a host is kept after the last moment that it is about.
KEEP_SECONDS: Final = 90 * 86_400.0
#: The reason why a host is not ready: it is on hold, a request is in flight, or its delay goes on.
WaitReason: TypeAlias = Literal["hold", "in flight", "delay"]
OverrideName: TypeAlias = Literal["release", "delay"]


class Worker(NamedTuple):
    """A worker. ``started_at`` is the start of its run, by the database's clock (epoch seconds)."""

    id: str
    started_at: float
    run: int | None = None  #: its number in the table of runs
    sources: str = ""  #: which it visits: workers with the same text visit the same ones


class HostSnapshot(NamedTuple):
    """The row of a host at one moment."""

    times: HostTimes
    now: float  #: epoch seconds, by the database's clock
    #: Seconds that the row was in the future, because a clock was set back. ``times`` are
    #: corrected; the caller names it.
    ahead: float = 0.0

    @property
    def wait(self) -> float:
        """Seconds until the host may be requested; 0 or less if it may be requested now."""
        return self.times.ready_at() - self.now

    @property
    def hold(self) -> float:
        """Seconds for which the host is still on hold; 0 if it is not."""
        return max(0.0, self.times.hold_until - self.now)

    @property
    def reason(self) -> WaitReason | None:
        """The reason for `wait`; None if the host may be requested now."""
        until = self.times.ready_at()
        if until <= self.now:
            return None
        if self.times.hold_until >= until:
            return "hold"
        return "in flight" if self.times.in_flight_until > self.now else "delay"


class Begun(NamedTuple):
    """A request that may be sent now."""

    times: HostTimes
    now: float  #: epoch seconds, by the database's clock
    #: Seconds for the whole exchange. They count from a moment before the transaction of `begin`.
    allowed: float


class Ask(NamedTuple):
    """The delay and the limits of a request, in seconds."""

    delay: float  #: since the last exchange
    timeout: float
    most: float = math.inf  #: for which delay and hold count at most; see `longest_wait`


class Beat(NamedTuple):
    """The answer to a beat."""

    now: float  #: epoch seconds, by the database's clock
    others: int  #: other workers that live


class OwnedByOther(NamedTuple):
    """A host of another worker."""

    until: float  #: the worker lives until then, unless it beats; by the database's clock
    is_same: bool  #: it visits the same sources


@dataclass(frozen=True, slots=True)
class Override:
    """One override of the operator. ``made_at`` is in epoch seconds."""

    made_at: float
    host: str
    override: OverrideName
    seconds: float  #: the new delay, or the rest of the hold
    reason: str


# ---- the clock ----


class _ServerNow(FunctionElement[float]):
    type = Double()
    inherit_cache = True


@compiles(_ServerNow, "postgresql")
def _postgresql_now(*_: object, **__: object) -> str:
    # One moment for the whole statement, from before it waits for a lock: ages count to it.
    return "extract(epoch FROM statement_timestamp())::double precision"


@compiles(_ServerNow, "sqlite")
def _sqlite_now(*_: object, **__: object) -> str:
    return "NULL"


#: The present, in a statement that gets the parameters of `clock_of`.
NOW: Final[ColumnElement[float]] = func.coalesce(bindparam("now", type_=Double), _ServerNow())


def clock_of(connection: Connection) -> dict[str, float | None]:
    """Return the parameter of `NOW`.

    It is None on PostgreSQL, whose own clock counts. On SQLite it is the clock of the machine. The
    execution option ``clock``, a function that returns epoch seconds, replaces both.
    """
    clock = connection.get_execution_options().get("clock")
    if clock is None and connection.dialect.name == "sqlite":
        clock = time.time
    return {"now": None if clock is None else clock()}


# ---- the statements ----

_TIMES: Final = tuple(hosts.c[field.name] for field in fields(HostTimes))
_HOST: Final = hosts.c.host == bindparam("key")
_OURS: Final = and_(_HOST, hosts.c.owner == bindparam("worker"))
_ENDED: Final = func.coalesce(hosts.c.request_ended_at, 0.0)
#: When the last exchange ended; NULL if there was none.
_LAST_END: Final = case(
    (hosts.c.in_flight_until > _ENDED, hosts.c.in_flight_until), else_=hosts.c.request_ended_at
)


#: Whether a worker lives. A much later ``until`` is from before a clock was set back.
_LIVES: Final = and_(workers.c.expires_at > NOW, workers.c.expires_at <= NOW + 2 * WORKER_SECONDS)


def _number(name: str) -> ColumnElement[float]:
    return bindparam(name, type_=Double)


def _or_longer(column: ColumnElement[float], value: ColumnElement[float]) -> ColumnElement[float]:
    return case((value > column, value), else_=column)


def _take() -> Update:
    until = _number("may_take_over_until")  # long before that, a clock was set back without a beat
    may_decide = and_(until >= NOW, until <= NOW + WORKER_SECONDS)
    of_another = exists().where(workers.c.id == hosts.c.owner, or_(_LIVES, ~may_decide))
    is_free = or_(hosts.c.owner == "", hosts.c.owner == bindparam("worker"), ~of_another)
    is_deferred = hosts.c.deferred_at >= _number("started_at")
    return (
        update(hosts)
        .where(_HOST, hosts.c.in_flight_until <= NOW, ~is_deferred, is_free)
        .values(owner=bindparam("worker"), request_ended_at=_LAST_END, in_flight_until=0.0)
    )


def _begin() -> Update:
    end, most = _LAST_END, _number("most")
    delays = and_(end + hosts.c.delay <= NOW, end + _number("asked_delay") <= NOW)
    is_spaced = and_(or_(delays, end + most <= NOW), end + hosts.c.operator_delay <= NOW)
    is_released = or_(hosts.c.hold_until <= NOW, hosts.c.hold_since + most <= NOW)
    return (
        update(hosts)
        .where(
            _OURS, hosts.c.in_flight_until <= NOW, or_(_LAST_END.is_(None), is_spaced), is_released
        )
        .values(request_ended_at=_LAST_END, in_flight_until=NOW + _number("allowed"))
    )


def _held(since: ColumnElement[float]) -> dict[str, ColumnElement[Any]]:
    """Return the columns that a hold of some seconds changes; a longer one stays."""
    until = since + _number("hold")
    is_longer = and_(_number("hold") > 0.0, until > hosts.c.hold_until)
    given = {
        "hold_since": since,
        "hold_until": until,
        "hold_by": bindparam("by", type_=String),
        "hold_status": bindparam("status", type_=Integer),
    }
    return {name: case((is_longer, new), else_=hosts.c[name]) for name, new in given.items()}


def _end() -> Update:
    ended, delay = NOW - _number("age"), _number("new_delay")
    # One that lost the host may have written a longer delay than was known when this one began.
    is_known = or_(hosts.c.delay <= _number("known_delay"), hosts.c.delay <= delay)
    counts = ("refusals", "server_errors", "unreachable")
    return (
        update(hosts)
        .where(_OURS)
        .values(
            in_flight_until=0.0,
            request_ended_at=ended,
            delay=case((is_known, delay), else_=hosts.c.delay),
            **{name: bindparam(f"new_{name}") for name in counts},
            **_held(ended),
        )
    )


def _lost() -> Update:
    ended = NOW - _number("age")
    delay = _or_longer(hosts.c.delay, _number("new_delay"))
    is_later = or_(hosts.c.request_ended_at.is_(None), hosts.c.request_ended_at < ended)
    last = case((is_later, ended), else_=hosts.c.request_ended_at)
    return update(hosts).where(_HOST).values(request_ended_at=last, delay=delay, **_held(ended))


_TAKE: Final = _take().returning(*_TIMES, NOW)
_BEGIN: Final = _begin().returning(*_TIMES, NOW)
_END: Final = _end()
_LOST: Final = _lost()
_WITHDRAW: Final = update(hosts).where(_OURS).values(in_flight_until=0.0)
_LET_GO: Final = update(hosts).where(_OURS).values(owner="")
_DEFER: Final = update(hosts).where(_OURS).values(owner="", deferred_at=NOW)
_CAUTION: Final = (
    update(hosts)
    .where(_HOST)
    .values(delay=_or_longer(hosts.c.delay, _number("new_delay")), **_held(NOW))
)
_PROVE: Final = select(hosts.c.host).where(_OURS).with_for_update()
_OWNS: Final = (
    select(hosts.c.host).join(workers, workers.c.id == hosts.c.owner).where(_OURS, _LIVES)
)
_ROWS: Final = select(*_TIMES, NOW, hosts.c.host)
_FIND: Final = _ROWS.where(_HOST)
_LOCK: Final = _FIND.with_for_update()
_CORRECTED: Final = (
    "in_flight_until",
    "request_ended_at",
    "hold_since",
    "hold_until",
    "deferred_at",
)
_CORRECT: Final = (
    update(hosts).where(_HOST).values({name: _number(f"right_{name}") for name in _CORRECTED})
)
_FORGET_WORKERS: Final = delete(workers).where(workers.c.expires_at < NOW - 86_400.0)
_OTHERS: Final = select(NOW, func.count(workers.c.id)).where(
    workers.c.id != bindparam("worker"), workers.c.expires_at > NOW
)
_OF_OTHERS: Final = (
    select(hosts.c.host, workers.c.expires_at, workers.c.sources)
    .join(workers, workers.c.id == hosts.c.owner)
    .where(workers.c.id != bindparam("worker"))
)
_SET_DELAY: Final = (
    update(hosts)
    .where(_HOST, hosts.c.operator_delay != _number("seconds"))
    .values(operator_delay=_number("seconds"))
)
_RELEASE: Final = update(hosts).where(_HOST).values(hold_until=0.0, hold_by="", hold_status=0)


@cache
def _dialect(name: str) -> Any:  # noqa: ANN401 - a module of SQLAlchemy
    # Only the one in use is imported: PostgreSQL's takes as long as some commands do.
    return import_module(f"sqlalchemy.dialects.{name}")


@cache
def _new_host(dialect: str) -> ReturningInsert[Any]:
    made = _dialect(dialect).insert(hosts)
    given = made.values(host=bindparam("key"), owner=bindparam("worker"))
    return given.on_conflict_do_nothing().returning(*_TIMES, NOW)  # type: ignore[no-any-return]


@cache
def _upsert_worker(dialect: str) -> Any:  # noqa: ANN401 - an Insert of the dialect
    made = _dialect(dialect).insert(workers).values(expires_at=NOW + WORKER_SECONDS)
    changes = {"run": made.excluded.run, "expires_at": made.excluded.expires_at}
    return made.on_conflict_do_update(index_elements=["id"], set_=changes)


# ---- workers ----


def beat(connection: Connection, worker: Worker) -> Beat:
    """Say that a worker lives; it owns its hosts for 45 s more.

    Workers that have not beaten for a day are forgotten.
    """
    clock = clock_of(connection)
    connection.execute(_FORGET_WORKERS, clock)
    connection.execute(_upsert_worker(connection.dialect.name), worker._asdict() | clock)
    return Beat(*connection.execute(_OTHERS, {"worker": worker.id, **clock}).one())


def leave(connection: Connection, worker: Worker) -> None:
    """End a worker: all hosts that it owns are free."""
    connection.execute(delete(workers).where(workers.c.id == worker.id))


def take(
    connection: Connection, host: str, worker: Worker, may_take_over_until: float = 0.0
) -> HostSnapshot | None:
    """Own a host, and return its row; None if another worker owns it or has deferred it.

    ``may_take_over_until`` is that of the process's `TakeoverGuard`.
    """
    given = {"key": host, "worker": worker.id, **clock_of(connection)}
    decided = {"started_at": worker.started_at, "may_take_over_until": may_take_over_until}
    row = connection.execute(_TAKE, given | decided).one_or_none()
    if row is not None:
        return _corrected(connection, host, _snapshot(row))
    row = connection.execute(_FIND, given).one_or_none()
    if row is not None:
        _corrected(connection, host, _snapshot(row))
        return None
    row = connection.execute(_new_host(connection.dialect.name), given).one_or_none()
    return None if row is None else _snapshot(row)


def begin(
    connection: Connection, host: str, worker: Worker, ask: Ask
) -> Begun | HostSnapshot | None:
    """Let the owner of a host send a request: return `Begun` if it may.

    A `HostSnapshot` has the time to wait; None means that the host was lost. ``timeout`` counts as
    `MAX_EXCHANGE_SECONDS` at most.
    """
    allowed = min(ask.timeout + MARGIN, MAX_EXCHANGE_SECONDS)
    given = {"key": host, "worker": worker.id, "asked_delay": ask.delay, "most": ask.most}
    given |= {"allowed": allowed, **clock_of(connection)}
    row = connection.execute(_BEGIN, given).one_or_none()
    if row is not None:
        times, now, _ = _snapshot(row)
        return Begun(times, now, allowed)
    found = _corrected(connection, host, find(connection, host))
    return found if found.times.owner == worker.id else None


def end(
    connection: Connection,
    host: str,
    worker: Worker,
    known: HostTimes,
    times: HostTimes,
    age: float,
) -> bool:
    """End an exchange; return False if the host was lost, and nothing but caution was written.

    ``known`` are the times that its `begin` returned, ``times`` those after it, ``age`` the seconds
    since it ended.
    """
    given = {
        "key": host,
        "worker": worker.id,
        "age": age,
        "known_delay": known.delay,
        "new_delay": times.delay,
        "new_refusals": times.refusals,
        "new_server_errors": times.server_errors,
        "new_unreachable": times.unreachable,
        **_hold(times.last_hold),
        **clock_of(connection),
    }
    is_ours = connection.execute(_END, given).rowcount == 1
    if not is_ours:
        connection.execute(_LOST, given)
    return is_ours


def withdraw(connection: Connection, host: str, worker: Worker) -> bool:
    """Take back a request that was never sent; return False if the host was lost."""
    return connection.execute(_WITHDRAW, {"key": host, "worker": worker.id}).rowcount == 1


def let_go(connection: Connection, host: str, worker: Worker, *, deferred: bool = False) -> bool:
    """Let a host go; return False if it was lost. ``deferred`` gives it up for the run."""
    given = {"key": host, "worker": worker.id, **clock_of(connection)}
    return connection.execute(_DEFER if deferred else _LET_GO, given).rowcount == 1


def prove(connection: Connection, host: str, worker: Worker) -> bool:
    """Return whether a worker owns a host, which stays so until the transaction ends.

    For the writes of a visit without an `end` or a `let_go`.
    """
    return connection.execute(_PROVE, {"key": host, "worker": worker.id}).first() is not None


def owns(connection: Connection, host: str, worker: Worker) -> bool:
    """Return whether a worker owns a host and lives.

    For a redirect to another host, in the transaction of its `begin` there. It is a plain read:
    two rows that are both locked would block two workers.
    """
    given = {"key": host, "worker": worker.id, **clock_of(connection)}
    return connection.execute(_OWNS, given).first() is not None


def caution(connection: Connection, host: str, *, delay: float = 0.0, hold: Hold = NO_HOLD) -> None:
    """Give a host a delay and a hold, from now; longer ones stay, whoever owns the host."""
    given = {"key": host, "new_delay": delay, **_hold(hold), **clock_of(connection)}
    connection.execute(_CAUTION, given)


def _hold(hold: Hold) -> dict[str, Any]:
    return {"hold": hold.seconds, "by": hold.by, "status": hold.status}


def _snapshot(row: Any) -> HostSnapshot:  # noqa: ANN401 - a row of _TIMES and NOW
    count = len(_TIMES)
    return HostSnapshot(HostTimes(*row[:count]), row[count])


def _corrected(connection: Connection, host: str, found: HostSnapshot) -> HostSnapshot:
    """Write and return a row whose clock was set back, as of now."""
    if not found.times.ahead_of(found.now):
        return found
    row = connection.execute(_LOCK, {"key": host, **clock_of(connection)}).one()
    times, now, _ = _snapshot(row)
    right = times.with_clock_at(now)
    given = {f"right_{name}": getattr(right, name) for name in _CORRECTED}
    connection.execute(_CORRECT, {"key": host, **given})
    return HostSnapshot(right, now, times.ahead_of(now))


# ---- the operator ----


def set_operator_delay(connection: Connection, host: str, seconds: float, reason: str) -> float:
    """Give a host a delay of at least ``seconds`` permanently; 0 ends that (decision 31).

    The override is recorded with its reason, if it changes anything. Return the delay in force.
    """
    given = {"key": host, "worker": "", "seconds": seconds, **clock_of(connection)}
    if seconds:
        connection.execute(_new_host(connection.dialect.name), given)
    is_new = connection.execute(_SET_DELAY, given).rowcount == 1
    found = find(connection, host)
    if is_new:
        _record(connection, Override(found.now, host, "delay", seconds, reason))
    return found.times.delay_with()


def release_hold(connection: Connection, host: str, reason: str) -> float:
    """End the hold of a host, and record the override with its reason (decision 31).

    Return its remaining seconds; 0 if there was none, and nothing is recorded.
    """
    row = connection.execute(_LOCK, {"key": host, **clock_of(connection)}).one_or_none()
    left = 0.0 if row is None else _snapshot(row).hold
    if left:
        connection.execute(_RELEASE, {"key": host})
        _record(connection, Override(_snapshot(row).now, host, "release", left, reason))
    return left


def _record(connection: Connection, override: Override) -> None:
    names = (field.name for field in fields(Override))
    connection.execute(insert(overrides), dict(zip(names, astuple(override), strict=True)))


# ---- crawls and commands ----

_WAITS: Final = or_(
    hosts.c.hold_until > NOW,
    hosts.c.in_flight_until > NOW,
    _LAST_END + hosts.c.delay > NOW,
    _LAST_END + hosts.c.operator_delay > NOW,
)
_UNIT: Final = select(choices.c.value).where(choices.c.name == "pace_by")


def old_rows(now: float) -> OldRows:
    """Return the rows that nothing concerned in 90 days: delay, hold and counts are over by then.

    An operator's delay and an owner that lives keep a row. A Crawl-delay that is known is not kept
    longer: the next robots.txt of the host has it again.
    """
    is_old = and_(
        func.coalesce(_LAST_END + hosts.c.delay, 0.0) < now - KEEP_SECONDS,
        hosts.c.hold_until < now - KEEP_SECONDS,
        hosts.c.operator_delay == 0.0,
        hosts.c.owner.not_in(select(workers.c.id)),
    )
    return OldRows(hosts, is_old, hosts.c.request_ended_at)


def find(connection: Connection, host: str) -> HostSnapshot:
    """Return the row of a host; one that was never requested has empty times."""
    clock = clock_of(connection)
    row = connection.execute(_FIND, {"key": host, **clock}).one_or_none()
    if row is not None:
        return _snapshot(row)
    return HostSnapshot(HostTimes(), connection.execute(select(NOW), clock).scalar_one())


def _found(connection: Connection, which: ColumnElement[bool]) -> dict[str, HostSnapshot]:
    """Return rows by host, corrected as of now, but not written."""
    found = {}
    for row in connection.execute(_ROWS.where(which), clock_of(connection)):
        times, now, _ = _snapshot(row)
        found[row.host] = HostSnapshot(times.with_clock_at(now), now, times.ahead_of(now))
    return found


def _waiting(connection: Connection) -> dict[str, HostSnapshot]:
    found = _found(connection, _WAITS)
    return {host: snapshot for host, snapshot in found.items() if snapshot.wait > 0}


class HostStore(Store):
    """Reads hosts and workers, and writes the operator's changes of a host."""

    def find(self, host: str) -> HostSnapshot:
        """Return the row of a host, now; one that was never requested has empty times."""
        return self._database.read(lambda connection: find(connection, host))

    def waiting(self) -> dict[str, HostSnapshot]:
        """Return the hosts that may not be requested now."""
        return self._database.read(_waiting)

    def delays(self, above: float) -> dict[str, float]:
        """Return the delay, in seconds, of each host where it is more than ``above``."""
        longer = or_(hosts.c.delay > above, hosts.c.operator_delay > above)
        found = select(hosts.c.host, hosts.c.delay, hosts.c.operator_delay).where(longer)
        return {host: max(both) for host, *both in self._all(found)}

    def unreachable(self) -> frozenset[str]:
        """Return the hosts that were unreachable when they were requested last (decision 28)."""
        found = select(hosts.c.host).where(hosts.c.unreachable > 0)
        return frozenset(host for (host,) in self._all(found))

    def of_others(self, worker: Worker) -> dict[str, OwnedByOther]:
        """Return the hosts that other workers own."""
        found = self._all(_OF_OTHERS, worker=worker.id)
        return {
            host: OwnedByOther(until, visited == worker.sources) for host, until, visited in found
        }

    def release(self, host: str, reason: str) -> float:
        """End the hold of a host; see `release_hold`."""
        return self._database.write(lambda connection: release_hold(connection, host, reason))

    def delay(self, host: str, seconds: float, reason: str) -> float:
        """Give a host a delay; see `set_operator_delay`."""
        return self._database.write(
            lambda connection: set_operator_delay(connection, host, seconds, reason)
        )

    def pace_by(self, unit: str) -> None:
        """Pace by "host" or "domain" from now on.

        Raises StateError while hosts wait that were paced by another unit: crawls that differ in
        it do not see each other's requests.
        """
        if self._database.read(lambda connection: connection.scalar(_UNIT)) != unit:
            self._database.write(lambda connection: self._pace_by(connection, unit))

    def _pace_by(self, connection: Connection, unit: str) -> None:
        found = connection.scalar(_UNIT)
        if found not in (None, unit):
            slowed = select(hosts.c.host).where(hosts.c.operator_delay > 0).order_by(hosts.c.host)
            if delayed := connection.scalars(slowed).all():
                raise StateError(
                    f"{self._database} is paced by {found}, and {delayed[0]} has a delay of the "
                    f"operator's: a crawl with WALSH_PACE_BY = {unit!r} would not see that; end it "
                    f"with `{program_name()} hosts delay {delayed[0]} 0`, or set "
                    f"WALSH_PACE_BY = {found!r}"
                )
            if held := _waiting(connection):
                last = max(each.times.ready_at() for each in held.values())
                raise StateError(
                    f"{self._database} is paced by {found}, and {len(held)} of its hosts wait, "
                    f"the last until {format_moment(last)}: a crawl with WALSH_PACE_BY = {unit!r} "
                    f"would not see that; wait, or set WALSH_PACE_BY = {found!r}"
                )
        upsert(connection, choices, {"name": "pace_by", "value": unit})
