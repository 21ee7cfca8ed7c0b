"""R4: the last gate before the wire leases a host, and releases it after the exchange.

A host that cannot be reached is tried once in a run (decision 28).
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from scrapy import signals
from scrapy.core.downloader import Downloader
from scrapy.downloadermiddlewares.redirect import BaseRedirectMiddleware
from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.utils.asyncio import call_later

from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.inflight import exchange_of
from walsh_scrapy.exceptions import (
    Denied,
    MachineTrouble,
    StateUnavailable,
    Unreachable,
)
from walsh_scrapy.options import bad_setting, number_of
from walsh_scrapy.policy.backoff import is_redirect
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import longest_wait, spacing
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.runtime.components import component_problems
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.runtime.gates import Gate
from walsh_scrapy.runtime.requests import evidence_of, mark, marks_of, rank_of, source_of
from walsh_scrapy.runtime.startup import require_order
from walsh_scrapy.state import StateError
from walsh_scrapy.state.evidence import RequestRecord

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from walsh_scrapy.runtime.startup import Problems

#: Characters of a Retry-After that are recorded; its longest form has 33.
_LONGEST_HEADER: Final = 200
#: Seconds after the end of an exchange until it is written, even if nothing came of it.
LONGEST_UNWRITTEN: Final = 0.05
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
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._put_off = crawl.put_off
        self._pauses = crawl.pauses
        self._in_flight = crawl.in_flight
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

    @staticmethod
    def problems(settings: BaseSettings) -> Problems:
        """Yield an error for settings that hide a response, or delay a request after its lease."""
        yield from component_problems(settings)
        others = (RetryMiddleware, BaseRedirectMiddleware)
        why = "it has to see every response first"
        yield from require_order(settings, Gate.PACING, why, after=others)
        instead = "0 beside PacingMiddleware, which keeps the pauses; set WALSH_MIN_INTERVAL"
        delays = {
            "DOWNLOAD_DELAY": number_of(settings, "DOWNLOAD_DELAY", 0.0, low=0.0, high=math.inf)
        }
        for name, slot in settings.getdict("DOWNLOAD_SLOTS").items():
            delays[f"DOWNLOAD_SLOTS[{name!r}]['delay']"] = slot.get("delay", 0.0)
        for name, delay in delays.items():
            if delay:
                yield bad_setting(name, delay, instead)
        if settings.getbool("AUTOTHROTTLE_ENABLED"):
            yield bad_setting(
                "AUTOTHROTTLE_ENABLED",
                True,
                "False beside PacingMiddleware, which keeps the pauses, longer ones for slow hosts",
            )
        if not number_of(settings, "DOWNLOAD_TIMEOUT", 0.0, low=0.0, high=math.inf):
            yield bad_setting("DOWNLOAD_TIMEOUT", 0, "above 0: a host is leased for that long")

    def is_ready(self, request: Request) -> bool:
        """Return True if this crawl owns the host of a request."""
        return self._hosts.has(self._context.host(request.url))

    async def prepare(self, request: Request) -> None:
        """Own the host of a request before it is asked for anything (decision 41)."""
        await self._queue.take(self._context.host(request.url), request)

    async def process_request(self, request: Request) -> Request | None:
        """Begin an exchange, or let the request wait, or defer it to a later run (decision 7)."""
        turn = self._queue.turn_of(request)
        if turn is None or turn.times_back > _MOST_BACK:
            await self._wait(request)
            return None
        async with self._in_flight.quiet():
            seconds = self._begin(request)
        if not seconds:
            return None
        self._check_wait(request, seconds)
        return self._queue.send_back(turn, seconds)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Release the host: its spacing counts from now, the end of the exchange (decision 2).

        A hold is written in the same transaction, so that a crash cannot lose it.
        """
        self._release(request, response)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Release the host after an exchange that failed, or that never began."""
        if isinstance(exception, MachineTrouble | Denied):
            self._give_back(request, exception)
            return
        self._release(request, None, exception)
        if isinstance(exception, Unreachable):
            request.meta["dont_retry"] = True  # RetryMiddleware (order 550) would make a copy

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Release the host after the exchange of a cancelled request.

        A request made by ``engine.download_async`` may be cancelled; its exchange continues.
        """
        if not self._engine.is_active(request):
            self._release(request, response)

    def left_downloader(self, request: Request) -> None:
        """Release the host after a cancelled request whose exchange failed."""
        if not self._engine.is_active(request):
            self._release(request, None)

    async def _wait(self, request: Request) -> None:
        """Wait in the gate until an exchange has begun: the request cannot go back.

        It did not come from our scheduler, or a middleware asks its host each time it comes.
        """
        host, was_closing = self._context.host(request.url), self._engine.is_closing
        async with self._locks.setdefault(host, asyncio.Lock()):
            while True:
                if self._engine.is_closing and not was_closing:
                    raise self._queue.deferral("the crawl ends")
                await self._queue.take(host, request)
                async with self._in_flight.quiet():
                    seconds = self._begin(request)
                if not seconds:
                    return
                self._check_wait(request, seconds)
                await self._queue.sleep(seconds)

    def _begin(self, request: Request) -> float:
        """Begin an exchange and return 0, or return the seconds after which to try again.

        Raises RequestDeferred or Unreachable if the host was deferred in the meantime.
        """
        marks, name = marks_of(request), host_of(request.url)
        self._put_off.check(name, marks.rank)
        host, timeout = self._context.host(request.url), self._in_flight.timeout(request)
        most = longest_wait(name, marks.rank, self._list_names, for_blocklist=marks.for_blocklist)
        turn = self._context.state.ledger.take(
            host, self._spacing(request), timeout, most=most, record=self._record(request)
        )
        if not turn.wait:
            # In the slot of another host it would wait for that host, and its own lease would end.
            request.meta[Downloader.DOWNLOAD_SLOT] = host
            mark(request, released=True, answered=None)
            self._in_flight.begin(request)
        return turn.wait

    def _check_wait(self, request: Request, seconds: float) -> None:
        """Raise RequestDeferred for a wait that is too long (decision 7)."""
        if seconds > self._context.options.max_wait:
            host = self._context.host(request.url)
            times = self._context.state.ledger.find(host).times
            asked = marks_of(request).robots_interval or 0.0
            by_robots = times.is_by_robots(asked)
            self._queue.check_wait(host, seconds, by_robots=by_robots)

    def _spacing(self, request: Request, latency: float = 0.0) -> float:
        least = max(self._context.options.min_interval, self._pauses.before(request))
        return spacing(least, marks_of(request).robots_interval, latency)

    def _give_back(self, request: Request, error: MachineTrouble | Denied) -> None:
        """Release the host of a request that was never sent: nothing is logged (decision 29)."""
        if self._in_flight.end(request) is None:
            return
        host = self._context.host(request.url)
        self._context.state.ledger.give_back(host)
        if self._queue.turn_of(request) is None:
            self._hosts.let_go(host, request)
        if isinstance(error, MachineTrouble):
            self._put_off.add(host_of(request.url), str(error), error.until)

    def _release(
        self, request: Request, response: Response | None, error: Exception | None = None
    ) -> None:
        latency = self._in_flight.end(request)
        if latency is None:
            return
        host = self._context.host(request.url)
        exchange = exchange_of(request, response, latency, self._spacing(request, latency), error)
        name = host_of(request.url)
        asked = exchange.retry_after
        if name != host:  # one name of a domain that cannot be reached says nothing of the others
            exchange = replace(exchange, unreachable=False)
        record = replace(
            self._record(request),
            sent_at=self._context.clock.now() - latency,
            status=marks_of(request).answered if response is None else response.status,
            seconds=latency,
            monotonic=self._context.clock.monotonic(),
            error="" if response is not None else _words(error, request.url),
            retry_after=asked and asked[:_LONGEST_HEADER],
        )
        # What comes of it is written with it: a robots.txt, or a visit.
        later = exchange.is_calm and not is_redirect(exchange.status)
        snapshot = self._context.state.ledger.release(
            host, exchange, self._context.backoff, record, later=later
        )
        if later:
            call_later(LONGEST_UNWRITTEN, self._write_end, host)
        mark(request, hold=snapshot.hold, seconds=latency)
        wait, until = snapshot.wait, snapshot.now + snapshot.hold
        if isinstance(error, Unreachable):
            self._put_off.add_unreachable(name, error, rank_of(request), until)
            wait = 0.0  # requests that are put off wait for nothing: they end when handed out
        self._queue.delay(host, wait, snapshot.times.interval, latency)
        if self._queue.turn_of(request) is None:
            self._hosts.let_go(host, request)

    def _write_end(self, host: str) -> None:
        """Write the end of an exchange, if what came of it was not written yet."""
        # Then the lease runs out, as after any failed release; at the end the state is closed.
        with suppress(StateUnavailable, StateError):
            self._context.state.ledger.write_end(host)

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
