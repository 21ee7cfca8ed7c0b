"""Counts, records and logs denied requests, and logs deferred ones, because Scrapy does not."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.ticket import rank_of, source_of
from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.policy.frontier import Rank

if TYPE_CHECKING:
    from scrapy import Request

logger = logging.getLogger(__name__)


class DenialsMiddleware(Component):
    """Adds each denial to the stats, the state and the log, from every gate (order 5).

    Requests for declared sources are logged where their outcome is recorded. Any other deferred
    request is kept for the next start, if the crawl has a ``JOBDIR``.
    """

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Add a denial, or log until when a request is deferred (INFO)."""
        if isinstance(exception, Denied):
            self._crawl.denials.add(request, exception)
        elif not isinstance(exception, RequestDeferred) or source_of(request) is not None:
            return
        elif rank_of(request) is Rank.TARGET:
            self._crawl.stats.inc_value("walsh/requests/deferred")
            logger.info("%s is deferred: %s", request.url, exception)
            self._crawl.queue.defer(request)
