"""R5: a server that says "not now" is left alone, by the whole crawl, for as long as it says."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.exceptions import DownloadTimeoutError, IgnoreRequest

from walsh_scrapy.downloadermiddlewares.pacing import PacingMiddleware
from walsh_scrapy.options import bad_setting
from walsh_scrapy.policy.backoff import RETRIED_STATUSES, is_refusal
from walsh_scrapy.policy.durations import format_seconds
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.politeness.holds import Holds
from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.context import Crawl
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.runtime.startup import check_floor, in_force, require_order

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings


logger = logging.getLogger(__name__)


class BackoffMiddleware:
    """Asks again later, a bounded number of times (order 549).

    The hold on the host is pacing's: it is written with the end of the exchange. Without the pacing
    gate this one writes it, and keeps it.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._holds = None if in_force(crawler.settings, PacingMiddleware) else Holds(crawler)
        self._failing: Counter[str] = Counter()  # refusals of a host since it last answered

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        check_floor(crawler, _floor)
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        """Without the pacing gate: let a request wait while its host is on hold."""
        return await self._holds.wait(request) if self._holds else None

    async def process_response(self, request: Request, response: Response) -> Request | Response:
        """Ask again after 429 and 503; for robots.txt after every server error (decision 12)."""
        if self._holds:
            self._holds.over(request)
        if _is_refusal(request, response.status):
            most = self._crawl.options.max_retries
            return self._later(request, f"answered {response.status}", most) or response
        self._failing.pop(self._crawl.host(request.url), None)
        return response

    async def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Ask again for a robots.txt that got no answer at all."""
        if self._holds:
            self._holds.over(request)
        if isinstance(exception, IgnoreRequest) or not _is_refusal(request, 0):
            return None
        if self._holds:
            self._holds.lay(request, None)
        # A host that keeps us hanging does so again: once more, and the others get their turn.
        most = 1 if isinstance(exception, DownloadTimeoutError) else self._crawl.options.max_retries
        what = f"brought nothing ({reason_of(exception, request.url)})"
        return self._later(request, what, most)

    def _later(self, request: Request, what: str, most: int) -> Request | None:
        host = self._crawl.host(request.url)
        self._failing[host] += 1
        attempt = request.meta.get(meta.ATTEMPT, 0) + 1
        if attempt > most or self._failing[host] > most:
            logger.warning("%s %s; giving up after %d tries", request.url, what, attempt)
            self._crawler.stats.inc_value("walsh/backoff/gave_up")
            return None
        rest = format_seconds(request.meta.get(meta.HELD, 0.0))
        logger.info("%s %s; %s rests %s", request.url, what, host, rest)
        self._crawler.stats.inc_value("walsh/backoff/retried")
        return request.replace(dont_filter=True, meta={**request.meta, meta.ATTEMPT: attempt})


def _is_refusal(request: Request, status: int) -> bool:
    return is_refusal(status, for_robots=meta.rank(request) is Rank.ROBOTS)


def _floor(settings: BaseSettings) -> None:
    """Refuse what would ask again at once, before this gate sees an answer."""
    require_order(
        settings,
        (BackoffMiddleware,),
        (PacingMiddleware,),
        "it gives the host back first; set the order of BackoffMiddleware to 549",
    )
    codes = [int(code) for code in settings.getlist("RETRY_HTTP_CODES")]
    is_retried = settings.getbool("RETRY_ENABLED") and in_force(settings, RetryMiddleware)
    if is_retried and RETRIED_STATUSES.intersection(codes):
        rest = [code for code in codes if code not in RETRIED_STATUSES]
        raise bad_setting(
            "RETRY_HTTP_CODES",
            codes,
            f"without 429 and 503, after which RetryMiddleware would ask again at once; set {rest}",
        )
