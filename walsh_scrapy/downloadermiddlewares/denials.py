"""Counts, records and logs denied and deferred requests, because Scrapy does not."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.ticket import rank_of, source_of
from walsh_scrapy.exceptions import Denied, HostDeferred, RequestDeferred
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.wording import count_of

if TYPE_CHECKING:
    from scrapy import Request

logger = logging.getLogger(__name__)


class DenialsMiddleware(Component):
    """Adds each denial to the stats, the state and the log, from every gate (order 5).

    Requests for declared sources are logged where their outcome is recorded. Any other deferred
    request is kept for the next start, if the crawl has a ``JOBDIR``.
    """

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Add a denial or a deferral; each host with deferred requests has one line (INFO)."""
        if isinstance(exception, Denied):
            self._crawl.denials.add(request, exception)
        elif isinstance(exception, RequestDeferred) and rank_of(request) is Rank.TARGET:
            self._add_deferral(request, exception)

    def _add_deferral(self, request: Request, error: RequestDeferred) -> None:
        is_of_source = source_of(request) is not None
        if not is_of_source or isinstance(error, HostDeferred):
            host = self._crawl.context.host(request.url)
            announced = self._crawl.access.logged_hosts
            if host not in announced:
                announced.add(host)
                requests = count_of(self._crawl.queue.frontier.count(host) + 1, "request")
                logger.info("%s: %s deferred to a later run: %s", host, requests, error)
        if not is_of_source:
            self._crawl.stats.inc_value("walsh/requests/deferred")
            logger.debug("%s is deferred: %s", request.url, error)
            self._crawl.access.defer(request)
