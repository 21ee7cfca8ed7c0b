"""R5: a server that says "not now" is left alone, by the whole crawl, for as long as it says."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from scrapy.exceptions import DownloadTimeoutError, IgnoreRequest

from walsh_scrapy import meta
from walsh_scrapy.crawl import Crawl
from walsh_scrapy.policy.backoff import RETRIED_STATUSES, hold_for
from walsh_scrapy.policy.durations import format_seconds
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.scheduler import scheduler_of

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.policy.pacing import HostTimes

logger = logging.getLogger(__name__)


class BackoffMiddleware:
    """Lays a hold on the host and asks again later, a bounded number of times (order 549)."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._failing: Counter[str] = Counter()  # refusals of a host since it last answered

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        return cls(crawler)

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        """Hold the host after 429 and 503; for robots.txt after every server error (ruling 12).

        Whatever the error, a Retry-After holds for the whole host.
        """
        status, retry_after = response.status, response.headers.get("Retry-After")
        is_robots = meta.rank(request) is Rank.ROBOTS
        if status in RETRIED_STATUSES or (is_robots and status >= 500):
            most = self._crawl.options.max_retries
            return self._later(request, status, retry_after, f"answered {status}", most) or response
        host = self._crawl.host(request.url)
        self._failing.pop(host, None)
        if status >= 400 and retry_after is not None:
            self._hold(request, host, status, retry_after)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Hold the host when its robots.txt got no answer at all."""
        if meta.rank(request) is not Rank.ROBOTS or isinstance(exception, IgnoreRequest):
            return None
        # A host that keeps us hanging does so again: once more, and the others get their turn.
        most = 1 if isinstance(exception, DownloadTimeoutError) else self._crawl.options.max_retries
        return self._later(request, 0, None, f"gave no answer ({type(exception).__name__})", most)

    def _later(
        self, request: Request, status: int, retry_after: bytes | None, what: str, most: int
    ) -> Request | None:
        host = self._crawl.host(request.url)
        seconds = self._hold(request, host, status, retry_after)
        self._failing[host] += 1
        attempt = request.meta.get(meta.ATTEMPT, 0) + 1
        if attempt > most or self._failing[host] > most:
            logger.warning("%s %s; giving up after %d tries", request.url, what, attempt)
            self._crawler.stats.inc_value("walsh/backoff/gave_up")
            return None
        logger.info("%s %s; %s rests %s", request.url, what, host, format_seconds(seconds))
        self._crawler.stats.inc_value("walsh/backoff/retried")
        return request.replace(dont_filter=True, meta={**request.meta, meta.ATTEMPT: attempt})

    def _hold(self, request: Request, host: str, status: int, retry_after: bytes | None) -> float:
        """Lay a hold on the host in the ledger, and return its seconds."""
        options = self._crawl.options

        def decide(times: HostTimes, now: float) -> HostTimes:
            refused = status in RETRIED_STATUSES or not 400 <= status < 500
            sent_at = request.meta.get(meta.SENT_AT, now)
            struck = times.struck(now, sent_at) if refused else times
            seconds = hold_for(
                status,
                None if retry_after is None else retry_after.decode("latin-1"),
                datetime.fromtimestamp(now, UTC),
                struck.strikes - 1,
                options.backoff_base,
                options.backoff_max,
                self._crawl.random,
            )
            return struck.held(now, seconds)

        standing = self._crawl.state.ledger.change(host, decide)
        if scheduler := scheduler_of(self._crawler):
            scheduler.wait(host, standing.rest)
        return standing.times.hold_until - standing.now
