"""Our scheduler's queue: turns of hosts, and the preparation of requests (decision 25).

    push -> its host becomes ready -> a document is missing: a coroutine prepares it
                                   -> all is known: it is handed out, and the gates decide

A coroutine that fetches robots.txt or the blocklist sends its requests itself. It waits for a turn
of the host in this queue, calls the engine, and takes another turn after a refusal. Requests that
do not come from our scheduler, such as those of ``engine.download_async``, wait in
PacingMiddleware. The engine may take no requests meanwhile, so a coroutine that a gate waits for
needs no turn.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final, Literal, Protocol, get_args
from weakref import WeakSet

from scrapy.exceptions import IgnoreRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.asyncio import CallLaterResult, call_later, sleep

from walsh_scrapy.crawl.ticket import copy_of, note, rank_of, source_of, ticket_of
from walsh_scrapy.exceptions import (
    Denied,
    NotYet,
    RequestDeferred,
    StillDue,
    TooLate,
)
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.frontier import Frontier, Rank
from walsh_scrapy.policy.pacing import RECHECK_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping

    from scrapy import Request
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector
    from sqlalchemy import Connection

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.crawl.documents import Documents
    from walsh_scrapy.crawl.engine import Engine
    from walsh_scrapy.crawl.hosts import Hosts, Taken

#: Ready hosts with which no further start request of a spider is needed.
ENOUGH: Final = 2000
#: Seconds for which a request waits for a host that another worker owns.
PATIENCE: Final = 90.0


class Preparation(Protocol):
    """The facts that a middleware needs before it can decide on a request: by default none."""

    def is_ready(self, request: Request) -> bool:  # noqa: ARG002 - for gates that fetch
        """Return True if nothing must be fetched for a request."""
        return True

    async def prepare(self, request: Request) -> None:
        """Fetch the missing documents. Raises IgnoreRequest for a request that will not be sent."""


class Retries(Protocol):
    """Decides whether a request that was refused is sent again."""

    def record_outcome(self, request: Request, outcome: Response | Exception) -> int | None:
        """Return the number of the next attempt, in which it is sent again; None for no attempt."""


@dataclass(eq=False, slots=True)
class Turn:
    """A request that waits in the queue, or was handed out."""

    request: Request
    granted: asyncio.Future[None] | None = None  #: of a coroutine that sends the request itself
    is_prepared: bool = False  #: once per turn: then the gates decide
    is_over: bool = False  #: of a coroutine
    times_back: int = 0  #: the number of times that PacingMiddleware sent it back


#: The order in which middlewares prepare a request; pacing takes its host.
Place = Literal["address", "blocklist", "scope", "privatehosts", "pacing", "robots"]
_PLACES: Final[tuple[Place, ...]] = get_args(Place)


class Queue:
    """Hands out only requests whose host is ready, and sleeps until the next one may.

    ``delays`` are those of hosts that are known, in seconds. In a crawl with another scheduler
    nothing waits here, because that does not call ``open``.
    """

    def __init__(
        self,
        context: Context,
        engine: Engine,
        stats: StatsCollector,
        hosts: Hosts,
        documents: Documents,
        delays: Mapping[str, float],
        most: int,
    ) -> None:
        self._context = context
        self._engine = engine
        self._stats = stats
        self._hosts = hosts
        self._documents = documents
        self._most = most if most > 0 else math.inf  # requests at once
        self.deferred: WeakSet[Request] = WeakSet()
        #: The method and URL of deferred requests that were not requested again since.
        self.deferrals: set[tuple[str, str]] = set()
        self._announced: set[str] = set()
        self._is_open = False
        #: The requests that wait, by host.
        self.frontier: Frontier[Turn] = Frontier(
            delays, late=context.late_hosts, follows_links=context.options.scope == "any"
        )
        # Redirected requests that wait for longer than their host, by the end of that wait.
        self._redirected: list[tuple[float, int, Turn]] = []
        self._order = count()
        self._gates: dict[Place, Preparation] = {}
        self._retries: Retries | None = None
        self._room = asyncio.Event()
        self._out: dict[str, Turn] = {}  # by host; one of each at most
        self._asking: set[Turn] = set()  # of coroutines, in the line of their hosts
        self._fetches: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters = 0  # gates that wait for a coroutine
        self._timer: CallLaterResult | None = None
        self._sweep: Callable[[], None] = lambda: None

    def open(self) -> None:
        """Begin to work for our scheduler."""
        self._is_open = True

    def prepare_by(self, place: Place, gate: Preparation) -> None:
        """Let a middleware that is in force prepare requests."""
        self._gates[place] = gate

    def retry_by(self, retries: Retries) -> None:
        """Let a middleware that is in force decide whether documents are requested again."""
        self._retries = retries

    def sweep_by(self, sweep: Callable[[], None]) -> None:
        """Set the function that ends the exchanges that are over although no event came."""
        self._sweep = sweep

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Cancel the coroutines: the engine has stopped."""
        for task in self._tasks:
            task.cancel()

    # For the scheduler

    @property
    def waiting(self) -> int:
        """The number of requests that wait, ready or not, except for those of coroutines."""
        return len(self.frontier) - len(self._asking) + len(self._redirected)

    def push(self, request: Request) -> None:
        """Keep a request until its host is ready; one that was handed out comes back first."""
        turn = self.turn_of(request)
        if turn is None:
            self.deferrals.discard((request.method, request.url))
            self._push_new(Turn(request))
            return
        host = self._context.host(request.url)
        del self._out[host]  # its host stays owned
        turn.is_prepared = False
        self._push(turn, is_back=True)
        self.frontier.free(host)

    def pop(self) -> Request | None:
        """Return a request whose host is ready; None if there is none.

        A request that is not prepared goes back, and a coroutine prepares it. Its preparation
        begins in a moment, so no other host goes first.
        """
        self._free_hosts()
        now, found = self._context.clock.monotonic(), None
        while self._redirected and self._redirected[0][0] <= now:
            self._push(heapq.heappop(self._redirected)[2])
        while found is None and not self._is_full:
            picked = self.frontier.pop(now)
            if picked is None:
                self._wake_at(self._next_at(), now)
                break
            host, turn = picked
            if turn.granted is not None:
                self._grant(host, turn)
            elif turn.is_prepared or self._is_ready(turn.request):
                self._out[host] = turn
                self._hosts.keep(host, turn.request)
                found = turn.request
            else:
                self._begin_preparing(host, turn)
                break
        if self._has_room or self.frontier.short_host():
            self._room.set()
        return found

    def turn_of(self, request: Request) -> Turn | None:
        """Return the turn in which a request is out, if it may come back."""
        turn = self._out.get(self._context.host(request.url))
        return turn if turn is not None and turn.request is request else None

    def sent(self, request: Request) -> None:
        """Note that a target is sent: the links of its host will be known soon, and its work."""
        if rank_of(request) is Rank.TARGET:
            self.frontier.explored(self._context.host(request.url))

    def send_back(self, turn: Turn, seconds: float) -> Request:
        """Return the request that pacing sends back; its host is ready in ``seconds``.

        Raises NotYet for the request of a coroutine, which takes another turn.
        """
        self.delay(self._context.host(turn.request.url), seconds)
        if turn.granted is not None:
            raise NotYet
        turn.times_back += 1
        return turn.request

    def defer(self, request: Request) -> None:
        """Note that a request from the scheduler must not go out in this run (decision 7).

        The crawl then ends with the reason "deferred", and a job keeps the request for its next
        start: its duplicate filter has seen it.
        """
        if any(turn.request is request for turn in self._out.values()):
            self.deferred.add(request)
            self.deferrals.add((request.method, request.url))

    def announce(self, host: str) -> int | None:
        """Return the number of requests that wait for a host; None after the first call for it.

        So a log names a host once, and not each of its requests.
        """
        if host in self._announced:
            return None
        self._announced.add(host)
        return self.frontier.count(host)

    # For pacing, the visits and the progress

    @property
    def in_flight(self) -> list[str]:
        """The hosts with a request in flight."""
        return [host for host, turn in self._out.items() if self._is_out(turn)]

    def remaining(self, targets: int) -> float:
        """Return the least seconds that the crawl still takes, for ``targets`` that are not done.

        Those that are not here yet are known by their number only.
        """
        others = max(0, targets - self.waiting)
        return self.frontier.remaining(self._context.clock.monotonic(), others)

    def upcoming(self, count: int) -> list[Request]:
        """Return about the next ``count`` requests to be handed out, one of each host.

        They stay here, and their order is rough. A gate may deny some of them.
        """
        return [turn.request for turn in self.frontier.upcoming(count)]

    def delay(
        self,
        host: str,
        seconds: float,
        delay: float | None = None,
        latency: float | None = None,
    ) -> None:
        """Send a host no request for ``seconds``; ``delay`` is its delay in force, in seconds.

        ``latency`` is given after an exchange: the seconds that it took. A wait longer than
        ``WALSH_MAX_WAIT`` is not waited for: the host's requests are handed out at once, and
        PacingMiddleware defers each (decision 7).
        """
        if not self._is_open:
            return
        now = self._context.clock.monotonic()
        if latency is not None:
            self.frontier.record_service(host, latency, now)
        is_waited_for = 0.0 < seconds <= self._context.options.max_wait
        self.frontier.wait(host, now + (seconds if is_waited_for else 0.0), delay)

    async def wait_for_room(self) -> None:
        """Wait until few hosts are ready, so that a start request of the spider is needed."""
        await asyncio.sleep(0)  # so that responses are handled between thousands of start requests
        while self.frontier.ready_hosts(self._context.clock.monotonic()) >= ENOUGH:
            await self.wait_for_change()

    async def next_short(self, *, or_room: bool) -> str | None:
        """Return a host that is to get more of its backlog, as soon as there is one.

        With ``or_room`` None is returned if there is none, but further hosts may come.
        """
        await asyncio.sleep(0)
        while True:
            if host := self.frontier.short_host():
                return host
            if or_room and self._has_room:
                return None
            await self.wait_for_change()

    async def wait_for_change(self) -> None:
        """Wait until a request was handed out."""
        self._room.clear()
        await self._room.wait()

    # Coroutines that send requests

    async def once(self, key: str, fetch: Callable[[], Coroutine[None, None, None]]) -> None:
        """Wait for the fetch of a document, and begin it if necessary. Raises its exception."""
        task = self._fetches.get(key)
        if task is None:
            task = self._fetches[key] = self.start(fetch())
            task.add_done_callback(lambda _: self._fetches.pop(key, None))
        await asyncio.wait([task])
        if task.cancelled():
            raise self.deferral("the crawl ended")
        task.result()

    @contextmanager
    def in_gate(self) -> Iterator[None]:
        """Let coroutines go on without turns, because a gate waits for one of them."""
        self._waiters += 1
        for turn in self._asking:
            if turn.granted is not None and not turn.granted.done():
                turn.granted.set_result(None)
        try:
            yield
        finally:
            self._waiters -= 1

    async def send(
        self,
        request: Request,
        rank: Rank,
        limited: Callable[[Request], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> Response:
        """Send the request for a document when its turn comes, again after a refusal.

        Each try is made within the context manager that ``limited`` returns. Raises the exceptions
        of ``Documents``.
        """
        request.dont_filter, request.callback = True, NO_CALLBACK
        # Middlewares that know these leave the documents alone, as Scrapy's own do.
        request.meta.update(dont_cache=True, dont_obey_robotstxt=True)
        note(request, rank=rank)
        while True:
            sent = copy_of(request)  # a middleware of the project may change it
            with suppress(Denied):  # the gate denies it again, and records that
                await self._prepare(sent)
            turn = Turn(sent, asyncio.get_running_loop().create_future())
            host = self._context.host(sent.url)
            try:
                await self._take_turn(turn)
                with limited(sent):
                    response = await self._fetch(sent)
            except (NotYet, TooLate):
                continue
            except Exception as error:
                attempt = self._next_attempt(sent, error)
                if attempt is None:
                    raise
            else:
                attempt = self._next_attempt(sent, response)
                if attempt is None:
                    return self._documents.read(sent, response)
            finally:
                turn.is_over = True
                self._hosts.let_go(host, sent)
                self._engine.take_requests()
            note(request, attempt=attempt)

    async def _fetch(self, request: Request) -> Response:
        outcome: Response | Exception
        with self._documents.fetching(request) as delivery:
            try:
                outcome = await self._engine.download(request)
            except Exception as error:  # noqa: BLE001 - the download handler's own counts
                outcome = error
            self._sweep()
        return self._documents.response_of(delivery, outcome)

    def _next_attempt(self, request: Request, outcome: Response | Exception) -> int | None:
        return None if self._retries is None else self._retries.record_outcome(request, outcome)

    @asynccontextmanager
    async def owning(self, url: str) -> AsyncIterator[None]:
        """Own the host of a URL meanwhile; see ``take``."""
        host, reason = self._context.host(url), object()
        await self.take(host, reason)
        try:
            yield
        finally:
            self._hosts.let_go(host, reason)

    async def take(self, host: str, reason: object) -> None:
        """Own a host as soon as no other worker does. Nobody does in a crawl that is not paced.

        Raises RequestDeferred if that takes too long, if the host was deferred by another worker,
        and at the end of the crawl.
        """
        if "pacing" not in self._gates:
            return
        until = self._context.clock.monotonic() + PATIENCE
        while (taken := self.own(host, reason)) == "busy":
            if self._context.clock.monotonic() > until:
                raise self.deferral(f"another worker owns {host}")
            await self.sleep(RECHECK_SECONDS)
        if taken == "deferred":
            raise self.deferral(f"{host} is given up for this run, maybe by another crawl")

    def own(
        self, host: str, reason: object, read: Callable[[Connection], object] | None = None
    ) -> Taken:
        """Own a host, and from then on know its wait; see ``Hosts.take``."""
        is_new = not self._hosts.has(host)
        taken = self._hosts.take(host, reason, read)
        if is_new and taken == "ours":
            self.delay(host, self._hosts.wait(host), self._hosts.delay(host) or None)
        return taken

    async def sleep(self, seconds: float) -> None:
        """Sleep in short steps. Raises RequestDeferred if the spider closes: there is no signal."""
        clock = self._context.clock
        until = clock.monotonic() + seconds
        while (left := until - clock.monotonic()) > 0:
            self.check_open(left)
            await sleep(min(left, RECHECK_SECONDS))

    def check_open(self, seconds: float = 0.0) -> None:
        """Raise RequestDeferred if the spider closes; the request could be sent in ``seconds``."""
        if self._engine.is_closing:
            raise self.deferral("the crawl ends", seconds)

    def check_wait(self, request: Request, seconds: float) -> None:
        """Raise RequestDeferred for a wait longer than ``WALSH_MAX_WAIT`` (decision 7).

        If the host itself wants that, other workers defer its sources too.
        """
        if seconds > self._context.options.max_wait:
            host = self._context.host(request.url)
            if source_of(request) and self._hosts.wait(host) > self._context.options.max_wait:
                self._hosts.give_up(host)
            until = self._context.clock.now() + seconds
            self._stats.inc_value("walsh/pacing/deferred")
            reason = f"{host} must not be requested before {format_moment(until)}"
            raise RequestDeferred(until, reason)

    async def wait_after_redirect(self, request: Request) -> None:
        """Wait as long as the redirect that led to a request asked for (Retry-After).

        Raises RequestDeferred for a wait longer than ``WALSH_MAX_WAIT``.
        """
        seconds = self._redirect_wait(request)
        if seconds > self._context.options.max_wait:
            until = self._context.clock.now() + seconds
            self._stats.inc_value("walsh/pacing/deferred")
            reason = f"its redirect allows no request before {format_moment(until)}"
            raise RequestDeferred(until, reason)
        if seconds > 0.0:
            await self.sleep(seconds)

    def _redirect_wait(self, request: Request) -> float:
        return ticket_of(request).not_before - self._context.clock.monotonic()

    def deferral(self, reason: str, seconds: float = 0.0) -> StillDue:
        """Return the deferral of a request that could be sent after ``seconds``."""
        self._stats.inc_value("walsh/pacing/deferred")
        return StillDue(self._context.clock.now() + seconds, reason)

    def _push_new(self, turn: Turn) -> None:
        """Queue a request; after a redirect with Retry-After not before the end of its wait.

        One whose wait is too long is handed out, and AddressMiddleware defers it.
        """
        wait = self._redirect_wait(turn.request)
        if 0.0 < wait <= self._context.options.max_wait:
            not_before = ticket_of(turn.request).not_before
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

    async def _take_turn(self, turn: Turn) -> None:
        if turn.granted is None or self._waiters or not self._is_open:
            return
        self._push(turn)
        self._asking.add(turn)
        self._engine.take_requests()
        await turn.granted

    def _grant(self, host: str, turn: Turn) -> None:
        """Give a coroutine its turn, unless it did not wait for it, or was cancelled."""
        self._asking.discard(turn)
        if turn.granted is None or turn.granted.done():
            self.frontier.free(host)
        else:
            self._out[host] = turn
            turn.granted.set_result(None)

    def _is_ready(self, request: Request) -> bool:
        return all(gate.is_ready(request) for gate in self._gates.values())

    def _begin_preparing(self, host: str, turn: Turn) -> None:
        """Put a request back, and prepare it; its host hands out no target meanwhile."""
        self._push(turn, is_back=True)
        self.frontier.free(host)
        self.frontier.restrict(Rank.OPERATOR, host)

        async def prepare() -> None:
            try:
                await self._prepare(turn.request)
            except IgnoreRequest:
                pass  # the gate denies it again when the request is handed out
            finally:
                turn.is_prepared = True
                self.frontier.restrict(Rank.TARGET, host)
                self._engine.take_requests()

        self.start(prepare())
        self._engine.take_requests()

    async def _prepare(self, request: Request) -> None:
        """Prepare a request, gate by gate, in the order in which they decide."""
        for place in _PLACES:
            gate = self._gates.get(place)
            if gate is not None:
                await gate.prepare(request)

    @contextmanager
    def restricted(self) -> Iterator[None]:
        """Hand out no target: all wait for the blocklist."""
        self.frontier.restrict(Rank.OPERATOR)
        try:
            yield
        finally:
            self.frontier.restrict(Rank.TARGET)
            self._engine.take_requests()

    def start(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a coroutine of ours; an error in it ends the crawl, which otherwise cancels it."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End the crawl if a coroutine failed: that is our fault (decision 29)."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, IgnoreRequest):
            self._engine.code_failed(error)

    @property
    def _is_full(self) -> bool:
        """Whether as many requests are out as may be: the engine does not know granted turns."""
        sending = [turn for turn in self._out.values() if turn.granted and not turn.is_over]
        granted = sum(not self._engine.is_active(turn.request) for turn in sending)
        return granted > 0 and granted + self._engine.active_count >= self._most

    @property
    def _has_room(self) -> bool:
        return self.frontier.ready_hosts(self._context.clock.monotonic()) < self._hosts.enough

    def _is_out(self, turn: Turn) -> bool:
        if turn.granted is not None:
            return not turn.is_over
        return self._engine.is_active(turn.request)

    def _free_hosts(self) -> None:
        """Free the hosts whose requests have ended.

        The engine takes a request after each end. Scrapy has no signal for every end: there is none
        for a request that a middleware denied.
        """
        self._sweep()
        for host, turn in list(self._out.items()):
            if not self._is_out(turn):
                del self._out[host]
                self.frontier.free(host)
                if turn.granted is None:
                    self._hosts.let_go(host, turn.request)

    def _wake_at(self, moment: float | None, now: float) -> None:
        self.close()
        if moment is not None:
            self._timer = call_later(max(0.0, moment - now), self._engine.take_requests)
