"""Downloads over our connections: one at a time, and each request once (R4, 26 to 28)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError

from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.messages import BodyReader, LastHeaders, endpoint_of, message_of
from walsh_scrapy.crawl.startup import Gate, has_gate
from walsh_scrapy.crawl.ticket import note, ticket_of
from walsh_scrapy.exceptions import Denied, StoodStill, TooLate
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.wire import stalls
from walsh_scrapy.wire.http1 import HttpExchange

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.crawl.ticket import Ticket
    from walsh_scrapy.wire.connections import Endpoint


#: Seconds until a server has seen that a connection was closed before the end of its response.
#: Until then the exchange has not ended for the server, and so not for pacing (decision 2).
CLOSING_SECONDS: Final = 0.02
#: Seconds: for less than that no request is sent.
SHORTEST_EXCHANGE: Final = 1.0


class DownloadHandler(BaseDownloadHandler):
    """Sends each request once, so that every retry passes the middlewares again (decision 1).

    With ``WALSH_SERIAL`` the process has at most one connection open (decision 26). A host whose
    certificate is not valid gets no request (``BadCertificate``). Host, and the headers of
    middlewares that are in force, are set here, behind every middleware (decision 30).
    """

    lazy = True  # until the settings were checked: Scrapy only logs an error here

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        crawl = Crawl.of(crawler)  # Scrapy makes handlers from nothing but the crawler
        self._network = crawl.network
        self._clock = crawl.context.clock
        self._timeout = crawler.settings.getfloat("DOWNLOAD_TIMEOUT")
        self._most_bytes = crawler.settings.getint("DOWNLOAD_MAXSIZE")
        self._bind_address = crawler.settings["DOWNLOAD_BIND_ADDRESS"]
        self._body = BodyReader(crawler)
        self._last = LastHeaders(crawler.settings, crawl.context, crawl.signer)
        self._is_paced = has_gate(crawler.settings, Gate.PACING)

    async def download_request(self, request: Request) -> Response:
        """Return the response to a request.

        Raises Unreachable, Denied, MachineTrouble and the exceptions of Scrapy's handlers.
        """
        # Read once: a middleware may change the request at any time, even while it waits here.
        proxy, url, ticket = self._network.check_route(request), request.url, ticket_of(request)
        if self._is_paced and not ticket.released:
            raise Denied("address", f"{url} is not the URL that the gates let out")
        bind_address = request.meta.get("bindaddress") or self._bind_address
        endpoint = endpoint_of(url, proxy, bind_address)
        if ticket.rank is Rank.TARGET:  # a robots.txt is cut off, whatever its size
            self._lower_limits(request)
        timeout: float = request.meta.get("download_timeout") or self._timeout
        try:
            async with stalls.limit(timeout, self._left(url, ticket)), self._network.idle.turn:
                response = await self._exchange(request, url, ticket, endpoint)
        except stalls.StoodStill as error:
            reason = f"this process stood still for too long while it requested {url}"
            if ticket_of(request).sent is None:
                raise TooLate(reason) from error
            raise StoodStill(self._clock.now(), reason) from error
        except TimeoutError as error:
            reason = f"Getting {url} took longer than {timeout} seconds."
            raise DownloadTimeoutError(reason) from error
        self._network.check_answer(endpoint, url, response)
        return response

    async def close(self) -> None:
        """Close the connections that are idle."""
        self._network.idle.close()

    def _lower_limits(self, request: Request) -> None:
        """Lower the limits of one request to those of all requests (decision 22)."""
        limits = {"download_timeout": self._timeout, "download_maxsize": self._most_bytes}
        for name, most in limits.items():
            own = request.meta.get(name)
            if most and own is not None and not 0 < own <= most:
                request.meta[name] = most

    def _left(self, url: str, ticket: Ticket) -> float:
        """Return the seconds until which a request has its host; raise TooLate if they are over.

        Another worker may send the next one then (decision 41). This is called before connecting,
        and directly before the first byte is sent.
        """
        left = ticket.until - self._clock.moment()
        if left < SHORTEST_EXCHANGE:
            raise TooLate(f"{url} was not sent: it is too late for that")
        return left

    async def _exchange(
        self, request: Request, url: str, ticket: Ticket, endpoint: Endpoint
    ) -> Response:
        stream = await self._network.connect(endpoint, public_only=ticket.public_only)
        exchange = HttpExchange(stream)
        try:
            self._left(url, ticket)
            message = message_of(request, url, endpoint, self._last.of(request, url))
            started = self._clock.monotonic()
            note(request, sent=started, stalled=stalls.stalled())
            await exchange.send(*message, request.body)
            head = await exchange.head()
            request.meta["download_latency"] = self._clock.monotonic() - started
            return await self._body.read(request, url, exchange, head, stream)
        except OSError as error:
            reason = f"the connection broke: {error.strerror or error}"
            raise DownloadFailedError(reason) from error
        finally:
            self._network.end(endpoint, stream, is_reusable=exchange.is_reusable)
            if not exchange.is_over:
                await asyncio.sleep(CLOSING_SECONDS)
