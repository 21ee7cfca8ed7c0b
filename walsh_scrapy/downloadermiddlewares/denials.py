"""What a gate kept from a spider is told in the log, as Scrapy tells of what robots.txt forbids."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.runtime import meta
from walsh_scrapy.scheduler import scheduler_of

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class DenialsMiddleware:
    """Logs each end that Scrapy itself passes over, since it is an IgnoreRequest (order 5).

    What is asked for a declared source has its line in the record, and in the log with it. What is
    put off otherwise is left to the next start of the job, if the crawl is one.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware for one crawl."""
        return cls(crawler)

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Say which gate spoke, and why; a request that is put off is worth more than debugging."""
        if meta.source(request) is not None or meta.rank(request) is not Rank.TARGET:
            return
        if isinstance(exception, Denied):
            logger.debug("%s is denied by %s: %s", request.url, exception.gate, exception.reason)
        elif isinstance(exception, RequestDeferred):
            self._crawler.stats.inc_value("walsh/requests/deferred")
            logger.info("%s is not asked for in this run: %s", request.url, exception)
            if scheduler := scheduler_of(self._crawler):
                scheduler.put_off(request)
