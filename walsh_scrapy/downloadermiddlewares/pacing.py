"""R4: the last gate before the wire takes the host's lease, and gives it back with its end time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy.utils.asyncio import sleep

from walsh_scrapy import meta
from walsh_scrapy.crawl import Crawl
from walsh_scrapy.exceptions import RequestDeferred
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import spacing
from walsh_scrapy.scheduler import scheduler_of
from walsh_scrapy.state.wirelog import Exchange

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.policy.pacing import HostTimes

logger = logging.getLogger(__name__)


class PacingMiddleware:
    """One request at a time to a host, none too soon, whoever else shares the state (order 890)."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._out: WeakKeyDictionary[Request, float] = WeakKeyDictionary()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        """Let a request out, or send it back to wait, or defer it to a later run (ruling 7)."""
        host = self._crawl.host(request.url)
        while wait := self._wait_for(request, host):
            if wait > self._crawl.options.max_wait:
                self._defer(host, wait)
            scheduler = scheduler_of(self._crawler)
            if scheduler is not None and scheduler.came_from_here(request):
                scheduler.wait(host, wait)
                return scheduler.again(request)
            # Fetched from within another part of Scrapy, which knows no "later".
            await sleep(wait)
        self._out[request] = self._crawl.ticks()
        return None

    async def process_response(self, request: Request, response: Response) -> Response:
        """Give the host back: its spacing counts from now, the end of the exchange (ruling 2).

        A hold is written with it: a crawl that dies the next moment has not forgotten it.
        """
        retry_after = response.headers.get("Retry-After")
        self._release(request, response.status, retry_after=retry_after)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Give the host back after an exchange that failed."""
        self._release(request, None, f"{type(exception).__name__}: {exception}"[:500])

    def _wait_for(self, request: Request, host: str) -> float:
        """Take the host's lease; return 0, or the seconds until it may be asked for again."""
        timeout = request.meta.get("download_timeout") or self._crawler.settings.getfloat(
            "DOWNLOAD_TIMEOUT"
        )
        return self._crawl.state.ledger.take(host, self._spacing(request), timeout)

    def _spacing(self, request: Request, latency: float = 0.0) -> float:
        options = self._crawl.options
        asked = request.meta.get(meta.INTERVAL)
        return spacing(options.min_interval, asked, options.latency_factor, latency)

    def _defer(self, host: str, wait: float) -> None:
        until = self._crawl.now() + wait
        self._crawler.stats.inc_value("walsh/pacing/deferred")
        raise RequestDeferred(until, f"{host} may not be asked before {format_moment(until)}")

    def _release(
        self,
        request: Request,
        status: int | None,
        error: str = "",
        retry_after: bytes | None = None,
    ) -> None:
        taken_at = self._out.pop(request, None)
        if taken_at is None:
            return
        host = self._crawl.host(request.url)
        latency = self._crawl.ticks() - taken_at
        interval = self._spacing(request, latency)
        gates = "; ".join(f"{gate}: {answer}" for gate, answer in meta.gates(request).items())
        sent_at = self._crawl.now() - latency
        exchange = Exchange(sent_at, host, request.url, gates, status, latency, error)

        def held(times: HostTimes, now: float) -> HostTimes:
            return self._crawl.backoff.after(
                times,
                now,
                now - latency,
                status or 0,
                None if retry_after is None else retry_after.decode("latin-1"),
                for_robots=meta.rank(request) is Rank.ROBOTS,
            )

        standing = self._crawl.state.ledger.release(host, interval, exchange, held)
        request.meta[meta.HELD] = standing.times.hold_until - standing.now
        if scheduler := scheduler_of(self._crawler):
            scheduler.wait(host, standing.rest, interval)
