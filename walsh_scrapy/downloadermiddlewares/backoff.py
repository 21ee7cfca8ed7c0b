"""R5: after 429 and 503 the whole host is on hold, and the request is retried later."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.exceptions import DownloadTimeoutError, IgnoreRequest

from walsh_scrapy.options import bad_setting
from walsh_scrapy.policy.backoff import RETRIED_STATUSES, is_refusal
from walsh_scrapy.policy.durations import format_seconds
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.plurals import counted
from walsh_scrapy.politeness.holds import Holds
from walsh_scrapy.runtime.context import Context
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.runtime.gates import Gate
from walsh_scrapy.runtime.requestmeta import mark, marks_of, rank_of
from walsh_scrapy.runtime.startup import check_start, in_force, require_order

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings


logger = logging.getLogger(__name__)


class BackoffMiddleware:
    """Retries refused requests, at most ``WALSH_MAX_RETRIES`` times (order 549).

    The pacing gate writes the hold with the end of the exchange. Without the pacing gate this gate
    writes the hold, and keeps requests waiting for it.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._context = Context.of(crawler)
        self._holds = None if in_force(crawler.settings, Gate.PACING) else Holds(crawler)
        self._refusals: Counter[str] = Counter()  # in a row, by host

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        check_start(crawler, _check)
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        """Without the pacing gate: let a request wait while its host is on hold."""
        return await self._holds.wait(request) if self._holds else None

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        """Retry after 429 and 503; for robots.txt after every server error (decision 12)."""
        if self._holds:
            self._holds.over(request)
        if _is_refusal(request, response.status):
            most = self._context.options.max_retries
            return self._retry(request, f"answered {response.status}", most) or response
        self._refusals.pop(self._context.host(request.url), None)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Retry a request for robots.txt that got no response."""
        if self._holds:
            self._holds.over(request)
        if isinstance(exception, IgnoreRequest) or not _is_refusal(request, 0):
            return None
        if self._holds:
            self._holds.write(request, None)
        # A host that timed out will probably do so again, and a serial crawl waits with it.
        retries = self._context.options.max_retries
        most = 1 if isinstance(exception, DownloadTimeoutError) else retries
        return self._retry(request, f"failed ({reason_of(exception, request.url)})", most)

    def _retry(self, request: Request, what: str, most: int) -> Request | None:
        """Return the request to send again, or None after ``most`` retries."""
        host = self._context.host(request.url)
        self._refusals[host] += 1
        attempt = marks_of(request).attempt + 1
        if attempt > most or self._refusals[host] > most:
            tries = counted(attempt, "try", "tries")
            logger.warning("%s %s; giving up after %s", request.url, what, tries)
            self._crawler.stats.inc_value("walsh/backoff/gave_up")
            return None
        hold = format_seconds(marks_of(request).hold)
        logger.info("%s %s; %s is on hold for %s", request.url, what, host, hold)
        self._crawler.stats.inc_value("walsh/backoff/retried")
        again = request.replace(dont_filter=True)
        mark(again, attempt=attempt)
        return again


def _is_refusal(request: Request, status: int) -> bool:
    return is_refusal(status, for_robots=rank_of(request) is Rank.ROBOTS)


def _check(settings: BaseSettings) -> None:
    """Refuse settings by which a request would be retried before this gate sees the response."""
    require_order(
        settings,
        (Gate.BACKOFF,),
        (Gate.PACING,),
        "the pacing gate has to release the host first; set the order of BackoffMiddleware to 549",
    )
    codes = [int(code) for code in settings.getlist("RETRY_HTTP_CODES")]
    is_retried = settings.getbool("RETRY_ENABLED") and in_force(settings, RetryMiddleware)
    if is_retried and RETRIED_STATUSES.intersection(codes):
        rest = [code for code in codes if code not in RETRIED_STATUSES]
        raise bad_setting(
            "RETRY_HTTP_CODES",
            codes,
            f"without 429 and 503, after which RetryMiddleware would retry at once; set {rest}",
        )
