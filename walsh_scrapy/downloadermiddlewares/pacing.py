"""R4: the last gate before the wire leases a host, and releases it after the exchange."""

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
from walsh_scrapy.politeness.hostqueue import HostQueues, Wait
from walsh_scrapy.politeness.inflight import InFlight, exchange_of
from walsh_scrapy.runtime.context import Context
from walsh_scrapy.runtime.engine import is_active
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.runtime.gates import Gate
from walsh_scrapy.runtime.requestmeta import mark, marks_of
from walsh_scrapy.runtime.startup import check_start, require_order
from walsh_scrapy.state.requests import RequestRecord

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings


class PacingMiddleware:
    """Sends one request at a time to a host, and keeps its spacing and holds (order 890).

    This holds across all processes that share the state. With ``WALSH_SERIAL`` the process sends
    one request at a time to all hosts, also for other serial crawls in it, and for requests that
    did not come from the scheduler.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._context = Context.of(crawler)
        self._queues = HostQueues.of(crawler)
        serial = self._context.options.serial
        self._in_flight = InFlight(crawler.settings, self._context.clock, serial=serial)
        self._quiet = self._in_flight.quiet_process if serial else nullcontext

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        check_start(crawler, _check)
        gate = cls(crawler)
        crawler.signals.connect(gate.response_downloaded, signal=signals.response_downloaded)
        crawler.signals.connect(gate.left_downloader, signal=signals.request_left_downloader)
        return gate

    async def process_request(self, request: Request) -> Request | None:
        """Lease the host, let the request wait, or defer it to a later run (decision 7)."""
        host = self._context.host(request.url)
        wait = Wait("pacing", host, lambda: self._lease(request, host), self._quiet)
        return await self._queues.wait(request, wait)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Release the host: its spacing counts from now, the end of the exchange (decision 2).

        A hold is written in the same transaction, so that a crash cannot lose it.
        """
        self._release(request, response)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Release the host after an exchange that failed."""
        self._release(request, None, reason_of(exception, request.url))

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Release the host after the exchange of a cancelled request.

        A request made by ``engine.download_async`` may be cancelled; its exchange continues.
        """
        if not is_active(self._crawler, request):
            self._release(request, response)

    def left_downloader(self, request: Request) -> None:
        """Release the host after a cancelled request whose exchange failed."""
        if not is_active(self._crawler, request):
            self._release(request, None, "cancelled, and no response came")

    def _lease(self, request: Request, host: str) -> float:
        """Lease the host; return 0, or the seconds after which to try again."""
        timeout = self._in_flight.timeout(request)
        wait = self._context.state.ledger.take(host, self._spacing(request), timeout)
        if not wait:
            # In the slot of another host it would wait for that host, and its own lease would end.
            request.meta[Downloader.DOWNLOAD_SLOT] = host
            self._in_flight.begin(request, host)
        return wait

    def _spacing(self, request: Request, latency: float = 0.0) -> float:
        options, asked = self._context.options, marks_of(request).robots_interval
        return spacing(options.min_interval, asked, options.latency_factor, latency)

    def _release(self, request: Request, response: Response | None, error: str = "") -> None:
        latency = self._in_flight.end(request)
        if latency is None:
            return
        host = self._context.host(request.url)
        answers = marks_of(request).answers.items()
        record = RequestRecord(
            sent_at=self._context.clock.now() - latency,
            host=host,
            url=request.url,
            gates="; ".join(f"{gate}: {answer}" for gate, answer in answers),
            status=None if response is None else response.status,
            seconds=latency,
            error=error,
        )
        interval = self._spacing(request, latency)
        exchange = exchange_of(request, response, latency, interval)
        ledger = self._context.state.ledger
        snapshot = ledger.release(host, exchange, self._context.backoff, record)
        mark(request, hold=snapshot.hold)
        self._queues.delay(host, snapshot.wait, interval)


def _check(settings: BaseSettings) -> None:
    """Refuse settings that hide a response from this gate, or delay a request after its lease."""
    require_order(
        settings,
        (RetryMiddleware, BaseRedirectMiddleware),
        (Gate.PACING,),
        "it has to see every response first; set the order of PacingMiddleware to 890",
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
