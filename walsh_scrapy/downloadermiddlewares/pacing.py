"""R4: the last gate before the wire takes the host's lease, and gives it back with its end time."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.core.downloader import Downloader
from scrapy.downloadermiddlewares.redirect import BaseRedirectMiddleware
from scrapy.downloadermiddlewares.retry import RetryMiddleware

from walsh_scrapy.options import bad_setting, number_of
from walsh_scrapy.policy.pacing import spacing
from walsh_scrapy.politeness.holds import hold_after
from walsh_scrapy.politeness.hostqueue import Turns
from walsh_scrapy.politeness.inflight import Wire
from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.context import Crawl
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.runtime.startup import check_floor, require_order
from walsh_scrapy.scheduler import scheduler_of
from walsh_scrapy.state.wirelog import Exchange

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings


class PacingMiddleware:
    """One request at a time to a host, none too soon, whoever else shares the state (order 890).

    With ``WALSH_SERIAL`` one at a time to all hosts, whatever came past the scheduler, and whatever
    other serial crawls there are in the process.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._turns = Turns(crawler, "pacing")
        serial = self._crawl.options.serial
        self._wire = Wire(crawler.settings, serial=serial)
        self._quiet = self._wire.silence_everywhere if serial else nullcontext

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        check_floor(crawler, _floor)
        gate = cls(crawler)
        crawler.signals.connect(gate.response_downloaded, signal=signals.response_downloaded)
        crawler.signals.connect(gate.left_downloader, signal=signals.request_left_downloader)
        return gate

    async def process_request(self, request: Request) -> Request | None:
        """Let a request out, or let it wait, or defer it to a later run (decision 7)."""
        host = self._crawl.host(request.url)
        return await self._turns.wait(request, host, lambda: self._take(request, host), self._quiet)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Give the host back: its spacing counts from now, the end of the exchange (decision 2).

        A hold is written with it: a crawl that dies the next moment has not forgotten it.
        """
        self._release(request, response)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Give the host back after an exchange that failed."""
        self._release(request, None, reason_of(exception, request.url))

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Give the host back after an exchange that nobody waits for any more.

        Whoever made a request by ``engine.download_async`` may cancel it; it goes on all the same.
        """
        if self._is_cancelled(request):
            self._release(request, response)

    def left_downloader(self, request: Request) -> None:
        """Give the host back after an exchange that failed when nobody waited for it any more."""
        if self._is_cancelled(request):
            self._release(request, None, "cancelled, then without an answer")

    def _is_cancelled(self, request: Request) -> bool:
        return request not in self._crawler.engine.downloader.active

    def _take(self, request: Request, host: str) -> float:
        """Take the host's lease; return 0, or the seconds until it may be asked for again."""
        timeout = self._wire.timeout(request)
        wait = self._crawl.state.ledger.take(host, self._spacing(request), timeout)
        if not wait:
            # In a slot of others a request would wait for them while its lease runs out.
            request.meta[Downloader.DOWNLOAD_SLOT] = host
            self._wire.went_out(request, host)
        return wait

    def _spacing(self, request: Request, latency: float = 0.0) -> float:
        options = self._crawl.options
        asked = request.meta.get(meta.INTERVAL)
        return spacing(options.min_interval, asked, options.latency_factor, latency)

    def _release(self, request: Request, response: Response | None, error: str = "") -> None:
        latency = self._wire.came_back(request)
        if latency is None:
            return
        host = self._crawl.host(request.url)
        interval = self._spacing(request, latency)
        gates = "; ".join(f"{gate}: {answer}" for gate, answer in meta.gates(request).items())
        sent_at = self._crawl.now() - latency
        status = None if response is None else response.status
        exchange = Exchange(sent_at, host, request.url, gates, status, latency, error)
        held = hold_after(self._crawl, request, response, latency)
        standing = self._crawl.state.ledger.release(host, interval, exchange, held)
        request.meta[meta.HELD] = standing.times.hold_until - standing.now
        if scheduler := scheduler_of(self._crawler):
            scheduler.wait(host, standing.rest, interval)


def _floor(settings: BaseSettings) -> None:
    """Refuse what would take an answer away before the host is given back, or sleep on a lease."""
    require_order(
        settings,
        (RetryMiddleware, BaseRedirectMiddleware),
        (PacingMiddleware,),
        "it sees every answer first; set the order of PacingMiddleware to 890",
    )
    instead = "0 beside PacingMiddleware, which keeps the pauses; set WALSH_MIN_INTERVAL"
    delays = {"DOWNLOAD_DELAY": number_of(settings, "DOWNLOAD_DELAY", 0.0, low=0.0, high=math.inf)}
    for name, slot in settings.getdict("DOWNLOAD_SLOTS").items():
        delays[f"DOWNLOAD_SLOTS[{name!r}]['delay']"] = slot.get("delay", 0.0)
    for name, delay in delays.items():
        if delay:
            raise bad_setting(name, delay, instead)
    if settings.getbool("AUTOTHROTTLE_ENABLED"):
        raise bad_setting(
            "AUTOTHROTTLE_ENABLED",
            True,
            "False beside PacingMiddleware, which "
            "keeps the pauses; WALSH_LATENCY_FACTOR makes them longer for slow hosts",
        )
    if not number_of(settings, "DOWNLOAD_TIMEOUT", 0.0, low=0.0, high=math.inf):
        raise bad_setting("DOWNLOAD_TIMEOUT", 0, "above 0: a host is leased for that long")
