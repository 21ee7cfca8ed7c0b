"""Counts, records and logs denied requests, and logs deferred ones, because Scrapy does not."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.ticket import rank_of, source_of
from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.policy.frontier import Rank

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.crawl.failures import Denials
    from walsh_scrapy.crawl.queue import Queue

logger = logging.getLogger(__name__)


class DenialsMiddleware:
    """Adds each denial to the stats, the state and the log, whichever gate denied (order 5).

    Requests for declared sources are logged where their outcome is recorded. Any other deferred
    request is kept for the next start, if the crawl has a ``JOBDIR``.
    """

    def __init__(self, stats: StatsCollector, denials: Denials, queue: Queue) -> None:
        self._stats = stats
        self._denials = denials
        self._queue = queue

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware for one crawl."""
        crawl = Crawl.of(crawler)
        return cls(crawl.stats, crawl.denials, crawl.queue)

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Add a denial, or log until when a request is deferred (INFO)."""
        if isinstance(exception, Denied):
            self._denials.add(request, exception)
        elif not isinstance(exception, RequestDeferred) or source_of(request) is not None:
            return
        elif rank_of(request) is Rank.TARGET:
            self._stats.inc_value("walsh/requests/deferred")
            logger.info("%s is deferred: %s", request.url, exception)
            self._queue.defer(request)
