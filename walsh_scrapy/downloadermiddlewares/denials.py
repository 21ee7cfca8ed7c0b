"""Counts, records and logs denied and deferred requests, whichever gate denies them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.ticket import rank_of, subject_of
from walsh_scrapy.exceptions import (
    Denied,
    HostDeferred,
    RequestDeferred,
    RobotsUnavailable,
    StillDue,
)
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.wording import count_of

if TYPE_CHECKING:
    from scrapy import Request

logger = logging.getLogger(__name__)


class DenialsMiddleware(Component):
    """Adds each denial to the stats, the state and the log (order 5, outside of all gates).

    A deferred request is kept for the next start if the crawl has a ``JOBDIR``. A deferred request
    for a declared source needs no entry here: the source stays due, and its outcome is logged.
    """

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Add a denial or a deferral; the first deferral of a host is logged at INFO."""
        if isinstance(exception, Denied):
            self._crawl.denials.add(request, exception)
        elif isinstance(exception, RequestDeferred) and rank_of(request) is Rank.TARGET:
            self._add_deferral(request, exception)

    def _add_deferral(self, request: Request, error: RequestDeferred) -> None:
        is_of_source = subject_of(request) is not None
        if not is_of_source or isinstance(error, HostDeferred):
            host = self._crawl.context.host(request.url)
            announced = self._crawl.access.logged_hosts
            if host not in announced:
                announced.add(host)
                waiting = self._crawl.queue.frontier.count(host)
                # These are about one request or one origin, and the others may still be sent.
                is_single = isinstance(error, RobotsUnavailable | StillDue)
                requests = "requests" if is_single else count_of(waiting + 1, "request")
                logger.info("%s: %s deferred to a later run: %s", host, requests, error)
        if not is_of_source:
            self._crawl.stats.inc_value("walsh/requests/deferred")
            logger.debug("%s is deferred: %s", request.url, error)
            self._crawl.access.defer(request)
