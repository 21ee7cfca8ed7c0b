"""R6: a page of the web must not lead a project's own crawl to private hosts or local files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy import Request

from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.ticket import note, request_of, ticket_of
from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.urls import LOCAL_SCHEMES, is_web, scheme_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response

logger = logging.getLogger(__name__)


class LinksMiddleware(Component):
    """Marks the links of a public page, and denies those to local files (order 20).

    A link is a request that a callback yields for the response of a page. PrivateHostsMiddleware
    then denies a marked link to a private host, as it denies a redirect. Requests of ``start()``
    may lead anywhere, and so may those that follow from local files. These are taken while the
    scheduler has room: Scrapy alone would take them all before it handles the first response.
    """

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass on start requests and items, each when the scheduler has room."""
        async for item in start:
            await self._crawl.queue.wait_for_room()
            yield item

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Pass on items, and requests for what the page may lead to."""
        async for item in result:
            if not isinstance(item, Request) or self._accept(response, item):
                yield item

    def _accept(self, response: Response, link: Request) -> bool:
        """Mark a link, and return True unless it is denied; log, record and count it then."""
        if scheme_of(response.url) in LOCAL_SCHEMES:
            return True
        is_marked = response.request and ticket_of(request_of(response)).public_only
        if is_marked or not is_web(response.url):  # the address of an ftp page is not known
            note(link, public_only=True)
        scheme = scheme_of(link.url)
        if scheme not in LOCAL_SCHEMES:
            return True
        reason = f"a page of the web leads to a {scheme}: URL"
        logger.warning("dropped %s: %s", link, reason)
        self._crawl.denials.record_link(link, Denied("address", reason))
        self._crawl.stats.inc_value("walsh/address/denied")
        return False
