"""The queue of our scheduler: requests wait here until their host is ready.

    push -> the host becomes ready -> robots.txt or the blocklist is missing: a coroutine fetches it
                                   -> nothing is missing: the request is handed out to the gates

Only the queue waits, so that a host that must wait never blocks another one. A `Fetcher` waits here
for a turn of its host too, and then sends its request itself. A request that did not come from our
scheduler, for example one made by ``engine.download_async``, waits in PacingMiddleware.

What waits outside of the queue waits by `HostAccess`. A host is owned before it gets a request. A
request that would wait longer than ``WALSH_MAX_WAIT``, or past the end of the crawl, is deferred to
a later run, so that a run ends and loses nothing. A request that a gate would deny or defer now has
nothing to wait for: it is handed out at once, and the gate decides.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from scrapy.exceptions import IgnoreRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.asyncio import CallLaterResult, call_later, sleep

from walsh_scrapy.crawl.startup import Gate, Kind
from walsh_scrapy.crawl.ticket import rank_of, subject_of, ticket_of
from walsh_scrapy.exceptions import NotYet, RequestDeferred, StillDue
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.frontier import Frontier, Rank
from walsh_scrapy.policy.pacing import RECHECK_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from scrapy import Request
    from sqlalchemy import Connection

    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.state.ownership import PermissionStatus

#: Start requests of the spider are taken until this number of hosts is ready.
MAX_READY_HOSTS: Final = 2000
#: The order in which middlewares prepare a request: pacing must own the host before robots.txt is
#: fetched from it.
_ORDER: Final = (
    Gate.ADDRESS,
    Gate.BLOCKLIST,
    Gate.SCOPE,
    Gate.PRIVATEHOSTS,
    Gate.PACING,
    Gate.ROBOTS,
)


class RequestPreparer:
    """Mix-in for a middleware that may have to fetch something before it can decide."""

    def is_ready(self, request: Request) -> bool:  # noqa: ARG002 - for gates that fetch
        """Return True if the middleware can decide on a request now."""
        return True

    async def prepare(self, request: Request) -> None:
        """Fetch what is missing. Raises IgnoreRequest for a request that will be denied."""

    def will_pass(self, request: Request) -> bool:  # noqa: ARG002 - for gates that know it early
        """Return False if the middleware would deny or defer a request now.

        Such a request goes to the middlewares at once, because it has nothing to wait for.
        """
        return True


@dataclass(eq=False, slots=True)
class Turn:
    """A request that waits in the queue, or was handed out."""

    request: Request
    #: Done when the turn comes; None for a request that the engine sends.
    granted: asyncio.Future[None] | None = None
    is_prepared: bool = False  #: prepared once, it goes to the gates whatever is missing
    #: Why it is deferred, if its preparation has waited in vain: no gate waits again.
    deferral: RequestDeferred | None = None
    is_over: bool = False  #: a fetch has used its turn
    times_sent_back: int = 0  #: how often PacingMiddleware has sent it back


class Queue:
    """Hands out only requests whose host is ready, and wakes the engine when the next one is.

    In a crawl with another scheduler nothing waits here, because that scheduler never calls
    ``open``.
    """

    def __init__(self, crawl: Crawl) -> None:
        context = crawl.context
        delays = crawl.declared_delays.delays
        self._context = context
        self._engine = crawl.engine
        self._hosts = crawl.hosts
        self._is_own = crawl.kind is Kind.OWN
        max_concurrent = crawl.settings.getint("CONCURRENT_REQUESTS")  # 0: no limit
        self._max_concurrent = max_concurrent if max_concurrent > 0 else math.inf
        self._is_open = False
        #: The requests that wait, by host.
        self.frontier: Frontier[Turn] = Frontier(
            delays,
            late=context.late_hosts,
            follows_links=context.options.scope == "any",
            will_send=self._has_to_wait,
        )
        # Redirected requests whose redirect asked for a wait (Retry-After), by its end.
        self._redirected: list[tuple[float, int, Turn]] = []
        self._order = count()
        self._gates: dict[Gate, RequestPreparer] = {}
        self._room = asyncio.Event()
        self._handed_out: dict[str, Turn] = {}  # by host, which has one at a time
        # Of these, the hosts of requests that the engine has, and the turns of fetches.
        self._sent: dict[Request, str] = {}
        self._granted: dict[str, Turn] = {}
        self._fetch_turns: set[Turn] = set()  # the turns that a fetch waits for
        self._timer: CallLaterResult | None = None

    def open(self) -> None:
        """Begin to work for our scheduler."""
        self._is_open = True

    def register_preparer(self, gate: Gate, preparation: RequestPreparer) -> None:
        """Let an active middleware prepare requests."""
        self._gates[gate] = preparation

    def stop_timer(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def waiting(self) -> int:
        """The number of requests that wait, ready or not. Fetches of documents do not count."""
        return len(self.frontier) - len(self._fetch_turns) + len(self._redirected)

    def push(self, request: Request) -> None:
        """Queue a request until its host is ready.

        A request that was handed out and comes back goes first.
        """
        turn = self.turn_of(request)
        if turn is None:
            self._push_new(Turn(request))
            return
        host = self._context.host(request.url)
        del self._handed_out[host]  # its host stays owned
        del self._sent[request]
        turn.is_prepared = False
        turn.deferral = None
        self._push(turn, is_back=True)
        self.frontier.free(host)

    def pop(self) -> Request | None:
        """Remove and return a request whose host is ready; None if there is none.

        If the next request is not prepared, it stays in the queue, and a coroutine prepares it.
        Then None is returned, so that no other host is requested before the preparation begins.
        """
        self._free_hosts()
        now = self._context.clock.monotonic()
        while self._redirected and self._is_redirect_over(now):
            self._push(heapq.heappop(self._redirected)[2])
        request = self._next_request(now)
        if self._has_room or self.frontier.short_host():
            self._room.set()
        return request

    def _next_request(self, now: float) -> Request | None:
        while not self._is_full:
            picked = self.frontier.pop(now)
            if picked is None:
                self._wake_at(self._next_at(), now)
                return None
            host, turn = picked
            if turn.granted is not None:
                self._grant(host, turn)
            elif turn.is_prepared or self._is_ready(turn.request):
                self._handed_out[host] = turn
                self._sent[turn.request] = host
                self._hosts.keep(host, turn.request)
                self._hosts.let_go(host, self)
                return turn.request
            else:
                self._begin_preparing(host, turn)
                return None
        return None

    def turn_of(self, request: Request) -> Turn | None:
        """Return the turn of a request that was handed out, or None."""
        turn = self._handed_out.get(self._context.host(request.url))
        return turn if turn is not None and turn.request is request else None

    def check(self, request: Request) -> None:
        """Raise the RequestDeferred of a request whose preparation has waited in vain."""
        turn = self.turn_of(request)
        if turn is not None and turn.deferral is not None:
            raise turn.deferral

    def mark_explored(self, request: Request) -> None:
        """Mark the host of a target as explored: its links will be known soon."""
        if rank_of(request) is Rank.TARGET:
            self.frontier.explored(self._context.host(request.url))

    def send_back(self, turn: Turn, seconds: float) -> Request:
        """Return a request to the scheduler; its host is ready in ``seconds``.

        Raises NotYet for the request of a fetch, which takes another turn by itself.
        """
        self.delay(self._context.host(turn.request.url), seconds)
        if turn.granted is not None:
            raise NotYet
        turn.times_sent_back += 1
        return turn.request

    @property
    def in_flight(self) -> list[str]:
        """The hosts with a request in flight."""
        return [host for host, turn in self._handed_out.items() if self._is_out(turn)]

    def remaining(self, targets: int) -> float:
        """Return the minimum seconds that the crawl still takes for a number of ``targets``.

        Targets that are not queued yet are only counted.
        """
        unseen = max(0, targets - self.waiting)
        return self.frontier.remaining(self._context.clock.monotonic(), unseen)

    def upcoming(self, count: int) -> list[Request]:
        """Return roughly the next ``count`` requests to be handed out, one for each host.

        They stay in the queue. A gate may deny some of them.
        """
        return [turn.request for turn in self.frontier.upcoming(count)]

    def will_send(self, request: Request) -> bool:
        """Return False if a gate would deny or defer a request now.

        A retry has passed all gates before. Only PacingMiddleware is asked about it, which knows
        the hosts that are deferred.
        """
        gates = self._gates
        if ticket_of(request).attempt and Gate.PACING in gates:
            gates = {Gate.PACING: gates[Gate.PACING]}
        return all(gate.will_pass(request) for gate in gates.values())

    def recheck(self, host: str) -> None:
        """Hand out the requests of a host at once that will not be sent any more.

        Call this after a decision about the host, unless one of its requests has just ended.
        """
        if self._is_open:
            self.frontier.recheck(host)
            self._engine.take_requests()

    def delay(
        self,
        host: str,
        seconds: float,
        delay: float | None = None,
        latency: float | None = None,
    ) -> None:
        """Hand out no request to a host for ``seconds``.

        ``delay`` is the current delay of the host in seconds, ``latency`` the seconds that an
        exchange with it has just taken. After a wait longer than ``WALSH_MAX_WAIT`` the host's
        requests are handed out at once instead, and PacingMiddleware defers each to a later run
        (decision 7).
        """
        if not self._is_open:
            return
        now = self._context.clock.monotonic()
        if latency is not None:
            self.frontier.record_service(host, latency, now)
        is_waited_for = 0.0 < seconds <= self._context.options.max_wait
        self.frontier.wait(host, now + (seconds if is_waited_for else 0.0), delay)

    async def wait_for_room(self) -> None:
        """Wait until fewer than ``MAX_READY_HOSTS`` hosts are ready."""
        await asyncio.sleep(0)  # so that responses are handled between thousands of start requests
        while self.frontier.ready_hosts(self._context.clock.monotonic()) >= MAX_READY_HOSTS:
            await self.wait_for_change()

    async def next_short(self, *, or_room: bool) -> str | None:
        """Return a host with few remaining requests and a backlog, as soon as there is one.

        With ``or_room`` None is returned as soon as the crawl may take a further host instead.
        """
        await asyncio.sleep(0)
        while True:
            if host := self.frontier.short_host():
                return host
            if or_room and self._has_room:
                return None
            await self.wait_for_change()

    async def wait_for_change(self) -> None:
        """Wait until a request is handed out."""
        self._room.clear()
        await self._room.wait()

    def own(
        self, host: str, reason: object, read: Callable[[Connection], object] | None = None
    ) -> PermissionStatus:
        """Own a host, and hold its requests back until it is ready; see ``Hosts.take``."""
        is_new = not self._hosts.has(host)
        status = self._hosts.take(host, reason, read)
        if is_new and status == "ready":
            self.delay(host, self._hosts.wait(host), self._hosts.delay(host) or None)
        return status

    async def take_turn(self, turn: Turn) -> None:
        """Wait for the turn of a fetch. Returns at once in a crawl with another scheduler."""
        if turn.granted is None or not self._is_open:
            return
        self._push(turn)
        self._fetch_turns.add(turn)
        self._engine.take_requests()
        await turn.granted

    def grant_all_turns(self) -> None:
        """Give each waiting fetch its turn now: a gate waits for one of them."""
        for turn in self._fetch_turns:
            if turn.granted is not None and not turn.granted.done():
                turn.granted.set_result(None)

    async def prepare(self, request: Request) -> None:
        """Prepare a request for its gates, one after the other."""
        for place in _ORDER:
            gate = self._gates.get(place)
            if gate is not None:
                await gate.prepare(request)

    def _push_new(self, turn: Turn) -> None:
        """Queue a request, if necessary after the wait that its redirect asked for.

        A request whose wait is too long is handed out, and AddressMiddleware defers it.
        """
        not_before = ticket_of(turn.request).not_before
        wait = not_before - self._context.clock.monotonic()
        if 0.0 < wait <= self._context.options.max_wait:
            heapq.heappush(self._redirected, (not_before, next(self._order), turn))
        else:
            self._push(turn)

    def _next_at(self) -> float | None:
        """Return when the next request may be handed out; None if none waits."""
        moments = [not_before for not_before, _, _ in self._redirected[:1]]
        if (ready_at := self.frontier.next_at()) is not None:
            moments.append(ready_at)
        return min(moments, default=None)

    def _push(self, turn: Turn, *, is_back: bool = False) -> None:
        request = turn.request
        host = self._context.host(request.url)
        self.frontier.push(host, turn, rank_of(request), request.priority, is_back=is_back)

    def _grant(self, host: str, turn: Turn) -> None:
        """Give a fetch its turn, unless it has gone on without a turn or was cancelled."""
        self._fetch_turns.discard(turn)
        if turn.granted is None or turn.granted.done():
            self.frontier.free(host)
        else:
            self._handed_out[host] = self._granted[host] = turn
            turn.granted.set_result(None)

    def _is_ready(self, request: Request) -> bool:
        return all(gate.is_ready(request) for gate in self._gates.values())

    def _has_to_wait(self, turn: Turn) -> bool:
        """Return True for a request that will be sent when its host is ready."""
        return turn.deferral is None and self.will_send(turn.request)

    def _is_redirect_over(self, now: float) -> bool:
        """Return True if the first redirected request does not wait any longer."""
        not_before, _, turn = self._redirected[0]
        return not_before <= now or not self._has_to_wait(turn)

    def _begin_preparing(self, host: str, turn: Turn) -> None:
        """Put a request back, and prepare it; until then its host hands out no target."""
        self._push(turn, is_back=True)
        self.frontier.free(host)
        self.frontier.restrict(Rank.OPERATOR, host)

        self._engine.start(self._prepare_turn(host, turn))
        self._engine.take_requests()

    async def _prepare_turn(self, host: str, turn: Turn) -> None:
        try:
            await self.prepare(turn.request)
        except RequestDeferred as error:
            turn.deferral = error
        except IgnoreRequest:
            pass  # the gate denies it again when the request is handed out
        finally:
            turn.is_prepared = True
            self.frontier.restrict(Rank.TARGET, host)
            self._engine.take_requests()

    @property
    def _is_full(self) -> bool:
        """Whether no further request may be sent: the engine does not count granted turns."""
        sending = [turn for turn in self._granted.values() if not turn.is_over]
        granted = sum(not self._engine.is_active(turn.request) for turn in sending)
        return granted > 0 and granted + self._engine.active_count >= self._max_concurrent

    @property
    def _has_room(self) -> bool:
        ready = self.frontier.ready_hosts(self._context.clock.monotonic())
        return ready < self._hosts.max_ready_hosts

    def _is_out(self, turn: Turn) -> bool:
        if turn.granted is not None:
            return not turn.is_over
        return self._engine.is_active(turn.request)

    def _free_hosts(self) -> None:
        """Free the hosts whose requests have ended.

        The engine takes a request after each end. Scrapy has no signal for every end: there is none
        for a request that a middleware denied.
        """
        for host in [host for host, turn in self._granted.items() if turn.is_over]:
            del self._handed_out[host], self._granted[host]
            self.frontier.free(host)
            if not self.frontier.count(host):
                self._hosts.let_go(host, self)
        for request in self._engine.find_ended(self._sent) if self._sent else ():
            host = self._sent.pop(request)
            del self._handed_out[host]
            self.frontier.free(host)
            keeps = self._is_own and self.frontier.count(host) and self._hosts.may_keep(host)
            self._hosts.let_go(host, request, successor=self if keeps else None)

    def _wake_at(self, moment: float | None, now: float) -> None:
        self.stop_timer()
        if moment is not None:
            self._timer = call_later(max(0.0, moment - now), self._engine.take_requests)


# ---- what waits outside of the queue ----

#: Seconds for which a request waits for a host that another worker owns.
OWNED_HOST_TIMEOUT_SECONDS: Final = 90.0


class HostAccess:
    """Takes hosts, waits for them, and defers requests that would wait too long."""

    def __init__(self, crawl: Crawl) -> None:
        self._is_paced = Gate.PACING in crawl.gates
        self._context = crawl.context
        self._is_own = crawl.kind is Kind.OWN
        self._engine = crawl.engine
        self._stats = crawl.stats
        self._hosts = crawl.hosts
        self._queue = crawl.queue
        self.deferred_requests: WeakSet[Request] = WeakSet()
        #: Method and URL of each deferred request, until it is requested again.
        self.deferred_urls: set[tuple[str, str]] = set()
        #: The hosts whose deferred requests are logged, with one line for each host.
        self.logged_hosts: set[str] = set()
        # The hosts that a request found to be another worker's, with the first and the last time.
        self._owned_by_others: dict[str, tuple[float, float]] = {}

    @asynccontextmanager
    async def owning(self, url: str) -> AsyncIterator[None]:
        """Own the host of a URL in an ``async with`` block; see ``take``."""
        host = self._context.host(url)
        reason = object()
        await self.take(host, reason)
        try:
            yield
        finally:
            self._hosts.let_go(host, reason)

    async def take(self, host: str, reason: object) -> None:
        """Own a host as soon as no other worker owns it.

        Does nothing in a crawl without PacingMiddleware. Raises RequestDeferred if the wait takes
        too long, if another worker has deferred the host, and at the end of the crawl.
        """
        if not self._is_paced:
            return
        began = self._context.clock.monotonic()
        while (result := self._queue.own(host, reason)) == "wait":
            if self._has_waited_too_long(host, began):
                raise self.make_deferral(f"another worker owns {host}")
            await self.sleep(RECHECK_SECONDS)
        self._owned_by_others.pop(host, None)
        if result == "deferred":
            raise self.make_deferral(f"{host} is given up for this run, maybe by another crawl")

    def awaited_from_others(self) -> tuple[str, ...]:
        """Return the hosts that a request waits for until another worker lets them go."""
        since = self._context.clock.monotonic() - 2 * RECHECK_SECONDS
        return tuple(host for host, (_, last) in self._owned_by_others.items() if last >= since)

    def _has_waited_too_long(self, host: str, began: float) -> bool:
        """Return True if a request has waited too long, since it ``began``, for another worker.

        No later run makes the requests of a project's own crawl again, so they wait longer: for
        ``WALSH_MAX_WAIT``, but those of a host together.
        """
        now = self._context.clock.monotonic()
        first, last = self._owned_by_others.get(host, (began, now))
        if now - last > OWNED_HOST_TIMEOUT_SECONDS:  # nobody has asked meanwhile
            first = began
        self._owned_by_others[host] = first, now
        if self._is_own:
            return now - first > max(OWNED_HOST_TIMEOUT_SECONDS, self._context.options.max_wait)
        return now - began > OWNED_HOST_TIMEOUT_SECONDS

    async def sleep(self, seconds: float) -> None:
        """Sleep. Raises RequestDeferred if the spider closes, which Scrapy has no signal for."""
        clock = self._context.clock
        until = clock.monotonic() + seconds
        while (remaining := until - clock.monotonic()) > 0:
            self.check_open(remaining)
            await sleep(min(remaining, RECHECK_SECONDS))

    def check_open(self, seconds: float = 0.0) -> None:
        """Raise RequestDeferred if the spider is closing; the wait would end in ``seconds``."""
        if self._engine.is_closing:
            raise self.make_deferral("the crawl ends", seconds)

    def check_wait(self, request: Request, seconds: float) -> None:
        """Raise RequestDeferred for a wait longer than ``WALSH_MAX_WAIT``.

        If the host itself asks for that wait, its other requests are deferred too, and its sources
        by other workers.
        """
        if seconds > self._context.options.max_wait:
            host = self._context.host(request.url)
            if self._hosts.wait(host) > self._context.options.max_wait:
                self._queue.delay(host, seconds)
                if subject_of(request):
                    self._hosts.give_up(host)
            until = self._context.clock.now() + seconds
            self._stats.inc_value("walsh/pacing/deferred")
            reason = f"{host} must not be requested before {format_moment(until)}"
            raise RequestDeferred(until, reason)

    async def wait_after_redirect(self, request: Request) -> None:
        """Wait as long as the redirect that led to a request asked for (Retry-After).

        A request that a later gate would deny or defer waits for nothing. Raises RequestDeferred
        for a wait longer than ``WALSH_MAX_WAIT``.
        """
        seconds = self.seconds_after_redirect(request)
        if seconds > self._context.options.max_wait:
            until = self._context.clock.now() + seconds
            self._stats.inc_value("walsh/pacing/deferred")
            reason = f"its redirect allows no request before {format_moment(until)}"
            raise RequestDeferred(until, reason)
        while self.seconds_after_redirect(request) > 0.0 and self._queue.will_send(request):
            await self.sleep(min(self.seconds_after_redirect(request), RECHECK_SECONDS))

    def seconds_after_redirect(self, request: Request) -> float:
        """Return the seconds for which the redirect that led to a request still holds it back."""
        return ticket_of(request).not_before - self._context.clock.monotonic()

    def make_deferral(self, reason: str, seconds: float = 0.0) -> StillDue:
        """Count and return the deferral of a request that could be sent after ``seconds``."""
        self._stats.inc_value("walsh/pacing/deferred")
        return StillDue(self._context.clock.now() + seconds, reason)

    def defer(self, request: Request) -> None:
        """Record that a request was deferred: the crawl then ends with the reason "deferred".

        A job keeps a request from the scheduler for its next start, because its duplicate filter
        would drop it when the spider makes it again.
        """
        has_turn = self._queue.turn_of(request) is not None
        if has_turn:
            self.deferred_requests.add(request)
        if has_turn or request.callback is NO_CALLBACK:  # who sent it otherwise knows by its error
            self.deferred_urls.add((request.method, request.url))
