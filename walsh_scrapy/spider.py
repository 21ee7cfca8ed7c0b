"""The base class of spiders that declare their sources: what makes a crawl a declared one (R6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import Spider

if TYPE_CHECKING:
    from collections.abc import Collection

    from scrapy import Request

    from walsh_scrapy.feeds.sources.source import Source


class DeclaringSpider(Spider):
    """A spider that declares its sources. ScopeMiddleware drops requests for any other URL."""

    sources: Collection[Source] = ()
    force: bool = False  #: True: also visit sources that are not due yet

    def alternative_to(self, request: Request) -> Request | None:  # noqa: ARG002 - for subclasses
        """Return a replacement for a request that robots.txt denied, or None to give up."""
        return None
