"""R2: URLs are settled first, so that the gates check the URL that is sent (decision 32)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.queue import RequestPreparer
from walsh_scrapy.crawl.startup import SCHEMES, Gate
from walsh_scrapy.crawl.ticket import note, resolved
from walsh_scrapy.exceptions import Denied

if TYPE_CHECKING:
    from scrapy import Request

    from walsh_scrapy.crawl.crawl import Crawl


class AddressMiddleware(Component, RequestPreparer):
    """Sends a request for `/a/../b` back as one for `/b`, whoever made it (order 1).

    The request that follows a redirect with Retry-After goes no further before the end of its wait.
    Other URLs than http and https have no robots.txt and no handler. The gates would wait for both,
    and the host of an ftp link would be on hold for https too.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._access = crawl.access
        crawl.queue.register_preparer(Gate.ADDRESS, self)

    async def process_request(self, request: Request) -> Request | None:
        """Return the request without dot segments, or None if its URL has none.

        A later change of the URL loses the mark: then not all gates check the new one.
        """
        await self.prepare(request)
        note(request, settled=True)
        return resolved(request)

    async def prepare(self, request: Request) -> None:
        """Wait for the end of a redirect's Retry-After, and deny a request that has no handler.

        Raises RequestDeferred or Denied early, so that the host of the request gets no request.
        """
        scheme = request.url.partition(":")[0].lower()
        if scheme not in SCHEMES:
            raise Denied("address", f"only http and https are requested, not {scheme}")
        await self._access.wait_after_redirect(request)
