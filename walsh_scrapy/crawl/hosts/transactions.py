"""The transactions of the hosts that this crawl owns, as `Hosts` runs them.

What an exchange or a visit has shown is often written later, with the next transaction of its host.
So each write is an object with the values that it writes. A transaction may run again although it
was committed, if the answer to its COMMIT was lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from walsh_scrapy.exceptions import StillDue
from walsh_scrapy.state import ownership
from walsh_scrapy.state.ownership import Permission
from walsh_scrapy.state.requestlog import forget_begin, log_begin, log_end, log_no_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.policy.pacing import HostTimes
    from walsh_scrapy.policy.robots.copy import RobotsCopy
    from walsh_scrapy.state.documentstore import RobotsStore
    from walsh_scrapy.state.ownership import RequestLimits, Worker
    from walsh_scrapy.state.requestlog import LoggedBegin, RequestRecord

T = TypeVar("T")


class HostLost(StillDue):
    """Another worker has taken the host; its sources are still due."""


@dataclass(eq=False, slots=True)
class OwnedHost:
    """A host that this crawl owns, with its pending rows."""

    times: HostTimes  #: with the changes that are pending
    since: float  #: when it was taken, by the monotonic clock
    reasons: set[object] = field(default_factory=set)
    is_busy: bool = False  #: a request is in flight
    is_deferred: bool = False  #: given up for the run
    copies: dict[str, RobotsCopy | None] = field(default_factory=dict)  #: by origin, in the state
    end: ExchangeEnd | Withdrawal | None = None  #: the end of the last exchange, if it is pending
    pending: list[Callable[[Connection], object]] = field(default_factory=list)

    @property
    def can_release(self) -> bool:
        """Whether there is no reason to own it any longer."""
        return not self.reasons and not self.is_busy


class Take:
    """The transaction that takes a host and reads its rows."""

    def __init__(
        self,
        store: RobotsStore,
        host: str,
        worker: Worker,
        may_take_over_until: float,
        read: Callable[[Connection], object] | None,
    ) -> None:
        self._store = store
        self._host = host
        self._worker = worker
        self._may_take_over_until = may_take_over_until
        self._read = read
        self.copies: dict[str, RobotsCopy | None] = {}

    def __call__(self, connection: Connection) -> Permission:
        """Take the host, and read its copies of robots.txt if that is allowed."""
        permission = ownership.take(connection, self._host, self._worker, self._may_take_over_until)
        if permission.status == "ready":
            self.copies = {**self._store.of_host(connection, self._host)}
            if self._read is not None:
                self._read(connection)
        return permission


class Begin:
    """The transaction that begins an exchange with an owned host."""

    def __init__(
        self,
        context: Context,
        worker: Worker,
        host: str,
        owned: OwnedHost,
        visited_host: str | None,
        limits: RequestLimits,
        record: RequestRecord,
    ) -> None:
        self._context = context
        self._worker = worker
        self._host = host
        self._owned = owned
        self._visited_host = visited_host
        self._limits = limits
        self._record = record
        self._logged: list[LoggedBegin] = []  # one for each time that it has run

    def __call__(self, connection: Connection) -> Permission:
        """Write the row of a request, if it may be sent."""
        for earlier in self._logged:
            forget_begin(connection, earlier)
        owned = self._owned
        is_pending = owned.end is not None or owned.pending
        if is_pending and not _write_pending_rows(connection, self._host, owned, self._worker):
            return Permission("lost", ownership.find(connection, self._host))
        if self._logged:
            ownership.withdraw(connection, self._host, self._worker)
        self._check_visited_host(connection)
        permission = ownership.begin(connection, self._host, self._worker, self._limits)
        if permission.status == "ready":
            times, now, _ = permission.host
            is_first = owned.times.request_ended_at is None
            delay = 0.0 if is_first else times.delay_with(self._limits.delay)
            sent = replace(self._record, requested_at=now, delay=delay)
            self._logged.append(log_begin(connection, sent))
        return permission

    def _check_visited_host(self, connection: Connection) -> None:
        """Raise HostLost if the visit that led here has lost its own host."""
        host = self._visited_host
        if host not in (None, self._host) and not ownership.owns(connection, host, self._worker):
            raise HostLost(self._context.clock.now(), f"{host} was lost to another worker")

    @property
    def logged(self) -> LoggedBegin:
        """The row of the request in the log."""
        return self._logged[-1]


@dataclass(frozen=True, slots=True)
class ExchangeEnd:
    """The end of an exchange."""

    context: Context
    host: str
    worker: Worker
    times_before: HostTimes  #: the times of the host when the exchange began
    times: HostTimes  #: the times of the host after it
    ended: float  #: when it ended, by the clock that goes on while the machine sleeps
    record: RequestRecord
    logged: LoggedBegin

    def __call__(self, connection: Connection) -> bool:
        """Write the end; return False if the host was lost: then waits only become longer."""
        age = self.context.moment() - self.ended
        is_owned = ownership.end(
            connection, self.host, self.worker, self.times_before, self.times, age
        )
        log_end(connection, self.record, self.logged)
        return is_owned


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The end of an exchange in which nothing was sent."""

    host: str
    worker: Worker
    logged: LoggedBegin

    def __call__(self, connection: Connection) -> bool:
        """Remove the request from the log; return False if the host was lost."""
        forget_begin(connection, self.logged)
        return ownership.withdraw(connection, self.host, self.worker)


@dataclass(eq=False, slots=True)
class DoubtfulAnswers:
    """The answers for a host that a proxy may have made: 502, 503 and 504."""

    times: HostTimes  #: the times of the host before them
    names: set[str] = field(default_factory=set)  #: the host, or those of the domain
    logged: list[LoggedBegin] = field(default_factory=list)
    #: What takes back the other rows that were written because of them.
    undo: list[Callable[[Connection], object]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TakeBack:
    """The transaction that takes such answers back: the proxy reaches no host."""

    host: str
    answers: DoubtfulAnswers
    error: str

    def __call__(self, connection: Connection) -> None:
        """Write everything as it was before, and into the log that no answer came."""
        ownership.take_back(connection, self.host, self.answers.times)
        for logged in self.answers.logged:
            log_no_answer(connection, logged, self.error)
        for undo in self.answers.undo:
            undo(connection)


@dataclass(frozen=True, slots=True)
class LongerDelay:
    """A longer delay of a host."""

    host: str
    seconds: float

    def __call__(self, connection: Connection) -> None:
        """Write the delay."""
        ownership.lengthen_waits(connection, self.host, delay=self.seconds)


@dataclass(frozen=True, slots=True)
class Writes:
    """Several writes in one transaction."""

    writes: Sequence[Callable[[Connection], object]]

    def __call__(self, connection: Connection) -> None:
        """Write all of them."""
        for write in self.writes:
            write(connection)


class OwnedHostWrite(Generic[T]):
    """The transaction that writes the pending rows of an owned host, then ``work``.

    It lets the host go if there is no reason to own it.
    """

    def __init__(
        self,
        host: str,
        owned: OwnedHost,
        worker: Worker,
        work: Callable[[Connection], T],
        is_written: Callable[[Connection], bool],
    ) -> None:
        self._host = host
        self._owned = owned
        self._worker = worker
        self._work = work
        self._is_written = is_written
        self._has_run = False
        self.lets_go = owned.can_release
        self._is_deferred = owned.is_deferred
        self.result: T  #: of ``work``, if the host was not lost

    def __call__(self, connection: Connection) -> bool:
        """Write everything; return False if the host was lost: then waits only become longer."""
        is_owned = _write_pending_rows(connection, self._host, self._owned, self._worker)
        if is_owned and self.lets_go:
            is_owned = ownership.let_go(
                connection, self._host, self._worker, deferred=self._is_deferred
            )
        elif self._has_run and self.lets_go:  # the first run may have let it go
            is_owned = self._is_written(connection)
        self._has_run = True
        if is_owned:
            self.result = self._work(connection)
        return is_owned


def _write_pending_rows(
    connection: Connection, host: str, owned: OwnedHost, worker: Worker
) -> bool:
    """Write the pending rows; return False if the host was lost: then waits only become longer."""
    if owned.end is not None:
        is_owned = owned.end(connection)
    else:
        is_owned = ownership.lock_if_owned(connection, host, worker)
    if is_owned:
        for write in owned.pending:
            write(connection)
    return is_owned
