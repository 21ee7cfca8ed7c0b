"""How a robots.txt is fetched, with its redirects, and what the response means (decision 12)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request

from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.policy.references import resolve_reference
from walsh_scrapy.policy.robots.access import AccessResult, access_result
from walsh_scrapy.politeness.hostqueues import HostQueues
from walsh_scrapy.runtime.context import Context
from walsh_scrapy.runtime.marks import request_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from walsh_scrapy.politeness.prerequisites import Steps
    from walsh_scrapy.politeness.robots import RobotsCache

logger = logging.getLogger(__name__)


class RobotsFetch:
    """Fetches a robots.txt, and puts the outcome into the cache."""

    def __init__(self, crawler: Crawler, cache: RobotsCache) -> None:
        self._stats = crawler.stats
        self._context = Context.of(crawler)
        self._queues = HostQueues.of(crawler)
        self._cache = cache

    def steps(self, origin: str, url: str) -> Steps:
        """Yield the requests for an origin's file at ``url``, and keep the outcome.

        See ``prerequisites`` for how they are made.
        """
        hops: tuple[str, ...] = ()
        while True:
            answer = yield _request(url, hops)
            if isinstance(answer, BaseException):
                self._failed(origin, answer)
                return
            location = answer.headers.get("Location")
            result = access_result(answer.status, len(hops), has_location=location is not None)
            if result != "redirect" or location is None:
                break
            target = resolve_reference(answer.url, location)
            if target is None:
                result = "unavailable"
                break
            url, hops = target, (*hops, request_of(answer).url)
        self._settle(origin, answer.status, result, answer.body)

    def _failed(self, origin: str, error: BaseException) -> None:
        if isinstance(error, RequestDeferred):
            self._cache.defer(origin, error)
        elif isinstance(error, Denied):  # a gate denied the target of a redirect
            logger.info("%s/robots.txt redirects to a denied URL: %s", origin, error)
            self._settle(origin, None, "unavailable", b"")
        else:
            self._settle(origin, None, "unreachable", b"")

    def _settle(self, origin: str, status: int | None, result: AccessResult, body: bytes) -> None:
        """Keep the outcome, and give the host the spacing that its file asks for."""
        self._stats.inc_value(f"walsh/robots/{result}")
        try:
            file = self._cache.settle(origin, status, result, body)
        except RequestDeferred as error:  # the state failed
            self._cache.defer(origin, error)
            return
        interval = file.interval(self._context.clock.now())
        if interval > self._context.options.min_interval:
            host = self._context.host(origin)
            snapshot = self._context.state.ledger.widen(host, interval)
            self._queues.delay(host, snapshot.wait, snapshot.times.interval)


def _request(url: str, hops: tuple[str, ...]) -> Request:
    return Request(
        url,
        headers={"Accept": "text/plain, */*;q=0.5"},
        meta={
            # For robots.txt, redirects and errors have their own meaning (RFC 9309 2.3.1).
            "redirect_urls": list(hops),
            "dont_redirect": True,
            "dont_retry": True,
            "handle_httpstatus_all": True,
            "download_maxsize": 0,
        },
    )
