"""R4: the last gate before the wire leases a host, and releases it after the exchange.

A host that cannot be reached is tried once in a run (decision 28).
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from scrapy import signals
from scrapy.core.downloader import Downloader
from scrapy.downloadermiddlewares.redirect import BaseRedirectMiddleware
from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.utils.asyncio import call_later

from walsh_scrapy.crawl import Crawl
from walsh_scrapy.exceptions import (
    Denied,
    FetchedMeanwhile,
    MachineTrouble,
    StateUnavailable,
    Unreachable,
)
from walsh_scrapy.options import bad_setting, number_of
from walsh_scrapy.policy.backoff import is_redirect
from walsh_scrapy.policy.claims import LIST_SECONDS
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import longest_wait, spacing
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.politeness.hostqueue import Wait
from walsh_scrapy.politeness.inflight import exchange_of
from walsh_scrapy.runtime.components import component_problems
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.runtime.gates import Gate
from walsh_scrapy.runtime.requests import evidence_of, mark, marks_of, rank_of, source_of
from walsh_scrapy.runtime.startup import require_order
from walsh_scrapy.state import StateError
from walsh_scrapy.state.log import RequestRecord

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings
    from sqlalchemy import Connection

    from walsh_scrapy.runtime.startup import Problems

#: Characters of a Retry-After that are recorded; its longest form has 33.
_LONGEST_HEADER: Final = 200
#: Seconds after the end of an exchange until it is written, even if nothing came of it.
LONGEST_UNWRITTEN: Final = 0.05
_PURPOSES: Final = {Rank.OPERATOR: "blocklist", Rank.ROBOTS: "robots", Rank.TARGET: "target"}


class _VisitedMeanwhile(Exception):
    """Another crawl has visited the source of a request that is about to be sent."""


class PacingMiddleware:
    """Sends one request at a time to a host, and keeps its spacing and holds (order 890).

    This holds across all processes that share the state. With ``WALSH_SERIAL`` the process sends
    one request at a time to all hosts, also for other serial crawls in it, and for requests that
    did not come from the scheduler.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._context = crawl.context
        self._engine = crawl.engine
        self._queues = crawl.queues
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

    async def process_request(self, request: Request) -> Request | None:
        """Lease the host, let the request wait, or defer it to a later run (decisions 7, 28)."""
        host = self._context.host(request.url)
        wait = Wait(
            "pacing",
            host,
            lambda: self._lease(request, wait),
            self._in_flight.quiet,
            lambda: self._is_spaced_by_robots(request, wait),
        )
        try:
            return await self._queues.wait(request, wait)
        except _VisitedMeanwhile:  # what the gates before this one decided may be wrong now
            if self._queues.scheduler.has_handed_out(request):
                return self._queues.scheduler.sent_back(request)
            return await self.process_request(request)

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

    def _lease(self, request: Request, wait: Wait) -> float:
        """Lease the host; return 0, or the seconds after which to try again.

        By domain the lease is that of the domain, and the hold that of the host name. ``wait.host``
        becomes the one that makes the request wait. Raises RequestDeferred or Unreachable if it was
        put off in the meantime.
        """
        marks, name = marks_of(request), host_of(request.url)
        self._put_off.check(name, marks.rank)
        ledger, host = self._context.state.ledger, self._context.host(request.url)
        most = longest_wait(name, marks.rank, self._list_names, for_blocklist=marks.for_blocklist)
        wait.host = self._context.hold_name(request.url)
        if wait.host != host and (held := ledger.find(wait.host).bounded(most).hold):
            return held
        wait.host = host
        timeout = self._in_flight.timeout(request)
        turn = ledger.take(
            host,
            self._spacing(request),
            timeout,
            most=most,
            claims=LIST_SECONDS if marks.rank is Rank.OPERATOR and not marks.hops else 0.0,
            record=self._record(request),
            came_meanwhile=partial(self._came_meanwhile, request),
        )
        if turn.came_meanwhile:
            raise FetchedMeanwhile(request.url) if marks.fetch else _VisitedMeanwhile
        if not turn.wait:
            # In the slot of another host it would wait for that host, and its own lease would end.
            request.meta[Downloader.DOWNLOAD_SLOT] = host
            mark(request, released=True, answered=None)
            self._in_flight.begin(request, host)
        return turn.wait

    def _came_meanwhile(
        self, request: Request, connection: Connection, ended: float | None
    ) -> bool:
        """Return True if another crawl has fetched the document, or has visited the source.

        ``ended`` is when the last exchange with the host ended, whoever made it.
        """
        fetch, source = marks_of(request).fetch, source_of(request)
        if fetch is not None:
            return ended is not None and fetch.came_meanwhile(ended)
        sources = self._context.state.sources
        return source is not None and not sources.is_as_recalled(connection, source.url)

    def _is_spaced_by_robots(self, request: Request, wait: Wait) -> bool:
        """Return True if robots.txt alone makes the host wait, and no hold or slow answer does."""
        asked = marks_of(request).robots_interval or 0.0
        times = self._context.state.ledger.find(wait.host).times
        return asked > 0.0 and times.is_spaced_by(asked)

    def _spacing(self, request: Request, latency: float = 0.0) -> float:
        least = max(self._context.options.min_interval, self._pauses.before(request))
        return spacing(least, marks_of(request).robots_interval, latency)

    def _give_back(self, request: Request, error: MachineTrouble | Denied) -> None:
        """Release the host of a request that was never sent: nothing is logged (decision 29)."""
        if self._in_flight.end(request) is None:
            return
        self._context.state.ledger.give_back(self._context.host(request.url))
        if isinstance(error, MachineTrouble):
            self._put_off.add(host_of(request.url), str(error), error.until)

    def _release(
        self, request: Request, response: Response | None, error: Exception | None = None
    ) -> None:
        latency = self._in_flight.end(request)
        if latency is None:
            return
        host = self._context.host(request.url)
        interval = self._spacing(request, latency)
        exchange = exchange_of(request, response, latency, interval, error)
        ledger, backoff = self._context.state.ledger, self._context.backoff
        name, hold, asked = self._context.hold_name(request.url), 0.0, exchange.retry_after
        if name != host:
            # The hold is written first: a crash before the release leaves a lease that runs out.
            hold = ledger.answered(name, exchange, backoff).hold
            exchange = exchange.of_domain()
        record = replace(
            self._record(request),
            sent_at=self._context.clock.now() - latency,
            status=marks_of(request).answered if response is None else response.status,
            seconds=latency,
            monotonic=self._context.clock.monotonic(),
            error="" if response is not None else _words(error, request.url),
            hold=hold,
            retry_after=asked and asked[:_LONGEST_HEADER],
        )
        # What comes of it is written with it: a robots.txt, or a visit.
        later = exchange.is_calm and not is_redirect(exchange.status)
        snapshot = ledger.release(host, exchange, backoff, record, later=later)
        if later:
            call_later(LONGEST_UNWRITTEN, self._write_end, host)
        hold = max(hold, snapshot.hold)
        mark(request, hold=hold)
        wait, until = snapshot.wait, snapshot.now + hold
        name = host_of(request.url)
        if isinstance(error, Unreachable):
            self._put_off.add_unreachable(name, error, rank_of(request), until)
            wait = 0.0  # requests that are put off wait for nothing: they end when handed out
        self._queues.scheduler.delay(host, wait, snapshot.times.interval, latency)

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
