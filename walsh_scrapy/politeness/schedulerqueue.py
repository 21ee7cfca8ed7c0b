"""The host queue of our scheduler: waiting requests by host, handed out as hosts become ready."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING
from weakref import WeakSet

from scrapy.utils.asyncio import CallLaterResult, call_later

from walsh_scrapy.policy.claims import ENOUGH
from walsh_scrapy.policy.frontier import Frontier, Rank
from walsh_scrapy.politeness.hostqueue import HostQueue, Wait
from walsh_scrapy.runtime.requests import marks_of, rank_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scrapy import Request
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.policy.frontier import Turn
    from walsh_scrapy.runtime.context import Context
    from walsh_scrapy.runtime.engine import Engine


class SchedulerQueue(HostQueue):
    """Hands out only requests whose host may be asked now, and sleeps until the next one may.

    ``intervals`` are the spacings of hosts that are known, in seconds. Nothing is kept in a crawl
    with another scheduler, because that does not call ``open``.
    """

    def __init__(
        self,
        context: Context,
        engine: Engine,
        stats: StatsCollector,
        intervals: Mapping[str, float],
    ) -> None:
        super().__init__(context, engine, stats)
        self.deferred: list[Request] = []  #: kept for the next start of the job
        self.enough = ENOUGH  #: ready hosts with which no further start request is needed
        self._is_open = self._keeps_deferred = False
        follows_links = self._context.options.scope == "any"
        self._frontier: Frontier[Request] = Frontier(
            intervals,
            late=self._context.late_hosts,
            unexplored=math.inf if follows_links else 0.0,
        )
        self._room = asyncio.Event()
        self._handed_out: WeakSet[Request] = WeakSet()
        self._out: dict[str, Request] = {}  # by host; one of each at most
        self._sent_back: WeakSet[Request] = WeakSet()
        self._held: dict[str, float] = {}  # by domain: host names on hold, and until when
        self._timer: CallLaterResult | None = None

    def open(self, *, keeps_deferred: bool) -> None:
        """Begin to work for our scheduler; ``keeps_deferred`` if the crawl has a ``JOBDIR``."""
        self._is_open, self._keeps_deferred = True, keeps_deferred

    @property
    def waiting(self) -> int:
        """How many requests wait, ready or not."""
        return len(self._frontier)

    @property
    def asked(self) -> list[str]:
        """The hosts whose requests were handed out and have not ended."""
        return [host for host, request in self._out.items() if self._engine.is_active(request)]

    @property
    def is_restricted(self) -> bool:
        """Whether all targets wait for the blocklist."""
        return self._frontier.is_restricted

    def __iter__(self) -> Iterator[Request]:
        return iter(self._frontier)

    def next_turn(self) -> Turn | None:
        """Return the turn of the host that becomes ready first, or None if no host waits."""
        return self._frontier.next_turn()

    def remaining(self, targets: int) -> float:
        """Return the least seconds that the crawl still takes, for ``targets`` that are not done.

        Those that are not here yet are known by their number only.
        """
        others = max(0, targets - self.waiting)
        return self._frontier.remaining(self._context.clock.monotonic(), others)

    def push(self, request: Request, *, is_back: bool = False) -> None:
        """Keep a request until its host is ready; ``is_back`` if it was handed out before."""
        if fetch := marks_of(request).fetch:
            fetch.idle.set()
        host = self._queued_under(request)
        self._frontier.push(host, request, rank_of(request), request.priority, is_back=is_back)

    def pop(self) -> Request | None:
        """Return a request whose host may be asked now; None if there is none."""
        self._free_hosts()
        now = self._context.clock.monotonic()
        picked = self._frontier.pop(now)
        if self._frontier.ready_hosts(now) < self.enough or self._frontier.short_host():
            self._room.set()
        if picked is None:
            self._wake_at(self._frontier.next_at(), now)
            return None
        host, request = picked
        self._handed_out.add(request)
        self._out[host] = request
        if fetch := marks_of(request).fetch:
            fetch.idle.clear()
        return request

    async def wait(self, request: Request, wait: Wait) -> Request | None:
        """Return None when a request may be sent, or what to send back; see ``HostQueue.wait``."""
        async with wait.quiet():
            seconds = wait.seconds()
        if not seconds:
            return None
        self._check(wait, seconds)
        self.delay(wait.host, seconds)
        if wait.host != self._context.host(request.url):
            self._held[wait.host] = self._context.clock.monotonic() + seconds
        return self.sent_back(request)

    async def wait_for_room(self) -> None:
        """Wait until fewer than ``enough`` hosts are ready, so that a start request is needed."""
        await asyncio.sleep(0)  # so that responses are handled between thousands of start requests
        while not self._has_room:
            self._room.clear()
            await self._room.wait()

    @property
    def _has_room(self) -> bool:
        return self._frontier.ready_hosts(self._context.clock.monotonic()) < self.enough

    async def next_short(self, *, or_room: bool) -> str | None:
        """Return a host that is to get more of its backlog, as soon as there is one.

        With ``or_room`` None is returned if there is none, but room for further hosts.
        """
        await asyncio.sleep(0)
        while True:
            if host := self._frontier.short_host():
                return host
            if or_room and self._has_room:
                return None
            self._room.clear()
            await self._room.wait()

    def at_rest(self) -> dict[str, list[Request]]:
        """Return the requests of each host that could be dropped."""
        return self._frontier.at_rest()

    def drop(self, host: str) -> None:
        """Remove the requests of a host that is at rest."""
        self._frontier.drop(host)
        self._room.set()

    async def wait_for_change(self) -> None:
        """Wait until a request was handed out, or requests were removed."""
        self._room.clear()
        await self._room.wait()

    def expect(self, host: str, backlog: int) -> None:
        """Count requests of a host that are still to come; see ``Frontier.expect``."""
        self._frontier.expect(host, backlog)

    def delay(
        self,
        host: str,
        seconds: float,
        interval: float | None = None,
        latency: float | None = None,
    ) -> None:
        """Send a host no request for ``seconds``; ``interval`` is its spacing in seconds.

        ``latency`` is given after an exchange: the seconds that it took.
        A delay longer than ``WALSH_MAX_WAIT`` is not waited for: the host's requests are handed
        out at once, and the pacing gate defers each (decision 7).
        """
        if not self._is_open:
            return
        now = self._context.clock.monotonic()
        if latency is not None:
            self._frontier.record_service(host, latency, now)
        is_waited_for = 0.0 < seconds <= self._context.options.max_wait
        self._frontier.wait(host, now + (seconds if is_waited_for else 0.0), interval)

    def upcoming(self, count: int) -> list[Request]:
        """Return about the next ``count`` requests to be handed out, one of each host.

        They stay here, and their order is rough. Not every one will be sent: a gate may deny it.
        """
        return self._frontier.upcoming(count)

    def restrict(self, rank: Rank, host: str | None) -> None:
        """Hand out only requests up to ``rank``, for ``host``, or for all hosts if it is None."""
        self._frontier.restrict(rank, host)
        self._engine.ask_for_requests()

    def has_handed_out(self, request: Request) -> bool:
        """Return True if a request was handed out here and not sent yet: it may come back."""
        return request in self._handed_out

    def defer(self, request: Request) -> None:
        """Keep a request that may not go out in this run for the next start of the job.

        Otherwise it would be lost: the job's duplicate filter has seen it (decision 7).
        """
        came_from_here = any(request is each for each in self._out.values())
        if came_from_here and self._keeps_deferred:
            self.deferred.append(request)

    def sent_back(self, request: Request) -> Request:
        """Return a copy of a request, by which a gate sends it back past the duplicate filter.

        The copy has no ``dont_filter``, because a redirect would inherit it and pass all filters.
        """
        copy = request.copy()
        self._sent_back.add(copy)
        return copy

    def takes_back(self, request: Request) -> bool:
        """Return True, once, for a request that a gate sent back."""
        was_sent_back = request in self._sent_back
        self._sent_back.discard(request)
        return was_sent_back

    def sent(self, request: Request) -> None:
        """Record that a request is sent, so that it cannot go back to this queue.

        After a target, the links of its host will be known soon, and with them the host's work.
        """
        self._handed_out.discard(request)
        if rank_of(request) is Rank.TARGET:
            self._frontier.explored(self._context.host(request.url))

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _queued_under(self, request: Request) -> str:
        """Return the host to queue a request under: by domain, a host name on hold by itself.

        So the other hosts of the domain do not wait for its hold (decision 5).
        """
        name = self._context.hold_name(request.url)
        is_held = self._held.get(name, 0.0) > self._context.clock.monotonic()
        return name if is_held else self._context.host(request.url)

    def _free_hosts(self) -> None:
        """Free the hosts whose requests have ended.

        The engine asks for a request after each end. Scrapy has no signal for every end: there is
        none for a request that a middleware denied.
        """
        for host, request in list(self._out.items()):
            if not self._engine.is_active(request):
                del self._out[host]
                self._frontier.free(host)

    def _wake_at(self, moment: float | None, now: float) -> None:
        self.close()
        if moment is not None:
            self._timer = call_later(max(0.0, moment - now), self._engine.ask_for_requests)
