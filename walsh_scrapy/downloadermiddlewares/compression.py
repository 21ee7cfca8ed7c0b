"""R7: compressed bodies are unpacked within size limits, and truncated ones are flagged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.exceptions import NotConfigured

from walsh_scrapy.crawl.messages import ACCEPTED, unpack_response
from walsh_scrapy.crawl.ticket import rank_of
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
    as they came, and get Scrapy's flag for incomplete bodies, ``dataloss``. robots.txt and the
    blocklist are unpacked where they are read.
    """

    def __init__(self, max_bytes: int, stats: StatsCollector) -> None:
        self._max_bytes = max_bytes
        self._stats = stats

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware. Raises NotConfigured if ``COMPRESSION_ENABLED`` is False."""
        if not crawler.settings.getbool("COMPRESSION_ENABLED"):
            raise NotConfigured
        return cls(crawler.settings.getint("DOWNLOAD_MAXSIZE"), crawler.stats)

    def process_request(self, request: Request) -> None:
        """Set Accept-Encoding to the codings that can be unpacked here.

        A spider's ``Accept-Encoding: identity`` is kept; any other value is replaced.
        """
        if request.headers.get("Accept-Encoding") != b"identity":
            request.headers["Accept-Encoding"] = ACCEPTED

    def process_response(self, request: Request, response: Response) -> Response:
        """Unpack the body of a page; raise BadAnswer if it is too large or cannot be unpacked."""
        if request.method == "HEAD" or rank_of(request) is not Rank.TARGET:
            return response
        max_bytes: int = request.meta.get("download_maxsize", self._max_bytes)
        return unpack_response(request, response, max_bytes, self._stats)
