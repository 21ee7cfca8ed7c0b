"""R7: bodies are unpacked within their limits, and a text that was cut off gets a flag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import NotConfigured

from walsh_scrapy.crawl.ticket import rank_of
from walsh_scrapy.crawl.unpacking import ACCEPTED, unpack_response
from walsh_scrapy.policy.frontier import Rank

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector


class CompressionMiddleware:
    """Replaces HttpCompressionMiddleware (order 590), which accepts truncated bodies.

    A feed whose compressed data lacks its end is not read. Plain text and markdown are read as far
    as they came, and get Scrapy's flag for incomplete bodies. Robots.txt and the blocklist are
    unpacked where they are read.
    """

    def __init__(self, max_bytes: int, stats: StatsCollector) -> None:
        self._max_bytes = max_bytes
        self._stats = stats

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Make the middleware of a crawl."""
        if not crawler.settings.getbool("COMPRESSION_ENABLED"):
            raise NotConfigured
        return cls(crawler.settings.getint("DOWNLOAD_MAXSIZE"), crawler.stats)

    def process_request(self, request: Request) -> None:
        """Request the codings that are undone here. Another choice counts only if it is none."""
        if request.headers.get("Accept-Encoding") != b"identity":
            request.headers["Accept-Encoding"] = ACCEPTED

    def process_response(self, request: Request, response: Response) -> Response:
        """Unpack the body of a page. Raises BadAnswer; see ``unpack_response``."""
        if request.method == "HEAD" or rank_of(request) is not Rank.TARGET:
            return response
        max_bytes: int = request.meta.get("download_maxsize", self._max_bytes)
        return unpack_response(request, response, max_bytes, self._stats)
