"""R6: redirects of a declared target are followed; no header is carried from hop to hop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirectMiddleware

from walsh_scrapy.crawl import Crawl
from walsh_scrapy.options import BadSetting
from walsh_scrapy.runtime.gates import Gate
from walsh_scrapy.runtime.startup import in_force

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from walsh_scrapy.runtime.startup import Problems


class RedirectMiddleware(ScrapyRedirectMiddleware):
    """Scrapy's own, without a Referer, and with the download slot of each hop's host (order 600).

    A hop goes through the scheduler and every gate again, as any request does (decision 16).
    """

    def __init__(self, settings: BaseSettings, crawl: Crawl) -> None:
        super().__init__(settings)
        self._crawl = crawl  # a redirect that is part of no visit needs no state

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware without Scrapy's search for one that would set the Referer."""
        middleware = cls(crawler.settings, Crawl.of(crawler))
        middleware.crawler = crawler
        return middleware

    @staticmethod
    def problems(settings: BaseSettings) -> Problems:
        """Yield an error for each setting that has to be changed."""
        found = (place.kind for place in in_force(settings, ScrapyRedirectMiddleware))
        for other in found:
            if not issubclass(other, Gate.REDIRECT.kind):
                yield BadSetting(
                    f"DOWNLOADER_MIDDLEWARES has {other.__name__} beside walsh-scrapy's own, but "
                    "has to have one that follows redirects: set "
                    f'"{other.__module__}.{other.__name__}" to None'
                )
