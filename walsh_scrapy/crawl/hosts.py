"""The hosts that this crawl owns: taken before they are requested, let go afterwards (decision 41).

    take -> begin -> end -> begin -> ... -> the outcome of a visit -> let go

A crawl is one of the workers of its state. The results of an exchange or a visit are pending until
the next transaction of its host, which writes them first. Each such transaction proves that this
worker still owns the host. If it was lost, only caution is written, and memory forgets the host.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, TypeVar
from uuid import uuid4

from scrapy import Request
from scrapy.utils.asyncio import create_looping_call

from walsh_scrapy.crawl.ticket import note, source_of
from walsh_scrapy.exceptions import StateUnavailable, StillDue
from walsh_scrapy.policy.pacing import BEAT_SECONDS, TakeoverGuard, slowed
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.state import hosts as protocol
from walsh_scrapy.state.database import RefusedValues
from walsh_scrapy.state.hosts import Begun, HostSnapshot, Worker
from walsh_scrapy.state.log import LoggedBegin, forget_begin, log_begin, log_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.utils.asyncio import AsyncioLoopingCall
    from sqlalchemy import Connection
    from twisted.internet.task import LoopingCall

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.policy.pacing import Exchange, Hold, HostTimes
    from walsh_scrapy.policy.robots.copy import RobotsCopy
    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state.hosts import Ask, OwnedByOther
    from walsh_scrapy.state.log import RequestRecord

T = TypeVar("T")
logger = logging.getLogger(__name__)

#: The result of an attempt to own a host: another worker has it now, or has deferred it.
Taken: TypeAlias = Literal["ours", "busy", "deferred"]
#: Ready hosts with which a worker takes no further one: alone it has the names of some looked up.
_ENOUGH_ALONE: Final = 8
_ENOUGH_OF_SEVERAL: Final = 1
#: Seconds after which a host is let go if there are other workers, when its page of sources ends.
_LONG: Final = 30.0
#: In place of the host of a visit.
_LOST: Final = ""


class HostLost(StillDue):
    """Another worker owns the host by now; its sources are still due (decision 41)."""


class _InFlight(NamedTuple):
    """A request that may be sent, or was: its host, with its times then, and its row in the log."""

    host: str
    times: HostTimes
    logged: LoggedBegin


@dataclass(eq=False, slots=True)
class _Owned:
    times: HostTimes  #: as of the last transaction and the pending rows
    since: float  #: by the monotonic clock
    reasons: set[object] = field(default_factory=set)
    is_busy: bool = False  #: a request is in flight
    is_deferred: bool = False  #: given up for the run
    copies: dict[str, RobotsCopy | None] = field(default_factory=dict)  #: as the state has them
    end: Callable[[Connection], bool] | None = None  #: writes that of the last exchange
    pending: list[Callable[[Connection], object]] = field(default_factory=list)

    @property
    def is_needless(self) -> bool:
        """Whether there is no reason to own it any more."""
        return not self.reasons and not self.is_busy


class Hosts:
    """The hosts that a crawl owns, each as long as there is a reason.

    Reasons are visits (the URL of their source), requests, and any other object. A host is let go
    with its last reason. Methods raise StateUnavailable if the state fails.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._state = context.state
        self._worker = Worker(uuid4().hex, context.started_at)
        urls = context.options.blocklist_url, context.options.blocklist_schema_url
        self._of_blocklist = frozenset(context.host(url) for url in urls if url)
        self._watch = TakeoverGuard()
        self._timer: AsyncioLoopingCall | LoopingCall | None = None
        self._owned: dict[str, _Owned] = {}
        self._in_flight: dict[Request, _InFlight] = {}
        # The host of each, by the URL of its source; none if that was lost since.
        self._visits: dict[str, str] = {}
        self.workers = 1  #: that share the state, as far as is known
        self._is_new = False  # it has beaten once, so others that start with it are not known
        self._forget: Callable[[str], None] = lambda _: None

    def on_lost(self, forget: Callable[[str], None]) -> None:
        """Set the function that is called with the name of each host that was lost."""
        self._forget = forget

    @property
    def enough(self) -> int:
        """The number of ready hosts with which this worker takes no further one."""
        is_alone = self.workers <= 1 and not self._is_new
        return _ENOUGH_ALONE if is_alone else _ENOUGH_OF_SEVERAL

    def is_due_to_others(self, host: str) -> bool:
        """Return True if a host was owned so long that other workers have their turn there."""
        owned = self._owned.get(host)
        if owned is None or self.workers <= 1:
            return False
        return self._context.clock.monotonic() - owned.since >= _LONG

    def of_others(self) -> dict[str, OwnedByOther]:
        """Return the hosts that other workers own."""
        return self._state.hosts.of_others(self._worker)

    # ---- taking and letting go ----

    def beat(self, sources: str) -> None:
        """Say that this worker lives, and go on saying so: it owns hosts for whole visits.

        Workers with the same ``sources`` visit the same ones.
        """
        if self._timer is None:
            self._worker = self._worker._replace(sources=sources)
            self._timer = create_looping_call(self._beat)
            self._timer.start(BEAT_SECONDS)
            self._is_new = True  # another one may start now too; the next beat tells

    @property
    def is_beating(self) -> bool:
        """Whether hosts stay this worker's between its requests: it says that it lives."""
        return self._timer is not None

    def take(
        self, host: str, reason: object, read: Callable[[Connection], object] | None = None
    ) -> Taken:
        """Own a host, if no other worker does and none has deferred it since this run began.

        Its rows are read in the same transaction, by ``read`` too.
        """
        if host in self._owned and read is not None:
            self._state.read(read)
        elif host not in self._owned:
            moment, may_take_over_until = self._context.moment(), self._watch.may_take_over_until
            copies: dict[str, RobotsCopy | None] = {}

            def work(connection: Connection) -> tuple[HostSnapshot, bool]:
                taken = protocol.take(connection, host, self._worker, may_take_over_until)
                if taken is None:
                    return protocol.find(connection, host), False
                copies.update(self._state.robots.of_host(connection, host))
                if read is not None:
                    read(connection)
                return taken, True

            found, is_ours = self._state.write(work)
            self._watch.see(found.now, moment)
            _tell_clock(host, found)
            if not is_ours:
                is_deferred = found.times.deferred_at >= self._worker.started_at
                return "deferred" if is_deferred else "busy"
            since = self._context.clock.monotonic()
            self._owned[host] = _Owned(found.times, since, copies=copies)
        self._owned[host].reasons.add(reason)
        return "ours"

    def has(self, host: str) -> bool:
        """Return True if this crawl owns a host."""
        return host in self._owned

    def has_for(self, host: str, reason: object) -> bool:
        """Return True if this crawl owns a host since it took it for this reason."""
        return host in self._owned and reason in self._owned[host].reasons

    def copies(self, host: str) -> dict[str, RobotsCopy | None]:
        """Return the copies of robots.txt of a host, by origin, for the time that it is owned.

        No other worker writes them meanwhile, so they are read once.
        """
        owned = self._owned.get(host)
        return owned.copies if owned else {}

    def wait(self, host: str, delay: float = 0.0) -> float:
        """Return the seconds until an owned host may be requested, as far as is known."""
        owned = self._owned.get(host)
        if owned is None:
            return 0.0
        asked_delay = max(delay, self._project_delay(host, owned.times))
        return owned.times.ready_at(asked_delay) - self._context.clock.now()

    def last_end(self, host: str) -> float | None:
        """Return when the last exchange with a host ended, in epoch seconds; None without one."""
        owned = self._owned.get(host)
        return (owned.times if owned else self._state.hosts.find(host).times).last_end

    def delay(self, host: str) -> float:
        """Return the delay in force of an owned host, in seconds."""
        owned = self._owned.get(host)
        return owned.times.delay_with(self._project_delay(host, owned.times)) if owned else 0.0

    def project_delay(self, host: str) -> float:
        """Return the delay that the project asks for at a host, in seconds."""
        owned = self._owned.get(host)
        asked_delay = self._context.project_delays.delay_of(host)
        return self._project_delay(host, owned.times) if owned else asked_delay

    def _project_delay(self, host: str, times: HostTimes) -> float:
        """Return the delay that the project asks for; server errors double it too (decision 28)."""
        asked_delay = self._context.project_delays.delay_of(host)
        return slowed(asked_delay, times.server_errors, self._context.backoff.cap)

    def keep(self, host: str, reason: object) -> None:
        """Add a reason to own a host that is owned; a visit is the reason of its requests."""
        owned = self._owned.get(host)
        if owned is not None and _visit(reason) not in owned.reasons:
            owned.reasons.add(reason)

    def give_up(self, host: str) -> None:
        """Defer the due sources of an owned host to a later run, of every worker.

        The host of the blocklist is never given up: every worker needs the list (R3).
        """
        owned = self._owned.get(host)
        if owned is not None and host not in self._of_blocklist:
            owned.is_deferred = True

    def let_go(self, host: str, reason: object) -> None:
        """End a reason to own a host."""
        owned = self._owned.get(host)
        if owned is None or reason not in owned.reasons:
            return
        owned.reasons.remove(reason)
        if owned.is_needless:
            # If the rows are not written, the worker is soon unknown or lapsed.
            with suppress(StateUnavailable, RefusedValues):
                self._write_pending(host)

    def abandon(self) -> None:
        """Let go of all hosts: their visits have not ended, although nothing is under way."""
        for host, owned in list(self._owned.items()):
            owned.reasons = {self}
            self.give_up(host)
            self.let_go(host, self)

    def close(self) -> None:
        """Write the pending rows, and let go of all hosts: the crawl ends."""
        if self._timer is not None:
            self._timer.stop()
        with suppress(StateUnavailable, RefusedValues):
            for host in list(self._owned):
                self._write_pending(host)
            self._state.write(lambda connection: protocol.leave(connection, self._worker))
        self._owned.clear()  # coroutines that end after this have nothing to let go

    # ---- visits ----

    def begin_visit(self, host: str, source: Source) -> None:
        """Own a host until the visit of a source there has ended."""
        self._visits[source.url] = host
        self._owned[host].reasons.add(source.url)

    def end_visit(self, source: Source) -> None:
        """Note that a visit has ended."""
        if host := self._visits.pop(source.url, None):
            self.let_go(host, source.url)

    def commit(
        self,
        source: Source,
        work: Callable[[Connection], T],
        is_written: Callable[[Connection], bool],
        *,
        ends: bool,
    ) -> T:
        """Write the result of a visit, and let its host go if it ``ends`` the last one there.

        ``is_written`` tells whether ``work`` was committed, if only the answer to that was lost.
        Raises HostLost, and writes nothing of it, if the host was lost meanwhile. Raises
        RefusedValues if the database does not accept the result: then the visit goes on, and can be
        committed with another result.
        """
        host = self._visits.get(source.url)
        if host is None:  # a request of the project, at a host that is not owned any more
            return self._state.write(work, source.url)
        owned = self._owned.get(host)
        if owned is None:
            raise HostLost(self._context.clock.now(), f"{host} was lost to another worker")
        if ends:
            owned.reasons.discard(source.url)
            del self._visits[source.url]
        try:
            return self._write(host, work, is_written, source.url)
        except RefusedValues:
            if ends:
                self.begin_visit(host, source)
            raise

    # ---- exchanges ----

    def begin(self, request: Request, host: str, ask: Ask, record: RequestRecord) -> float | None:
        """Begin an exchange: return 0 if the request may be sent, or the seconds to wait first.

        None means that the host was lost. ``record`` is the request, which is logged.
        """
        owned, visit = self._owned.get(host), _visit(request)
        own = self._visits.get(visit) if visit else None
        if owned is None or own == _LOST:
            return None
        moment, attempts = self._context.moment(), list[LoggedBegin]()

        def work(connection: Connection) -> Begun | HostSnapshot | None:
            for earlier in attempts:  # the answer to its COMMIT was lost
                forget_begin(connection, earlier)
            is_pending = owned.end is not None or owned.pending
            if is_pending and not self._flush(connection, host, owned):
                return None
            if attempts:
                protocol.withdraw(connection, host, self._worker)
            if own not in (None, host) and not protocol.owns(connection, own, self._worker):
                raise HostLost(self._context.clock.now(), f"{own} was lost to another worker")
            found = protocol.begin(connection, host, self._worker, ask)
            if isinstance(found, Begun):
                delay = (
                    0.0
                    if owned.times.request_ended_at is None
                    else found.times.delay_with(ask.delay)
                )
                sent = replace(record, requested_at=found.now, delay=delay)
                attempts.append(log_begin(connection, sent))
            return found

        found = self._state.write(work, visit or request.url)
        owned.end, owned.pending = None, []
        if found is None:
            self._drop(host)
            return None
        self._watch.see(found.now, moment)
        owned.times = found.times
        if isinstance(found, HostSnapshot):
            _tell_clock(host, found)
            return max(0.001, found.times.ready_at(ask.delay, ask.most) - found.now)
        owned.is_busy = True
        self._in_flight[request] = _InFlight(host, found.times, attempts[-1])
        note(request, until=moment + found.allowed)
        return 0.0

    def end(
        self, request: Request, host: str, exchange: Exchange, record: RequestRecord
    ) -> HostSnapshot:
        """End an exchange, and return its host after it.

        It is written with the next transaction of the host; at once if others must know it.
        """
        _, known, logged = self._in_flight.pop(request)
        owned, now = self._owned.get(host), self._context.clock.now()
        before = owned.times if owned else known
        exchange = exchange.in_run(before, self._worker.started_at)
        times = before.after(exchange, self._context.backoff, now)
        ended = self._context.moment()
        ended_record = replace(record, hold=times.last_hold.seconds)

        def write(connection: Connection) -> bool:
            age = self._context.moment() - ended
            is_ours = protocol.end(connection, host, self._worker, known, times, age)
            log_end(connection, ended_record, logged)
            return is_ours

        subject = _visit(request) or request.url
        if owned is None:  # it was lost meanwhile: caution is written
            self._state.write(write, subject)
            return HostSnapshot(times, now)
        owned.times, owned.end, owned.is_busy = times, write, False
        is_longer = times.delay > max(known.delay, self._context.options.min_interval)
        if not exchange.is_plain_answer or is_longer or owned.is_needless:
            self._write_pending(host, subject)
        return HostSnapshot(times, now)

    def withdraw(self, request: Request, host: str) -> None:
        """Take back a request that was never sent (decision 29); nothing of it is logged."""
        if request not in self._in_flight:
            return
        _, _, logged = self._in_flight.pop(request)

        def write(connection: Connection) -> bool:
            forget_begin(connection, logged)
            return protocol.withdraw(connection, host, self._worker)

        if (owned := self._owned.get(host)) is None:
            self._state.write(write)
            return
        owned.end, owned.is_busy = write, False
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
        """Return the host of a request in flight, whatever was made of its URL since."""
        return self._in_flight[request].host

    def hold(self, host: str, hold: Hold) -> None:
        """Put a host on hold, from now; a longer hold stays."""
        self._state.write(lambda connection: protocol.caution(connection, host, hold=hold))
        if owned := self._owned.get(host):
            owned.times = owned.times.held(self._context.clock.now(), hold)

    def write_with(
        self, host: str, write: Callable[[Connection], object], *, delay: float = 0.0
    ) -> None:
        """Call ``write`` in the next transaction of a host; now if that is not owned.

        Its delay becomes ``delay`` at least, in seconds; a longer one than it has is written now.
        """
        owned = self._owned.get(host)

        def slow_down(connection: Connection) -> None:
            protocol.caution(connection, host, delay=delay)

        def write_now(connection: Connection) -> None:
            write(connection)
            if delay:
                slow_down(connection)

        if owned is None:
            self._state.write(write_now)
            return
        owned.pending.append(write)
        if delay > owned.times.delay:
            owned.times = owned.times.delayed(delay)
            owned.pending.append(slow_down)
            self._write_pending(host)

    # ---- transactions ----

    def _write_pending(self, host: str, subject: str = "") -> None:
        """Write the pending rows of a host, and let it go without a reason; it may be lost."""
        with suppress(HostLost):
            self._write(host, lambda _: None, subject=subject)

    def _write(
        self,
        host: str,
        work: Callable[[Connection], T],
        is_written: Callable[[Connection], bool] = lambda _: False,
        subject: str = "",
    ) -> T:
        """Write the pending rows of a host, then ``work``, and let it go without a reason.

        Raises HostLost if it was lost. A message of a database that fails names the ``subject``.
        """
        owned = self._owned[host]
        lets_go, deferred = owned.is_needless, owned.is_deferred
        attempts = list[None]()

        def all_of_it(connection: Connection) -> tuple[T] | None:
            is_ours = self._flush(connection, host, owned)
            if is_ours and lets_go:
                is_ours = protocol.let_go(connection, host, self._worker, deferred=deferred)
            elif attempts and lets_go:  # an earlier one may have let it go
                is_ours = is_written(connection)
            attempts.append(None)
            return (work(connection),) if is_ours else None

        result = self._state.write(all_of_it, subject)
        owned.end, owned.pending = None, []
        if result is None:
            self._drop(host)
            raise HostLost(self._context.clock.now(), f"{host} was lost to another worker")
        if lets_go:
            del self._owned[host]
        return result[0]

    def _flush(self, connection: Connection, host: str, owned: _Owned) -> bool:
        """Write the pending rows; return False, and write only caution, if the host was lost."""
        if owned.end is not None:
            is_ours = owned.end(connection)
        else:
            is_ours = protocol.prove(connection, host, self._worker)
        if is_ours:
            for write in owned.pending:
                write(connection)
        return is_ours

    def _drop(self, host: str) -> None:
        """Forget a host that was lost, with its rows.

        Its visits are over, even if it is taken again: another worker may have made them.
        """
        self._owned.pop(host, None)
        self._visits |= {url: _LOST for url, of in self._visits.items() if of == host}
        self._forget(host)

    def _beat(self) -> None:
        with suppress(StateUnavailable):
            moment, worker = self._context.moment(), self._worker._replace(run=self._context.run)
            beat = self._state.write(lambda connection: protocol.beat(connection, worker))
            self._watch.see(beat.now, moment)
            self.workers, self._is_new = 1 + beat.others, False


def _tell_clock(host: str, found: HostSnapshot) -> None:
    if found.ahead:
        seconds = format_seconds(found.ahead)
        logger.warning("the clock was set back: the times of %s were %s ahead", host, seconds)


def _visit(reason: object) -> str | None:
    """Return the URL of the source that a request is for, if any: it stands for the visit."""
    source = source_of(reason) if isinstance(reason, Request) else None
    return source.url if source else None
