"""The hosts that this crawl owns: it takes a host before its first request, and lets it go later.

    take -> begin -> end -> begin -> ... -> the outcome of a visit -> let go

A crawl is one of the workers that share a state (decision 41). What an exchange or a visit has
shown stays pending until the next transaction of its host, which writes it first. Each such
transaction proves that this worker still owns the host. If the host was lost to another worker, the
transaction only makes waits longer, and the crawl forgets the host.
"""

from __future__ import annotations

import atexit
import logging
import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import uuid4
from weakref import WeakSet

from scrapy import Request
from scrapy.utils.asyncio import create_looping_call

from walsh_scrapy.crawl.ticket import note, subject_of
from walsh_scrapy.exceptions import StateUnavailable, StillDue
from walsh_scrapy.policy.pacing import BEAT_SECONDS, RECHECK_SECONDS, TakeoverGuard, slowed
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.state import ownership
from walsh_scrapy.state.engine import RefusedValues
from walsh_scrapy.state.evidence import forget_begin, log_begin, log_end, log_no_answer
from walsh_scrapy.state.ownership import HostSnapshot, Permission, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.utils.asyncio import AsyncioLoopingCall
    from sqlalchemy import Connection
    from twisted.internet.task import LoopingCall

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.policy.pacing import Exchange, Hold, HostTimes
    from walsh_scrapy.policy.robots.copy import RobotsCopy
    from walsh_scrapy.state.evidence import LoggedBegin, RequestRecord
    from walsh_scrapy.state.ownership import Beat, OtherOwner, PermissionStatus, RequestLimits

T = TypeVar("T")
logger = logging.getLogger(__name__)

#: A worker takes a further host while fewer are ready. Alone it takes some ahead of their turn, so
#: that their names are looked up early.
_MAX_READY_ALONE: Final = 8
_MAX_READY_SHARED: Final = 1
#: Seconds after which a host is let go between two of its pages, so that the redirects of other
#: workers get their turn there, and commands.
_MAX_OWNED_SECONDS: Final = 30.0


class HostLost(StillDue):
    """Another worker has taken the host; its sources are still due."""


@dataclass(eq=False, slots=True)
class OwnedHost:
    """A host that this crawl owns, with its pending rows."""

    times: HostTimes  #: with the changes that are pending
    since: float  #: when it was taken, by the monotonic clock
    reasons: set[object] = field(default_factory=set)
    is_busy: bool = False  #: a request is in flight
    is_used: bool = False  #: a request was sent since it was taken
    is_deferred: bool = False  #: given up for the run
    copies: dict[str, RobotsCopy | None] = field(default_factory=dict)  #: by origin, in the state
    #: Writes the end of the last exchange, if it is pending; returns False if the host was lost.
    end: Callable[[Connection], bool] | None = None
    pending: list[Callable[[Connection], object]] = field(default_factory=list)

    @property
    def can_release(self) -> bool:
        """Whether there is no reason to own it any longer."""
        return not self.reasons and not self.is_busy


@dataclass(eq=False, slots=True)
class DoubtfulAnswers:
    """The answers for a host that a proxy may have made: 502, 503 and 504."""

    times: HostTimes  #: the times of the host before them
    names: set[str] = field(default_factory=set)  #: the host, or those of the domain
    logged: list[LoggedBegin] = field(default_factory=list)
    #: What takes back the other rows that were written because of them.
    undo: list[Callable[[Connection], object]] = field(default_factory=list)

    def take_back(self, connection: Connection, host: str, error: str) -> None:
        """Write everything as it was before, and into the log that no answer came."""
        ownership.take_back(connection, host, self.times)
        for logged in self.logged:
            log_no_answer(connection, logged, error)
        for undo in self.undo:
            undo(connection)


class BeginResult(NamedTuple):
    """Whether an exchange has begun; otherwise its host was lost, or must not be requested yet."""

    status: PermissionStatus
    wait: float = 0.0  #: seconds to wait, if the status is "wait"


class _InFlight(NamedTuple):
    """A request in flight: its host, the host's times before it, and its row in the log."""

    host: str
    times: HostTimes
    logged: LoggedBegin


@dataclass(slots=True)
class _VisitedHost:
    """The host of a visit."""

    host: str
    is_lost: bool = False  #: since the visit began


def _no_rows(_connection: Connection) -> None:
    """Write nothing but the pending rows."""


def _is_never_written(_connection: Connection) -> bool:
    return False


class Hosts:
    """The hosts that a crawl owns, each as long as there is a reason to own it.

    A reason is the URL of a source that is visited, a request, or any other object. A host is let
    go when its last reason ends. Methods raise StateUnavailable if the state fails.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._state = context.state
        self._worker = Worker(uuid4().hex, context.started_at)
        urls = context.options.blocklist_url, context.options.blocklist_schema_url
        self._of_blocklist = frozenset(context.host(url) for url in urls if url)
        self._watch = TakeoverGuard()
        self._timer: AsyncioLoopingCall | LoopingCall | None = None
        self._write_also: Callable[[Connection], None] = lambda _connection: None
        self._owned: dict[str, OwnedHost] = {}
        # The hosts that were let go in the last second, the oldest first, by the monotonic clock.
        self._let_go_at: dict[str, float] = {}
        self._in_flight: dict[Request, _InFlight] = {}
        self._visits: dict[str, _VisitedHost] = {}  # by the URL of its source
        self._doubtful: dict[str, DoubtfulAnswers] = {}  # by host
        self.workers = 1  #: the number of workers that share the state, as of the last beat
        self._is_new = False  # others that start at the same time show at the second beat

    @property
    def max_ready_hosts(self) -> int:
        """The number of ready hosts from which on this worker takes no further one."""
        is_alone = self.workers <= 1 and not self._is_new
        return _MAX_READY_ALONE if is_alone else _MAX_READY_SHARED

    def should_give_way(self, host: str) -> bool:
        """Return True if a host was owned so long that other workers should get a turn there."""
        return self.workers > 1 and self._is_owned_for_long(host)

    def seconds_for_others(self, host: str) -> float:
        """Return for how long a host that this worker has just requested is left to other ones.

        They look once a second.
        """
        if self.workers <= 1:
            return 0.0
        if owned := self._owned.get(host):
            return RECHECK_SECONDS if owned.is_used else 0.0
        let_go_at = self._let_go_at.get(host, -math.inf)
        return max(0.0, let_go_at + RECHECK_SECONDS - self._context.clock.monotonic())

    def may_keep(self, host: str) -> bool:
        """Return True if a host may stay owned for its next request.

        Alone a worker keeps it. After a while it takes the host again, because a command that is no
        worker may wait for it.
        """
        return self.is_beating and self.workers <= 1 and not self._is_owned_for_long(host)

    def _is_owned_for_long(self, host: str) -> bool:
        owned = self._owned.get(host)
        if owned is None:
            return False
        return self._context.clock.monotonic() - owned.since >= _MAX_OWNED_SECONDS

    def owned_by_others(self) -> dict[str, OtherOwner]:
        """Return the hosts that other workers own."""
        return self._state.read(partial(ownership.owned_by_others, worker=self._worker))

    # ---- taking and letting go ----

    def beat(
        self, sources: str, also: Callable[[Connection], None] = lambda _connection: None
    ) -> None:
        """Write regularly that this worker is alive, so that it keeps its hosts between requests.

        ``sources`` names the sources that it visits: workers with the same text visit the same.
        ``also`` is called in each of these transactions, and at the end of the crawl.
        """
        if self._timer is None:
            self._write_also = also
            self._worker = self._worker._replace(sources=sources)
            self._timer = create_looping_call(self._beat)
            self._timer.start(BEAT_SECONDS)
            self._is_new = True
            _BEATING.add(self)

    @property
    def is_beating(self) -> bool:
        """Whether this worker keeps its hosts between requests; see ``beat``."""
        return self._timer is not None

    def take(
        self, host: str, reason: object, read: Callable[[Connection], object] | None = None
    ) -> PermissionStatus:
        """Own a host: "ready", or "wait" or "deferred", if another worker owns or has deferred it.

        ``read`` is called in the same transaction, so what it reads stays true.
        """
        if host in self._owned and read is not None:
            self._state.read(read)
        elif host not in self._owned:
            moment = self._context.moment()
            copies: dict[str, RobotsCopy | None] = {}

            def work(connection: Connection) -> Permission:
                nonlocal copies
                may_take_over_until = self._watch.may_take_over_until
                permission = ownership.take(connection, host, self._worker, may_take_over_until)
                if permission.status == "ready":
                    copies = {**self._state.robots.of_host(connection, host)}
                    if read is not None:
                        read(connection)
                return permission

            status, snapshot = self._state.write(work)
            self._watch.see(snapshot.now, moment)
            _warn_clock_set_back(host, snapshot)
            if status != "ready":
                return status
            since = self._context.clock.monotonic()
            self._owned[host] = OwnedHost(snapshot.times, since, copies=copies)
        self._owned[host].reasons.add(reason)
        return "ready"

    def has(self, host: str) -> bool:
        """Return True if this crawl owns a host."""
        return host in self._owned

    def has_for(self, host: str, reason: object) -> bool:
        """Return True if this crawl owns a host, and has never lost it since ``reason`` began."""
        return host in self._owned and reason in self._owned[host].reasons

    def copies(self, host: str) -> dict[str, RobotsCopy | None]:
        """Return the copies of robots.txt of an owned host, by origin.

        They are read once, because no other worker writes them while the host is owned.
        """
        owned = self._owned.get(host)
        return owned.copies if owned else {}

    def wait(self, host: str, delay: float = 0.0) -> float:
        """Return the seconds until an owned host may be requested; 0 for any other host."""
        owned = self._owned.get(host)
        if owned is None:
            return 0.0
        asked_delay = max(delay, self._project_delay(host, owned.times))
        return owned.times.ready_at(asked_delay) - self._context.clock.now()

    def times(self, host: str) -> HostTimes:
        """Return the pacing of a host, from the state if this crawl does not own the host."""
        owned = self._owned.get(host)
        return owned.times if owned else self._state.hosts.find(host).times

    def delay(self, host: str) -> float:
        """Return the current delay of an owned host in seconds; 0 for any other host."""
        owned = self._owned.get(host)
        return owned.times.delay_with(self._project_delay(host, owned.times)) if owned else 0.0

    def project_delay(self, host: str) -> float:
        """Return the delay of a host in seconds that the project asks for by its settings."""
        owned = self._owned.get(host)
        asked_delay = self._context.project_delays.delay_of(host)
        return self._project_delay(host, owned.times) if owned else asked_delay

    def _project_delay(self, host: str, times: HostTimes) -> float:
        """Return the delay that the project asks for. Each 5xx in a row doubles it."""
        asked_delay = self._context.project_delays.delay_of(host)
        return slowed(asked_delay, times.server_errors, self._context.backoff.max_delay)

    def keep(self, host: str, reason: object) -> None:
        """Add a reason to own an owned host; a visit is the reason of all its requests."""
        owned = self._owned.get(host)
        if owned is not None and _visit(reason) not in owned.reasons:
            owned.reasons.add(reason)

    def give_up(self, host: str) -> None:
        """Let all workers defer the due sources of an owned host to a later run.

        The host of the blocklist is never given up, because every worker needs the list.
        """
        owned = self._owned.get(host)
        if owned is not None and host not in self._of_blocklist:
            owned.is_deferred = True

    def let_go(self, host: str, reason: object, successor: object | None = None) -> None:
        """End a reason to own a host; ``successor`` is another one, which takes its place.

        With a successor the end of the last exchange is written now: after a kill the next run
        would wait until the request was over at the latest.
        """
        owned = self._owned.get(host)
        if owned is None or reason not in owned.reasons:
            return
        owned.reasons.remove(reason)
        if successor is not None:
            owned.reasons.add(successor)
        if owned.can_release or (successor is not None and owned.end is not None):
            self._settle(host)

    def _settle(self, host: str) -> None:
        """Write the pending rows of a host; let it go if no reason is left."""
        # If this fails, the host is free when this worker has ended or its time is over.
        with suppress(StateUnavailable, RefusedValues):
            self._write_pending(host)

    def abandon(self) -> None:
        """Let go of all hosts, although there are visits that have not ended."""
        for host, owned in list(self._owned.items()):
            owned.reasons.clear()
            self.give_up(host)
            if owned.can_release:
                self._settle(host)

    def close(self) -> None:
        """Write the pending rows, and let go of all hosts, at the end of the crawl."""
        _BEATING.discard(self)
        if self._timer is not None:
            self._timer.stop()
        with suppress(StateUnavailable, RefusedValues):
            for host, owned in list(self._owned.items()):
                if owned.can_release or owned.end is not None or owned.pending:
                    self._write_pending(host)
            self._state.write(self._write_end)
        self._owned.clear()  # a coroutine that ends later must not write any more

    # ---- visits ----

    def begin_visit(self, host: str, subject: str) -> None:
        """Own a host until a visit there has ended; ``subject`` identifies it (`Visit.subject`)."""
        self._visits[subject] = _VisitedHost(host)
        self._owned[host].reasons.add(subject)

    def end_visit(self, subject: str) -> None:
        """End a visit."""
        visited = self._visits.pop(subject, None)
        if visited is not None and not visited.is_lost:
            self.let_go(visited.host, subject)

    def commit(
        self,
        subject: str,
        work: Callable[[Connection], T],
        is_written: Callable[[Connection], bool],
        *,
        ends: bool,
    ) -> T:
        """Write the result of a visit by calling ``work``, and return what it returns.

        If the visit ``ends`` with it and was the last one at its host, the host is let go.
        ``is_written`` returns whether ``work`` was committed; it is called if the answer to the
        COMMIT was lost. Raises HostLost, and does not call ``work``, if the host was lost. Raises
        RefusedValues if the database does not accept the result: then the visit goes on, and
        another result can be committed.
        """
        visited = self._visits.get(subject)
        if visited is None:  # a request of the project, at a host that is not owned any more
            return self._state.write(work, subject)
        host = visited.host
        owned = self._owned.get(visited.host)
        if owned is None or visited.is_lost:
            raise self._lost(host)
        if ends:
            owned.reasons.discard(subject)
            del self._visits[subject]
        try:
            return self._write(host, work, is_written, subject)
        except RefusedValues:
            if ends:
                self.begin_visit(host, subject)
            raise

    # ---- exchanges ----

    def begin(
        self, request: Request, host: str, limits: RequestLimits, record: RequestRecord
    ) -> BeginResult:
        """Begin an exchange; the request may be sent now if the status of the result is "ready".

        ``record`` is the row of the request for the log.
        """
        owned = self._owned.get(host)
        visit = _visit(request)
        visited = self._visits.get(visit) if visit else None
        if owned is None or (visited is not None and visited.is_lost):
            return BeginResult("lost")
        moment = self._context.moment()
        visited_host = visited.host if visited and visited.host != host else None
        logged: list[LoggedBegin] = []  # one for each time that the transaction has run

        def work(connection: Connection) -> Permission:
            for earlier in logged:
                forget_begin(connection, earlier)
            is_pending = owned.end is not None or owned.pending
            if is_pending and not self._write_rows(connection, host, owned):
                return Permission("lost", ownership.find(connection, host))
            if logged:
                ownership.withdraw(connection, host, self._worker)
            self._check_owner(connection, visited_host)
            permission = ownership.begin(connection, host, self._worker, limits)
            if permission.status == "ready":
                times, now, _ = permission.host
                is_first = owned.times.request_ended_at is None
                delay = 0.0 if is_first else times.delay_with(limits.delay)
                sent = replace(record, requested_at=now, delay=delay)
                logged.append(log_begin(connection, sent))
            return permission

        status, snapshot = self._state.write(work, visit or request.url)
        owned.end = None
        owned.pending = []
        if status == "lost":
            self._drop(host)
            return BeginResult("lost")
        self._watch.see(snapshot.now, moment)
        owned.times = snapshot.times
        if status == "wait":
            _warn_clock_set_back(host, snapshot)
            ready_at = snapshot.times.ready_at(limits.delay, limits.max_wait)
            return BeginResult("wait", max(0.001, ready_at - snapshot.now))
        owned.is_busy = owned.is_used = True
        self._in_flight[request] = _InFlight(host, snapshot.times, logged[-1])
        note(request, until=moment + limits.allowed)
        return BeginResult("ready")

    def end(
        self, request: Request, host: str, exchange: Exchange, record: RequestRecord
    ) -> HostSnapshot:
        """End an exchange, and return the row of its host as it is then.

        The row is written with the next transaction of the host, or at once if other workers must
        know of the change.
        """
        _, times_before, logged = self._in_flight.pop(request)
        owned = self._owned.get(host)
        now = self._context.clock.now()
        before = owned.times if owned else times_before
        exchange = exchange.in_run(before, self._worker.started_at)
        times = before.after(exchange, self._context.backoff, now)
        ended = self._context.moment()
        record = replace(record, hold=times.last_hold.seconds)

        def end(connection: Connection) -> bool:
            age = self._context.moment() - ended
            is_owned = ownership.end(connection, host, self._worker, times_before, times, age)
            log_end(connection, record, logged)
            return is_owned

        if exchange.from_gateway:
            answers = self._doubtful.setdefault(host, DoubtfulAnswers(times_before))
            answers.names.add(host_of(request.url))
            answers.logged.append(logged)
        subject = _visit(request) or request.url
        if owned is None:  # the host was lost: this only makes its waits longer
            self._state.write(end, subject)
            return HostSnapshot(times, now)
        owned.times = times
        owned.end = end
        owned.is_busy = False
        is_longer = times.delay > max(times_before.delay, self._context.usual_delay)
        if not exchange.is_plain_answer or is_longer or owned.can_release:
            self._write_pending(host, subject)
        return HostSnapshot(times, now)

    def undo_with_answers(self, host: str, undo: Callable[[Connection], object]) -> None:
        """Call ``undo`` with the transaction that takes back the doubtful answers of a host."""
        if answers := self._doubtful.get(host):
            answers.undo.append(undo)

    def take_back(self) -> None:
        """Take back all answers that the proxy may have made: the run has shown no network."""
        error = "no host could be reached in this run"
        is_doubtful = self._context.connectivity.is_doubtful
        with suppress(StateUnavailable, RefusedValues):
            for host, answers in self._doubtful.items():
                if any(is_doubtful(name) for name in answers.names):
                    self._state.write(partial(answers.take_back, host=host, error=error))

    def withdraw(self, request: Request, host: str) -> None:
        """End the exchange of a request that was never sent: it leaves no trace in the log."""
        if request not in self._in_flight:
            return
        logged = self._in_flight.pop(request).logged

        def withdrawal(connection: Connection) -> bool:
            forget_begin(connection, logged)
            return ownership.withdraw(connection, host, self._worker)

        owned = self._owned.get(host)
        if owned is None:
            self._state.write(withdrawal)
            return
        owned.end = withdrawal
        owned.is_busy = False
        self._write_pending(host)

    @property
    def in_flight(self) -> list[Request]:
        """The requests that have begun and not ended."""
        return list(self._in_flight)

    def is_busy(self, host: str) -> bool:
        """Return True while a request to an owned host is in flight."""
        owned = self._owned.get(host)
        return owned is not None and owned.is_busy

    def host_of(self, request: Request) -> str:
        """Return the host of a request in flight, also if its URL was changed since."""
        return self._in_flight[request].host

    def hold(self, host: str, hold: Hold) -> None:
        """Put a host on hold from now on, unless it has a longer hold."""
        self._state.write(lambda connection: ownership.lengthen_waits(connection, host, hold=hold))
        if owned := self._owned.get(host):
            owned.times = owned.times.with_hold(self._context.clock.now(), hold)

    def lengthen_delay(self, host: str, delay: float) -> None:
        """Make the delay of a host at least ``delay`` seconds, from now on and for all workers."""
        owned = self._owned.get(host)
        lengthen = partial(ownership.lengthen_waits, host=host, delay=delay)
        if owned is None:
            self._state.write(lengthen)
        elif delay > owned.times.delay:
            owned.times = owned.times.delayed(delay)
            owned.pending.append(lengthen)
            self._write_pending(host)

    def write_with(
        self, host: str, write: Callable[[Connection], object], *, at_once: bool = False
    ) -> None:
        """Call ``write`` in the next transaction of a host.

        That is a transaction of its own if it is to be ``at_once``, or if the host is not owned.
        """
        owned = self._owned.get(host)
        if owned is None:
            self._state.write(write)
            return
        owned.pending.append(write)
        if at_once:
            self._write_pending(host)

    # ---- transactions ----

    def _write_pending(self, host: str, subject: str = "") -> None:
        """Write the pending rows of a host, which may be lost; let it go if no reason is left."""
        with suppress(HostLost):
            self._write(host, _no_rows, subject=subject)

    def _write(
        self,
        host: str,
        work: Callable[[Connection], T],
        is_written: Callable[[Connection], bool] = _is_never_written,
        subject: str = "",
    ) -> T:
        """Write the pending rows of a host, then call ``work``; let it go if no reason is left.

        Raises HostLost if the host was lost. ``subject`` is named in the error of a database that
        fails.
        """
        owned = self._owned[host]
        lets_go = owned.can_release
        is_deferred = owned.is_deferred
        results: list[T] = []  # of ``work``, one for each time that the transaction has run
        runs = 0

        def write(connection: Connection) -> bool:
            nonlocal runs
            is_owned = self._write_rows(connection, host, owned)
            if is_owned and lets_go:
                is_owned = ownership.let_go(connection, host, self._worker, deferred=is_deferred)
            elif runs and lets_go:  # the first run may have let it go
                is_owned = is_written(connection)
            runs += 1
            if is_owned:
                results.append(work(connection))
            return is_owned

        is_owned = self._state.write(write, subject)
        owned.end = None
        owned.pending = []
        if not is_owned:
            self._drop(host)
            raise self._lost(host)
        if lets_go:
            del self._owned[host]
            if self.workers > 1 and owned.is_used:
                self._note_let_go(host)
        return results[-1]

    def _note_let_go(self, host: str) -> None:
        now = self._context.clock.monotonic()
        self._let_go_at.pop(host, None)
        self._let_go_at[host] = now
        while self._let_go_at[oldest := next(iter(self._let_go_at))] < now - RECHECK_SECONDS:
            del self._let_go_at[oldest]

    def _write_rows(self, connection: Connection, host: str, owned: OwnedHost) -> bool:
        """Write the pending rows; return False if the host was lost: waits only become longer."""
        if owned.end is not None:
            is_owned = owned.end(connection)
        else:
            is_owned = ownership.lock_if_owned(connection, host, self._worker)
        if is_owned:
            for write in owned.pending:
                write(connection)
        return is_owned

    def _check_owner(self, connection: Connection, host: str | None) -> None:
        """Raise HostLost if a host is not owned any more."""
        if host is not None and not ownership.owns(connection, host, self._worker):
            raise self._lost(host)

    def _lost(self, host: str) -> HostLost:
        return HostLost(self._context.clock.now(), f"{host} was lost to another worker")

    def _drop(self, host: str) -> None:
        """Forget a host that was lost, with its pending rows and its robots.txt files.

        Its visits are over, even if it is taken again, because another worker may have made them.
        """
        self._owned.pop(host, None)
        for visited in self._visits.values():
            if visited.host == host:
                visited.is_lost = True
        files = self._context.robots_files
        for origin in [origin for origin in files if self._context.host(origin) == host]:
            del files[origin]

    def _beat(self) -> None:
        with suppress(StateUnavailable):
            moment = self._context.moment()
            worker = self._worker._replace(run=self._context.run)
            beat = self._state.write(lambda connection: self._write_beat(connection, worker))
            self._watch.see(beat.now, moment)
            self.workers = 1 + beat.other_workers
            self._is_new = False

    def _write_beat(self, connection: Connection, worker: Worker) -> Beat:
        self._write_also(connection)
        return ownership.beat(connection, worker)

    def _write_end(self, connection: Connection) -> None:
        self._write_also(connection)
        ownership.leave(connection, self._worker)


#: Those of the crawls of this process that have not ended.
_BEATING: Final[WeakSet[Hosts]] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Let go of all hosts: a second signal ends the process without an end of its crawls."""
    for hosts in list(_BEATING):
        hosts.close()


def _warn_clock_set_back(host: str, snapshot: HostSnapshot) -> None:
    if snapshot.ahead:
        seconds = format_seconds(snapshot.ahead)
        logger.warning("the clock was set back: the times of %s were %s ahead", host, seconds)


def _visit(reason: object) -> str | None:
    """Return what identifies the visit of a request; None for a request without one."""
    return subject_of(reason) if isinstance(reason, Request) else None
