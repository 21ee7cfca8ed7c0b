"""R4: the last gate before the wire leases a host, and releases it after the exchange.

A host that cannot be reached is tried once in a run (decision 28).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from scrapy import signals
from scrapy.core.downloader import Downloader

from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.hosts import HostLost
from walsh_scrapy.crawl.inflight import exchange_of
from walsh_scrapy.crawl.startup import Gate, in_force
from walsh_scrapy.crawl.ticket import evidence_of, mark, marks_of, rank_of, source_of
from walsh_scrapy.exceptions import (
    Denied,
    MachineTrouble,
    StoodStill,
    TooLate,
    Unreachable,
)
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import RECHECK_SECONDS, delay_after, longest_wait
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state.hosts import Ask
from walsh_scrapy.state.log import RequestRecord

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


#: Characters of a Retry-After that are recorded; its longest form has 33.
_LONGEST_HEADER: Final = 200
#: How often a request goes back to the scheduler; then it waits in the gate.
_MOST_BACK: Final = 1
_PURPOSES: Final = {Rank.OPERATOR: "blocklist", Rank.ROBOTS: "robots", Rank.TARGET: "target"}


class PacingMiddleware:
    """Sends one request at a time to a host, and keeps its spacing and holds (order 890).

    This holds across all processes that share the state. With ``WALSH_SERIAL`` the process sends
    one request at a time to all hosts, also for other serial crawls in it, and for requests that
    did not come from the scheduler.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._context = crawl.context
        self._engine = crawl.engine
        self._queue = crawl.queue
        self._queue.prepare_by("pacing", self)
        self._hosts = crawl.hosts
        self._network = crawl.network
        self._queue.sweep = crawl.in_flight.sweep = self.sweep
        self._responses: WeakKeyDictionary[Request, Response] = WeakKeyDictionary()
        self._left: WeakSet[Request] = WeakSet()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._put_off = crawl.put_off
        self._pauses = crawl.pauses
        self._in_flight = crawl.in_flight
        self._settles_urls = bool(in_force(crawl.settings, Gate.ADDRESS))
        options = crawl.context.options
        urls = options.blocklist_url, options.blocklist_schema_url
        self._list_names = frozenset(host_of(url) for url in urls if url)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        gate = cls(Crawl.of(crawler))
        crawler.signals.connect(gate.response_downloaded, signal=signals.response_downloaded)
        crawler.signals.connect(gate.left_downloader, signal=signals.request_left_downloader)
        return gate

    def is_ready(self, request: Request) -> bool:
        """Return True if this crawl owns the host of a request."""
        return self._hosts.has(self._context.host(request.url))

    async def prepare(self, request: Request) -> None:
        """Own the host of a request before it is asked for anything (decision 41)."""
        await self._queue.take(self._context.host(request.url), request)

    async def process_request(self, request: Request) -> Request | None:
        """Begin an exchange, or let the request wait, or defer it to a later run (decision 7)."""
        self._network.check_route(request)
        turn, host = self._queue.turn_of(request), self._context.host(request.url)
        if turn is None or turn.times_back > _MOST_BACK or self._hosts.is_busy(host):
            await self._wait(request)
            return None
        async with self._in_flight.quiet():
            seconds = self._begin(request)
        if seconds is None:
            seconds = self._after_loss(request)
        elif not seconds:
            return None
        self._queue.check_wait(self._context.host(request.url), seconds)
        return self._queue.send_back(turn, seconds)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Release the host: its spacing counts from now, the end of the exchange (decision 2).

        A hold is written in the same transaction, so that a crash cannot lose it.
        """
        self._release(request, self._responses.pop(request, response))
        return response

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Release the host after an exchange that failed, or that never began."""
        is_unsent = isinstance(exception, MachineTrouble | Denied | TooLate)
        was_sent = isinstance(exception, StoodStill) or not is_unsent
        if not (was_sent and marks_of(request).reached):
            self._give_back(request, exception)
            turn = self._queue.turn_of(request)
            is_late = isinstance(exception, TooLate) and turn is not None
            return self._queue.send_back(turn, 0.0) if is_late and turn else None
        self._release(request, None, exception)
        if isinstance(exception, Unreachable):
            request.meta["dont_retry"] = True  # RetryMiddleware (order 550) would make a copy
        return None

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Keep the response, which a middleware nearer to the wire may change or hide.

        Release the host after the exchange of a cancelled request. A request made by
        ``engine.download_async`` may be cancelled; its exchange continues.
        """
        self._responses[request] = response
        if not self._engine.is_active(request):
            self._release(request, response)

    def left_downloader(self, request: Request) -> None:
        """Release the host after a cancelled request whose exchange failed."""
        self._left.add(request)
        if not self._engine.is_active(request):
            self._release(request, None)

    def sweep(self) -> None:
        """Release the hosts of exchanges that are over, although no other method was called.

        A middleware nearer to the wire may have hidden the response, or have raised an exception.
        A cancelled request is not active any more, but its exchange goes on until it has left.
        """
        for request in self._hosts.in_flight:
            is_out = marks_of(request).reached and request not in self._left
            if not is_out and not self._engine.is_active(request):
                self._release(request, self._responses.pop(request, None))

    async def _wait(self, request: Request) -> None:
        """Wait in the gate until an exchange has begun: the request cannot go back.

        It did not come from our scheduler, or a middleware asks its host each time it comes.
        """
        host, was_closing = self._context.host(request.url), self._engine.is_closing
        try:
            async with self._locks.setdefault(host, asyncio.Lock()):
                await self._wait_for(host, request, was_closing=was_closing)
        except BaseException:
            self._let_go_inline(request, host)
            raise

    async def _wait_for(self, host: str, request: Request, *, was_closing: bool) -> None:
        while True:
            await self._queue.take(host, request)
            while self._hosts.is_busy(host):  # by a request of ours, which ends soon
                await self._queue.sleep(RECHECK_SECONDS)
                self.sweep()
            async with self._in_flight.quiet():
                if self._engine.is_closing and not was_closing:
                    raise self._queue.deferral("the crawl ends")
                seconds = self._begin(request)
            if seconds is None:
                seconds = self._after_loss(request)
            elif not seconds:
                return
            self._queue.check_wait(host, seconds)
            await self._queue.sleep(seconds)

    def _begin(self, request: Request) -> float | None:
        """Begin an exchange and return 0, or return the seconds after which to try again.

        None says that another worker owns the host by now. Raises RequestDeferred or Unreachable if
        the host was deferred in the meantime.
        """
        marks, name = marks_of(request), host_of(request.url)
        if not marks.settled and self._settles_urls:
            raise Denied("address", f"{request.url} is not the URL that all gates have judged")
        self._put_off.check(name, marks.rank)
        host = self._context.host(request.url)
        most = longest_wait(name, marks.rank, self._list_names, for_blocklist=marks.for_blocklist)
        ask = Ask(self._delay(request), self._in_flight.timeout(request), most)
        seconds = self._hosts.begin(request, host, ask, self._record(request))
        if seconds == 0.0:
            # In the slot of another host it would wait for that host, and its time would be over.
            request.meta[Downloader.DOWNLOAD_SLOT] = host
            mark(request, released=True, reached=False, sent=None, answered=None)
            self._in_flight.begin(request)
        return seconds

    def _after_loss(self, request: Request) -> float:
        """Return after how many seconds to take a host again that was lost.

        Raises HostLost for the request of a visit: its source may have been visited since.
        """
        if source_of(request) is not None:
            reason = f"{self._context.host(request.url)} was lost to another worker"
            raise HostLost(self._context.clock.now(), reason)
        return RECHECK_SECONDS

    def _delay(self, request: Request, latency: float = 0.0) -> float:
        least = max(self._context.options.min_interval, self._pauses.before(request))
        return delay_after(least, marks_of(request).robots_interval, latency)

    def _give_back(self, request: Request, error: Exception) -> None:
        """Release the host of a request that was never sent: nothing is logged (decision 29)."""
        if self._in_flight.end(request) is None:
            return
        host = self._hosts.asked_by(request)
        self._hosts.withdraw(request, host)
        self._let_go_inline(request, host)
        if isinstance(error, MachineTrouble):
            self._put_off.add(host_of(request.url), str(error), error.until)

    def _release(
        self, request: Request, response: Response | None, error: Exception | None = None
    ) -> None:
        latency = self._in_flight.end(request)
        if latency is None:
            return
        host = self._hosts.asked_by(request)
        exchange = exchange_of(request, response, latency, self._delay(request, latency), error)
        name = host_of(request.url)
        asked = exchange.retry_after
        if name != host:
            exchange = exchange.of_domain()
        record = replace(
            self._record(request),
            sent_at=self._context.clock.now() - latency,
            status=marks_of(request).answered if response is None else response.status,
            seconds=latency,
            monotonic=self._context.clock.monotonic(),
            error="" if response is not None else _words(error, request.url),
            retry_after=asked and asked[:_LONGEST_HEADER],
        )
        snapshot = self._hosts.end(request, host, exchange, record)
        mark(request, hold=snapshot.hold, seconds=latency)
        wait, until = snapshot.wait, snapshot.now + snapshot.hold
        if isinstance(error, Unreachable):
            self._put_off.add_unreachable(name, error, rank_of(request), until)
            wait = 0.0  # requests that are put off wait for nothing: they end when handed out
        self._queue.delay(host, wait, snapshot.times.delay, latency)
        self._let_go_inline(request, host)

    def _let_go_inline(self, request: Request, host: str) -> None:
        """Let go of the host of a request that did not come from our scheduler."""
        if self._queue.turn_of(request) is None:
            self._hosts.let_go(host, request)

    def _record(self, request: Request) -> RequestRecord:
        """Return what is known of a request before it is sent."""
        marks = marks_of(request)
        return RequestRecord(
            sent_at=self._context.clock.now(),
            host=self._context.host(request.url),
            url=request.url,
            gates="; ".join(f"{gate}: {answer}" for gate, answer in marks.answers.items()),
            run=self._context.run,
            purpose=_PURPOSES[marks.rank],
            evidence=evidence_of(request),
            source=None if (source := source_of(request)) is None else source.url,
        )


def _words(error: Exception | None, url: str) -> str:
    """Return why there was no response, for the log of requests."""
    if error is None:
        return "cancelled, and no response came"
    return reason_of(error, url)
