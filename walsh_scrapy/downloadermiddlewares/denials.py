"""Logs denied and deferred requests, as Scrapy logs what robots.txt forbids."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.politeness.hostqueue import HostQueues
from walsh_scrapy.runtime.denials import log_denial
from walsh_scrapy.runtime.requestmeta import rank_of, source_of

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class DenialsMiddleware:
    """Logs each request that a gate denied or deferred (order 5), because Scrapy does not.

    Requests for declared sources are logged where their outcome is recorded. Any other deferred
    request is kept for the next start, if the crawl has a ``JOBDIR``.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._stats = crawler.stats
        self._queues = HostQueues.of(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware for one crawl."""
        return cls(crawler)

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Log which gate denied a request (DEBUG), or until when it is deferred (INFO)."""
        if source_of(request) is not None or rank_of(request) is not Rank.TARGET:
            return
        if isinstance(exception, Denied):
            log_denial(request, exception)
        elif isinstance(exception, RequestDeferred):
            self._stats.inc_value("walsh/requests/deferred")
            logger.info("%s is deferred: %s", request.url, exception)
            self._queues.defer(request)
