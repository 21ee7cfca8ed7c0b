"""A download handler that sends each request once, over at most one connection at a time (R4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError

from walsh_scrapy.crawl.documents.downloads import seconds_left
from walsh_scrapy.crawl.messages import BodyReader, LastHeaders, endpoint_of, message_of
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.ticket import note, ticket_of
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.wire import stalls
from walsh_scrapy.wire.http1 import HttpExchange

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.crawl.ticket import Ticket
    from walsh_scrapy.wire.connections import Endpoint


#: Seconds after which a server has noticed that the connection was closed during its response. The
#: delay of the host is measured from then, because for the server the exchange ends only then.
CLOSING_SECONDS: Final = 0.02


class DownloadHandler(BaseDownloadHandler):
    """Sends each request once, so that every retry passes the middlewares again.

    Scrapy's own handler sends a request again by itself when a kept connection breaks. Here it
    fails, and a retry waits for its host, and opens a new connection.

    With ``WALSH_SERIAL`` the process has at most one connection open. A host without a valid
    certificate gets no request (``BadCertificate``). Host and the identity headers are set here,
    because a project's middleware may change them after IdentityMiddleware.
    """

    # Made for the first request, after the settings were checked: of an error before that, Scrapy
    # would only log that the handler is not available.
    lazy = True

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        crawl = Crawl.of(crawler)  # Scrapy builds handlers with the crawler only
        self._network = crawl.network
        self._clock = crawl.context.clock
        self._timeout = crawler.settings.getfloat("DOWNLOAD_TIMEOUT")
        self._max_bytes = crawler.settings.getint("DOWNLOAD_MAXSIZE")
        self._bind_address = crawler.settings["DOWNLOAD_BIND_ADDRESS"]
        self._body = BodyReader(crawler)
        self._last_headers = LastHeaders(crawl)

    async def download_request(self, request: Request) -> Response:
        """Return the response to a request.

        Raises Unreachable, Denied, TooLate, MachineTrouble and the exceptions of Scrapy's handlers.
        """
        # The URL is read only once, because a middleware may change it while the request waits.
        url = request.url
        proxy = self._network.route_of(request)
        ticket = ticket_of(request)
        note(request, sent=None)
        endpoint = endpoint_of(url, proxy, request.meta.get("bindaddress") or self._bind_address)
        if ticket.rank is Rank.TARGET:  # robots.txt has its own limit, beyond which it is cut off
            self._lower_limits(request)
        timeout: float = request.meta.get("download_timeout") or self._timeout
        try:
            async with stalls.limit(timeout), self._network.idle.turn:
                response = await self._exchange(request, url, ticket, endpoint)
        except TimeoutError as error:
            raise DownloadTimeoutError(
                f"Getting {url} took longer than {timeout} seconds."
            ) from error
        self._network.check_answer(endpoint, request, response)
        return response

    async def close(self) -> None:
        """Close the idle connections."""
        self._network.idle.close()

    def _lower_limits(self, request: Request) -> None:
        """Lower the timeout and the maximum size in a request's ``meta`` to the settings."""
        limits = {"download_timeout": self._timeout, "download_maxsize": self._max_bytes}
        for name, maximum in limits.items():
            limit = request.meta.get(name)
            if maximum and limit is not None and not 0 < limit <= maximum:
                request.meta[name] = maximum

    async def _exchange(
        self, request: Request, url: str, ticket: Ticket, endpoint: Endpoint
    ) -> Response:
        begun = self._clock.monotonic()
        stalled = stalls.stalled()
        stream = await self._network.connect(
            endpoint, public_only=ticket.public_only, is_new=ticket.on_new_connection
        )
        exchange = HttpExchange(stream)
        try:
            seconds_left(url, ticket, self._clock.moment())  # raises TooLate
            message = message_of(request, url, endpoint, self._last_headers.fields(request, url))
            started = self._clock.monotonic()
            connecting = started - begun - (stalls.stalled() - stalled)
            note(request, connecting=connecting, sent=started, stalled=stalls.stalled())
            await exchange.send(*message, request.body)
            head = await exchange.head()
            request.meta["download_latency"] = self._clock.monotonic() - started
            return await self._body.read(request, url, exchange, head, stream)
        except OSError as error:
            raise DownloadFailedError(f"the connection broke: {error.strerror or error}") from error
        finally:
            self._network.end(endpoint, stream, is_reusable=exchange.is_reusable)
            if not exchange.is_over:
                note(request, on_new_connection=True)  # if it is sent again
                await asyncio.sleep(CLOSING_SECONDS)
