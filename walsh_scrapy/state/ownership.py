"""Ownership: workers that share a state take turns at a host, and only its owner requests it.

A worker is a crawl that shares the state with other crawls. It owns a host before it reads anything
about the host, and until the results of its visits are written. One row of the table `hosts` says
who owns the host, how long the request in flight may last, and how long the host must be left
alone: for its *delay* after each exchange (a request and its answer), and during a *hold*, if the
host asked for a pause or was unreachable. A host is in one of three states:

=========== ======================================================================================
state       its row
=========== ======================================================================================
free        ``in_flight_until`` has passed, and ``owner`` is empty, unknown, or an expired worker
owned       ``in_flight_until`` has passed, and ``owner`` is a worker that may be alive
in flight   ``in_flight_until`` is in the future, whatever became of the owner
=========== ======================================================================================

Each transition is a function of this module, and one statement about the row decides it:

============ =================== ============================== ==================================
function     transition          if                             writes
============ =================== ============================== ==================================
`take`       free -> owned       no worker deferred the host    ``owner``
                                 since this run began
`begin`      owned -> in flight  this worker is the owner;      ``in_flight_until``
                                 delay and hold are over
`end`        in flight -> owned  this worker is the owner       ``request_ended_at``, ``delay``,
                                                                counts, the hold of this answer
`end`        none                another worker took the host   ``request_ended_at``, ``delay``
                                                                and hold, only if they grow
`withdraw`   in flight -> owned  nothing was sent               ``in_flight_until = 0``
`let_go`     owned -> free       nothing is left to do there    no ``owner``; ``deferred_at`` if
                                                                the host is given up for the run
`leave`      all owned -> free   the run ends                   no row in `workers`
`beat`       none                every 5 s                      ``workers.expires_at``, 45 s from
                                                                now
`take_back`  none                it was the answer of a proxy   the hold and counts before it
                                 that reaches no host
(time)       in flight -> owned  ``in_flight_until`` passes     nothing
(time)       owned -> free       the owner has not beaten for   nothing
                                 45 s
============ =================== ============================== ==================================

Why this is safe: each statement repeats its condition in its WHERE. So if two workers try at once,
the lock of the row lets one go first, and the other finds that the condition no longer holds. But
nobody can know that a worker is dead: it may be frozen, or its network may be down. If a living
worker loses its host in this way, its request is over before the next one begins: the old owner
sends nothing after ``in_flight_until``, which it checks directly before the first byte, and ends
the exchange by then; the new owner waits for that moment, and for the delay and the hold in the
row. Whatever the old owner still writes can only make these longer. So a wrong guess about who is
alive costs work. It never causes two requests at once, nor a delay that is too short.

After a start or an outage every other worker looks dead. Therefore a process may take a host from
an expired owner only while its `TakeoverGuard` allows it.

If its connection was lost, a transaction is run again, although its first run may have been
committed. All statements here are safe to repeat, except `begin`: before it, the second run must
call `withdraw`. The caller composes transactions: first a statement that proves ownership,
then other writes. If that statement shows that the host was lost, the caller must forget what it
knows about the host.

All times are read from the database's clock, in the statement. A time in the past is given as an
age in seconds.
"""

from __future__ import annotations

import math
from dataclasses import fields
from functools import cache
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
    or_,
    select,
    update,
)

from walsh_scrapy.policy.connectivity import GATEWAY_STATUSES
from walsh_scrapy.policy.pacing import (
    MARGIN,
    MAX_EXCHANGE_SECONDS,
    NO_HOLD,
    WORKER_SECONDS,
    Hold,
    HostTimes,
)
from walsh_scrapy.state.database import NOW, clock_of
from walsh_scrapy.state.engine import StateError
from walsh_scrapy.state.records import execute, insert_into
from walsh_scrapy.state.tables import VERSION, hosts, schema_version, workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection
    from sqlalchemy.dialects.postgresql import Insert
    from sqlalchemy.sql.dml import ReturningInsert, Update

#: The reason why a host is not ready: it is on hold, a request is in flight, or its delay goes on.
WaitReason: TypeAlias = Literal["hold", "in flight", "delay"]
#: "ready": the worker may go on. "wait": another worker owns the host, or see `WaitReason`.
#: "deferred": some worker gave the host up since this run began. "lost": another one took the host.
PermissionStatus: TypeAlias = Literal["ready", "wait", "deferred", "lost"]


class Worker(NamedTuple):
    """A crawl process that shares the state."""

    id: str
    started_at: float  #: the start of its run, in epoch seconds by the database's clock
    run: int | None = None  #: its number in the table `runs`
    sources: str = ""  #: names what it visits: workers with the same text visit the same sources


class OtherOwner(NamedTuple):
    """Another worker that owns a host."""

    expires_at: float  #: it lives until then, unless it beats; by the database's clock
    has_same_sources: bool


class HostSnapshot(NamedTuple):
    """The row of a host at one moment."""

    times: HostTimes
    now: float  #: epoch seconds, by the database's clock
    #: Seconds that the row was in the future, because a clock was set back; 0 if it was not.
    #: ``times`` are corrected, and the caller logs it.
    ahead: float = 0.0

    @property
    def wait(self) -> float:
        """Seconds until the host may be requested; 0 or less if it may be requested now."""
        return self.times.ready_at() - self.now

    @property
    def hold(self) -> float:
        """Seconds until the hold of the host ends; 0 if it is not on hold."""
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


class Permission(NamedTuple):
    """The answer to `take` and `begin`, and the row of the host, which explains it."""

    status: PermissionStatus
    host: HostSnapshot


class RequestLimits(NamedTuple):
    """The delay before a request, and its limits, in seconds."""

    delay: float  #: since the last exchange
    timeout: float
    max_wait: float = math.inf  #: delay and hold end after it at the latest; see `longest_wait`

    @property
    def allowed(self) -> float:
        """The time for the whole exchange, from a moment before the transaction of its `begin`."""
        return min(self.timeout + MARGIN, MAX_EXCHANGE_SECONDS)


class Beat(NamedTuple):
    """The answer to a beat."""

    now: float  #: epoch seconds, by the database's clock
    other_workers: int  #: workers that live, without this one


# ---- the statements ----

_TIMES: Final = tuple(hosts.c[field.name] for field in fields(HostTimes))
#: The condition of statements about one host, the parameter ``key``.
IS_HOST: Final = hosts.c.host == bindparam("key")
_IS_OWNED: Final = and_(IS_HOST, hosts.c.owner == bindparam("worker"))
_RECORDED_END: Final = func.coalesce(hosts.c.request_ended_at, 0.0)
#: When the last exchange ended, or ends at the latest; NULL if there was none.
LAST_END: Final = case(
    (hosts.c.in_flight_until > _RECORDED_END, hosts.c.in_flight_until),
    else_=hosts.c.request_ended_at,
)
#: Whether a worker lives. A much later time was written before a clock was set back.
_WORKER_LIVES: Final = and_(
    workers.c.expires_at > NOW, workers.c.expires_at <= NOW + 2 * WORKER_SECONDS
)


def number_param(name: str) -> ColumnElement[float]:
    """Return a parameter of a statement that is a number."""
    return bindparam(name, type_=Double)


def _larger(column: ColumnElement[float], value: ColumnElement[float]) -> ColumnElement[float]:
    return case((value > column, value), else_=column)


def _take_statement() -> Update:
    may_take_over_until = number_param("may_take_over_until")
    # A permission that lasts longer than a worker was given before a clock was set back.
    may_decide = and_(may_take_over_until >= NOW, may_take_over_until <= NOW + WORKER_SECONDS)
    may_have_owner = exists().where(workers.c.id == hosts.c.owner, or_(_WORKER_LIVES, ~may_decide))
    is_free = or_(hosts.c.owner == "", hosts.c.owner == bindparam("worker"), ~may_have_owner)
    is_deferred = hosts.c.deferred_at >= number_param("started_at")
    return (
        update(hosts)
        .where(IS_HOST, hosts.c.in_flight_until <= NOW, ~is_deferred, is_free)
        .values(owner=bindparam("worker"), request_ended_at=LAST_END, in_flight_until=0.0)
    )


def _begin_statement() -> Update:
    max_wait = number_param("max_wait")
    delay_is_over = and_(
        LAST_END + hosts.c.delay <= NOW, LAST_END + number_param("asked_delay") <= NOW
    )
    is_spaced = and_(
        or_(delay_is_over, LAST_END + max_wait <= NOW), LAST_END + hosts.c.operator_delay <= NOW
    )
    hold_is_over = or_(hosts.c.hold_until <= NOW, hosts.c.hold_since + max_wait <= NOW)
    return (
        update(hosts)
        .where(
            _IS_OWNED,
            hosts.c.in_flight_until <= NOW,
            or_(LAST_END.is_(None), is_spaced),
            hold_is_over,
        )
        .values(request_ended_at=LAST_END, in_flight_until=NOW + number_param("allowed"))
    )


def _hold_columns(since: ColumnElement[float]) -> dict[str, ColumnElement[Any]]:
    """Return the columns that a hold changes; a longer hold stays."""
    until = since + number_param("hold")
    is_longer = and_(number_param("hold") > 0.0, until > hosts.c.hold_until)
    columns = {
        "hold_since": since,
        "hold_until": until,
        "hold_by": bindparam("by", type_=String),
        "hold_status": bindparam("status", type_=Integer),
    }
    return {name: case((is_longer, new), else_=hosts.c[name]) for name, new in columns.items()}


def _end_statement() -> Update:
    ended_at = NOW - number_param("age")
    delay = number_param("new_delay")
    # A worker that lost the host may have written a longer delay since this exchange began.
    is_delay_known = or_(hosts.c.delay <= number_param("known_delay"), hosts.c.delay <= delay)
    counts = ("refusals", "server_errors", "unreachable")
    return (
        update(hosts)
        .where(_IS_OWNED)
        .values(
            in_flight_until=0.0,
            request_ended_at=ended_at,
            delay=case((is_delay_known, delay), else_=hosts.c.delay),
            **{name: bindparam(f"new_{name}") for name in counts},
            **_hold_columns(ended_at),
        )
    )


def _end_lost_statement() -> Update:
    ended_at = NOW - number_param("age")
    delay = _larger(hosts.c.delay, number_param("new_delay"))
    is_later = or_(hosts.c.request_ended_at.is_(None), hosts.c.request_ended_at < ended_at)
    last = case((is_later, ended_at), else_=hosts.c.request_ended_at)
    return (
        update(hosts)
        .where(IS_HOST)
        .values(request_ended_at=last, delay=delay, **_hold_columns(ended_at))
    )


#: Another process may upgrade the state at any time; see `_check_schema`.
_SCHEMA: Final = select(func.max(schema_version.c.version)).scalar_subquery()
_TAKE_SQL: Final = _take_statement().returning(*_TIMES, NOW, _SCHEMA)
_BEGIN_SQL: Final = _begin_statement().returning(*_TIMES, NOW, _SCHEMA)
_END_SQL: Final = _end_statement()
_END_LOST_SQL: Final = _end_lost_statement()
_WITHDRAW_SQL: Final = update(hosts).where(_IS_OWNED).values(in_flight_until=0.0)
_LET_GO_SQL: Final = update(hosts).where(_IS_OWNED).values(owner="")
_DEFER_SQL: Final = update(hosts).where(_IS_OWNED).values(owner="", deferred_at=NOW)
_LENGTHEN_SQL: Final = (
    update(hosts)
    .where(IS_HOST)
    .values(delay=_larger(hosts.c.delay, number_param("new_delay")), **_hold_columns(NOW))
)
_LOCK_OWNED_SQL: Final = select(hosts.c.host).where(_IS_OWNED).with_for_update()
_OWNS_SQL: Final = (
    select(hosts.c.host)
    .join(workers, workers.c.id == hosts.c.owner)
    .where(_IS_OWNED, _WORKER_LIVES)
)
#: All hosts, with their times and the present.
HOSTS_SQL: Final = select(*_TIMES, NOW, hosts.c.host)
_FIND_SQL: Final = HOSTS_SQL.where(IS_HOST)
_OWNED_BY_OTHERS_SQL: Final = (
    select(hosts.c.host, workers.c.expires_at, workers.c.sources)
    .join(workers, workers.c.id == hosts.c.owner)
    .where(workers.c.id != bindparam("worker"))
)
_LOCK_SQL: Final = _FIND_SQL.with_for_update()
_NOW_SQL: Final = select(NOW)
_CORRECTED: Final = (
    "in_flight_until",
    "request_ended_at",
    "hold_since",
    "hold_until",
    "deferred_at",
)
_CORRECT_SQL: Final = (
    update(hosts)
    .where(IS_HOST)
    .values({name: number_param(f"right_{name}") for name in _CORRECTED})
)
#: What a refusal changes in the row of a host.
_REFUSAL_COLUMNS: Final = (
    *("hold_since", "hold_until", "hold_by", "hold_status"),
    *("refusals", "server_errors", "delay"),
)
_TAKE_BACK_SQL: Final = (
    update(hosts)
    .where(IS_HOST, hosts.c.hold_by == "backoff", hosts.c.hold_status.in_(GATEWAY_STATUSES))
    .values({name: bindparam(f"old_{name}") for name in _REFUSAL_COLUMNS})
)
_FORGET_WORKERS_SQL: Final = delete(workers).where(workers.c.expires_at < NOW - 86_400.0)
_OTHER_WORKERS_SQL: Final = select(NOW, func.count(workers.c.id)).where(
    workers.c.id != bindparam("worker"), workers.c.expires_at > NOW
)


@cache
def insert_host(dialect: str) -> ReturningInsert[Any]:
    """Return the INSERT of a host, if it has no row yet; it returns the new row."""
    row = insert_into(dialect, hosts).values(host=bindparam("key"), owner=bindparam("worker"))
    return row.on_conflict_do_nothing().returning(*_TIMES, NOW, _SCHEMA)


@cache
def _upsert_worker(dialect: str) -> Insert:
    insert = insert_into(dialect, workers).values(expires_at=NOW + WORKER_SECONDS)
    changes = {"run": insert.excluded.run, "expires_at": insert.excluded.expires_at}
    return insert.on_conflict_do_update(index_elements=["id"], set_=changes)


# ---- workers ----


def beat(connection: Connection, worker: Worker) -> Beat:
    """Extend the life of a worker: it owns its hosts for 45 s more, however many there are.

    Workers that have not beaten for a day are forgotten.
    """
    clock = clock_of(connection)
    execute(connection, _FORGET_WORKERS_SQL, clock)
    execute(connection, _upsert_worker(connection.dialect.name), worker._asdict() | clock)
    return Beat(*execute(connection, _OTHER_WORKERS_SQL, {"worker": worker.id, **clock}).one())


def leave(connection: Connection, worker: Worker) -> None:
    """End a worker: all hosts that it owns are free."""
    connection.execute(delete(workers).where(workers.c.id == worker.id))


# ---- transitions of a host ----


def take(
    connection: Connection, host: str, worker: Worker, may_take_over_until: float = 0.0
) -> Permission:
    """Own a host: "ready" if the worker owns it now, else "wait" or "deferred".

    Until ``may_take_over_until``, by the database's clock, the process may declare owners dead; see
    `TakeoverGuard`.
    """
    params = {"key": host, "worker": worker.id, **clock_of(connection)}
    limits = {"started_at": worker.started_at, "may_take_over_until": may_take_over_until}
    row = _check_schema(execute(connection, _TAKE_SQL, params | limits).first())
    if row is None and execute(connection, _FIND_SQL, params).first() is None:
        new = execute(connection, insert_host(connection.dialect.name), params)
        row = _check_schema(new.first())
    if row is not None:
        return Permission("ready", _correct_clock(connection, host, snapshot_of(row)))
    snapshot = _correct_clock(connection, host, find(connection, host))
    is_deferred = snapshot.times.deferred_at >= worker.started_at
    return Permission("deferred" if is_deferred else "wait", snapshot)


def begin(connection: Connection, host: str, worker: Worker, limits: RequestLimits) -> Permission:
    """Let the owner of a host send a request: "ready" if it may, else "wait" or "lost"."""
    params = {
        "key": host,
        "worker": worker.id,
        "asked_delay": limits.delay,
        "max_wait": limits.max_wait,
        "allowed": limits.allowed,
        **clock_of(connection),
    }
    row = _check_schema(execute(connection, _BEGIN_SQL, params).first())
    if row is not None:
        return Permission("ready", snapshot_of(row))
    snapshot = _correct_clock(connection, host, find(connection, host))
    return Permission("wait" if snapshot.times.owner == worker.id else "lost", snapshot)


def end(
    connection: Connection,
    host: str,
    worker: Worker,
    begun_times: HostTimes,
    times: HostTimes,
    age: float,
) -> bool:
    """End an exchange that ended ``age`` seconds ago.

    Return False if the host was lost: then delay and hold have grown, and nothing else is written.
    ``begun_times`` are the times that `begin` returned, ``times`` the times after the exchange.
    """
    params = {
        "key": host,
        "worker": worker.id,
        "age": age,
        "known_delay": begun_times.delay,
        "new_delay": times.delay,
        "new_refusals": times.refusals,
        "new_server_errors": times.server_errors,
        "new_unreachable": times.unreachable,
        **_hold_params(times.last_hold),
        **clock_of(connection),
    }
    is_owner = execute(connection, _END_SQL, params).rowcount == 1
    if not is_owner:
        execute(connection, _END_LOST_SQL, params)
    return is_owner


def withdraw(connection: Connection, host: str, worker: Worker) -> bool:
    """Take back a request that was never sent; return False if the host was lost."""
    return execute(connection, _WITHDRAW_SQL, {"key": host, "worker": worker.id}).rowcount == 1


def let_go(connection: Connection, host: str, worker: Worker, *, deferred: bool = False) -> bool:
    """Let a host go; return False if it was lost. ``deferred`` gives the host up for the run."""
    params = {"key": host, "worker": worker.id, **clock_of(connection)}
    return execute(connection, _DEFER_SQL if deferred else _LET_GO_SQL, params).rowcount == 1


# ---- other statements about a host ----


def lock_if_owned(connection: Connection, host: str, worker: Worker) -> bool:
    """Return whether a worker owns a host; until the transaction ends nobody can take it.

    For transactions that write a visit without `end` or `let_go`.
    """
    params = {"key": host, "worker": worker.id}
    return execute(connection, _LOCK_OWNED_SQL, params).first() is not None


def owns(connection: Connection, host: str, worker: Worker) -> bool:
    """Return whether a worker owns a host and lives, without a lock.

    For the `begin` of a redirect to another host: if it locked both rows, two workers could wait
    for each other.
    """
    params = {"key": host, "worker": worker.id, **clock_of(connection)}
    return execute(connection, _OWNS_SQL, params).first() is not None


def lengthen_waits(
    connection: Connection, host: str, *, delay: float = 0.0, hold: Hold = NO_HOLD
) -> None:
    """Give a host a delay and a hold from now on, whoever owns it; longer ones stay."""
    params = {"key": host, "new_delay": delay, **_hold_params(hold), **clock_of(connection)}
    execute(connection, _LENGTHEN_SQL, params)


def take_back(connection: Connection, host: str, times: HostTimes) -> None:
    """Take back what a 502, 503 or 504 wrote about a host, whoever owns it.

    ``times`` are those before that answer. A hold for another reason stays.
    """
    params = {f"old_{name}": getattr(times, name) for name in _REFUSAL_COLUMNS}
    connection.execute(_TAKE_BACK_SQL, {"key": host, **params})


def owned_by_others(connection: Connection, worker: Worker) -> dict[str, OtherOwner]:
    """Return the hosts that other workers own."""
    return {
        host: OtherOwner(expires_at, visited == worker.sources)
        for host, expires_at, visited in execute(
            connection, _OWNED_BY_OTHERS_SQL, {"worker": worker.id}
        )
    }


def find(connection: Connection, host: str) -> HostSnapshot:
    """Return the row of a host; a host that was never requested has empty times."""
    clock = clock_of(connection)
    row = execute(connection, _FIND_SQL, {"key": host, **clock}).first()
    if row is not None:
        return snapshot_of(row)
    return HostSnapshot(HostTimes(), execute(connection, _NOW_SQL, clock).scalar())


def lock(connection: Connection, host: str) -> HostSnapshot | None:
    """Return the row of a host, which nobody can change until the transaction ends."""
    row = execute(connection, _LOCK_SQL, {"key": host, **clock_of(connection)}).first()
    return None if row is None else snapshot_of(row)


def snapshot_of(row: Any) -> HostSnapshot:  # noqa: ANN401 - a row of HOSTS_SQL
    """Return the snapshot of a row of `HOSTS_SQL`."""
    count = len(_TIMES)
    return HostSnapshot(HostTimes(*row[:count]), row[count])


def _check_schema(row: Sequence[Any] | None) -> Sequence[Any] | None:
    """Return a row of `take` or `begin`.

    Raises StateError if a newer version has upgraded the state since this process opened it.
    """
    if row is not None and row[-1] != VERSION:
        raise StateError(
            f"the state was upgraded to schema {row[-1]} by a newer version while this one, which "
            f"knows schema {VERSION}, was using it; use that version"
        )
    return row


def _hold_params(hold: Hold) -> dict[str, Any]:
    return {"hold": hold.seconds, "by": hold.by, "status": hold.status}


def _correct_clock(connection: Connection, host: str, snapshot: HostSnapshot) -> HostSnapshot:
    """Write and return a row without times in the future, which a clock that was set back left."""
    if not snapshot.times.ahead_of(snapshot.now):
        return snapshot
    row = execute(connection, _LOCK_SQL, {"key": host, **clock_of(connection)}).one()
    times, now, _ = snapshot_of(row)
    right = times.with_clock_at(now)
    params = {f"right_{name}": getattr(right, name) for name in _CORRECTED}
    execute(connection, _CORRECT_SQL, {"key": host, **params})
    return HostSnapshot(right, now, times.ahead_of(now))
