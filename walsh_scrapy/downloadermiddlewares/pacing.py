"""R4: the last middleware before the wire begins an exchange with a host, and ends it.

A host that cannot be reached is tried once per run (decision 28).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from scrapy import signals

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.queue import RequestPreparer
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.crawl.ticket import NOT_REACHED, rank_of
from walsh_scrapy.exceptions import TooLate, Unreachable
from walsh_scrapy.policy.pacing import RECHECK_SECONDS

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.crawl.crawl import Crawl

#: The number of times that a request goes back to the scheduler; then it waits here.
_MOST_BACK: Final = 1


class PacingMiddleware(Component, RequestPreparer):
    """Sends one request at a time to a host, and keeps its delay and holds (order 890).

    This holds across all processes that share the state. With ``WALSH_SERIAL`` the process sends
    one request at a time to all hosts. Its other serial crawls count, and so do requests that did
    not come from the scheduler.
    """

    def __init__(self, crawl: Crawl) -> None:
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
        connect = crawl.crawler.signals.connect
        connect(self._exchanges.response_downloaded, signals.response_downloaded)
        connect(self._exchanges.left_downloader, signals.request_left_downloader)

    def is_ready(self, request: Request) -> bool:
        """Return True if this crawl owns the host of a request."""
        return self._hosts.has(self._context.host(request.url))

    async def prepare(self, request: Request) -> None:
        """Own the host of a request before it gets any request (decision 41)."""
        await self._access.take(self._context.host(request.url), request)

    async def process_request(self, request: Request) -> Request | None:
        """Begin an exchange, or let the request wait, or defer it to a later run (decision 7)."""
        self._network.check_route(request)
        turn, host = self._queue.turn_of(request), self._context.host(request.url)
        if turn is None or turn.times_sent_back > _MOST_BACK or self._hosts.is_busy(host):
            await self._wait(request)
        elif seconds := await self._exchanges.begin(request):
            return self._queue.send_back(turn, seconds)
        return None

    async def _wait(self, request: Request) -> None:
        """Wait here until an exchange has begun: the request cannot go back.

        It did not come from our scheduler, or a middleware requests its host each time it comes.
        """
        host, was_closing = self._context.host(request.url), self._engine.is_closing
        try:
            async with self._locks.setdefault(host, asyncio.Lock()):
                await self._begin(request, host, while_open=not was_closing)
        except BaseException:
            self._exchanges.let_go_inline(request, host)
            raise

    async def _begin(self, request: Request, host: str, *, while_open: bool) -> None:
        seconds = 1.0
        while seconds:
            self._deferred_hosts.check(request.url, rank_of(request))
            await self._access.take(host, request)
            while self._hosts.is_busy(host):  # by a request of this worker, which ends soon
                await self._access.sleep(RECHECK_SECONDS)
                self._exchanges.sweep()
            seconds = await self._exchanges.begin(request, while_open=while_open)
            await self._access.sleep(seconds)

    async def process_response(self, request: Request, response: Response) -> Response:
        """End the exchange: the delay of the host counts from now (decision 2).

        A hold is written in the same transaction, so that a crash cannot lose it.
        """
        self._exchanges.end(request, response)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """End an exchange that failed, or that never began."""
        if isinstance(exception, Unreachable) and not request.meta.get("dont_retry"):
            request.meta["dont_retry"] = NOT_REACHED  # RetryMiddleware would make a copy
        if self._exchanges.was_sent(request, exception):
            self._exchanges.end(request, None, exception)
            return None
        self._exchanges.withdraw(request, exception)
        turn = self._queue.turn_of(request)
        is_late = isinstance(exception, TooLate)
        return self._queue.send_back(turn, 0.0) if is_late and turn else None
