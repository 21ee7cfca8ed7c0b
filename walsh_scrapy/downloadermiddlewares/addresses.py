"""R2: dot segments are removed from URLs first, so that the gates check the URL that is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.crawl.hosts.queue import RequestPreparer
from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.startup import Gate, Kind
from walsh_scrapy.crawl.ticket import note, resolved, ticket_of
from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.urls import LOCAL_SCHEMES, is_web, scheme_of

if TYPE_CHECKING:
    from scrapy import Request

    from walsh_scrapy.crawl.parts import Crawl


class AddressMiddleware(Component, RequestPreparer):
    """Replaces each request for ``/a/../b`` by one for ``/b``, whoever made it (order 1).

    A request that follows a redirect with Retry-After waits here for the end of that time.

    In a declared crawl URLs that are neither http nor https are denied here. In a project's own
    crawl they are sent without a delay: they have no robots.txt.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._kind = crawl.kind
        self._access = crawl.access
        crawl.queue.register_preparer(Gate.ADDRESS, self)

    async def process_request(self, request: Request) -> Request | None:
        """Return a request without dot segments, or None if the URL has none.

        If a later middleware changes the URL, ``settled`` no longer holds, because only some gates
        have checked the new URL. The request is then denied before it is sent.
        """
        await self.prepare(request)
        note(request, settled=True)
        return resolved(request)

    async def prepare(self, request: Request) -> None:
        """Wait for the end of a redirect's Retry-After, and deny a URL without a handler.

        Raises RequestDeferred or Denied before the robots.txt of the host is fetched.
        """
        scheme = scheme_of(request.url)
        if self._kind is Kind.DECLARED and not is_web(request.url):
            raise Denied("address", f"only http and https URLs are requested, not {scheme}")
        if scheme in LOCAL_SCHEMES and not ticket_of(request).scheduled:
            # Such as the file of an item, which a page of the web may have named.
            raise Denied("address", f"a {scheme}: URL is requested by start() or a callback only")
        await self._access.wait_after_redirect(request)
