"""R6: a crawl asks for its declared targets, and follows no link."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from scrapy import Request

from walsh_scrapy import meta
from walsh_scrapy.crawl import Crawl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.sources import Source

logger = logging.getLogger(__name__)


class ScopeMiddleware:
    """Drops every request that is not for a URL its source declares (ruling 16).

    A bot of another identity may follow links, with ``WALSH_SCOPE = "any"`` (ruling 24).
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._declared_only = Crawl.of(crawler).options.scope == "declared"

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Let declared targets in."""
        async for item in start:
            if not isinstance(item, Request) or self._is_declared(item):
                yield item

    async def process_spider_output(
        self,
        response: Response,  # noqa: ARG002 - Scrapy's interface
        result: AsyncIterator[Any],
    ) -> AsyncIterator[Any]:
        """Let items out, and of requests those that stay within what was declared."""
        async for item in result:
            if not isinstance(item, Request) or self._is_declared(item):
                yield item

    def _is_declared(self, request: Request) -> bool:
        source = meta.source(request)
        if not self._declared_only:
            return True
        if source and request.url in declared_urls(source) and request.method == "GET":
            return True
        logger.warning("%s is no declared target, so it is not asked for (R6)", request)
        self._crawler.stats.inc_value("walsh/scope/dropped")
        return False


def declared_urls(source: Source) -> frozenset[str]:
    """Return what a source declares; a feed-less one its page and its host's llms.txt."""
    if source.kind == "llms":
        return frozenset({source.url, urljoin(source.url, "/llms.txt")})
    return frozenset({source.url})
