"""R4: begins an exchange with a host when its delay has passed, and ends it.

This is the last middleware before the download handler.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from scrapy import signals

from walsh_scrapy.crawl.hosts.queue import RequestPreparer
from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.startup import Gate, Kind
from walsh_scrapy.crawl.ticket import NOT_REACHED, has_visit_time, note, rank_of, ticket_of
from walsh_scrapy.exceptions import TooLate, Unreachable
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.urls import host_of, is_private_host, is_web

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.crawl.parts import Crawl

#: How often a request goes back to the scheduler; after that it waits in the middleware.
_MAX_RESCHEDULES: Final = 1
#: Seconds between two looks at a host that is busy with a request of this crawl.
_BUSY_SECONDS: Final = 0.1
#: Seconds for which a request that waits here leaves its host to other workers.
_MAX_GIVE_WAY_SECONDS: Final = 10.0


class PacingMiddleware(Component, RequestPreparer):
    """Sends one request at a time to a host, and keeps its delay and holds (order 890).

    All processes that share the state take part. With ``WALSH_SERIAL`` this process sends one
    request at a time to all hosts together. Its other serial crawls, and requests that did not come
    from the scheduler, are included.

    In a declared crawl a host that cannot be reached is tried once per run.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._kind = crawl.kind
        self._context = crawl.context
        self._engine = crawl.engine
        self._hosts = crawl.hosts
        self._network = crawl.network
        self._deferred_hosts = crawl.context.deferred_hosts
        self._exchanges = crawl.exchanges
        self._queue = crawl.queue
        self._queue.register_preparer(Gate.PACING, self)
        self._access = crawl.access
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        crawl.crawler.signals.connect(
            self._exchanges.response_downloaded, signals.response_downloaded
        )
        crawl.crawler.signals.connect(
            self._exchanges.left_downloader, signals.request_left_downloader
        )

    def is_ready(self, request: Request) -> bool:
        """Return True if this crawl owns the host of a request."""
        return self._hosts.has(self._context.host(request.url))

    def will_pass(self, request: Request) -> bool:
        """Return False for a deferred host, and for a visit that has no time left."""
        return has_visit_time(request) and not self._deferred_hosts.has(request.url)

    async def prepare(self, request: Request) -> None:
        """Wait until this crawl owns the host, so that no other worker sends requests to it."""
        await self._access.take(self._context.host(request.url), request)

    async def process_request(self, request: Request) -> Request | None:
        """Begin an exchange, or let the request wait.

        Raises RequestDeferred for a wait longer than ``WALSH_MAX_WAIT``: a later run continues.
        """
        if not is_web(request.url):
            return None
        self._network.check_route(request)
        self._queue.check(request)
        turn = self._queue.turn_of(request)
        host = self._context.host(request.url)
        if turn is None or turn.times_sent_back > _MAX_RESCHEDULES or self._hosts.is_busy(host):
            await self._wait(request)
        elif seconds := await self._exchanges.begin(request):
            return self._queue.send_back(turn, seconds)
        return None

    async def _wait(self, request: Request) -> None:
        """Wait here until an exchange has begun, because the request cannot be sent back.

        Either it did not come from this add-on's scheduler, or it was sent back before: a
        middleware that sends a request of its own each time would use every turn of the host.
        """
        host = self._context.host(request.url)
        was_closing = self._engine.is_closing
        try:
            async with self._locks.setdefault(host, asyncio.Lock()):
                await self._begin(request, host, while_open=not was_closing)
        except BaseException:
            self._exchanges.let_go_inline(request, host)
            raise

    async def _begin(self, request: Request, host: str, *, while_open: bool) -> None:
        """Begin an exchange as soon as other workers have had a chance, for some seconds at most.

        The requests of pages and of their files would else follow each other without an end.
        """
        clock = self._context.clock
        gives_way_until = clock.monotonic() + _MAX_GIVE_WAY_SECONDS
        while True:
            self._deferred_hosts.check(request.url, rank_of(request))
            for_others = self._hosts.seconds_for_others(host)
            if for_others and clock.monotonic() < gives_way_until:
                self._exchanges.let_go_inline(request, host)
                await self._access.sleep(for_others)
                self._exchanges.sweep()
                continue
            await self._access.take(host, request)
            if self._hosts.is_busy(host):  # with a request of this worker, which ends soon
                await self._access.sleep(_BUSY_SECONDS)
                self._exchanges.sweep()
                continue
            seconds = await self._exchanges.begin(request, while_open=while_open)
            if not seconds:
                return
            await self._access.sleep(seconds)

    async def process_response(self, request: Request, response: Response) -> Response:
        """End the exchange: the delay of the host is measured from now.

        A hold is written in the same transaction, so that a crash cannot lose it.
        """
        self._exchanges.end(request, response)
        if "cached" in response.flags and not is_private_host(host_of(request.url)):
            note(request, public_only=True)  # a copy has no address: its name decides
        if ticket_of(request).from_gateway and rank_of(request) is Rank.TARGET:
            request.meta.setdefault("dont_retry", NOT_REACHED)  # BackoffMiddleware decides
        return response

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """End an exchange that failed, or that never began."""
        is_retried = self._kind is Kind.OWN or request.meta.get("dont_retry")
        if isinstance(exception, Unreachable) and not is_retried:
            request.meta["dont_retry"] = NOT_REACHED  # RetryMiddleware would make a copy
        if self._exchanges.was_sent(request, exception):
            self._exchanges.end(request, None, exception)
            return None
        self._exchanges.withdraw(request, exception)
        turn = self._queue.turn_of(request)
        is_late = isinstance(exception, TooLate)
        return self._queue.send_back(turn, 0.0) if is_late and turn else None
