"""How a robots.txt is asked for, and what its answer means to the host (R2, decision 12)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request

from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.policy.pacing import LOOK_AGAIN
from walsh_scrapy.policy.references import resolve_reference
from walsh_scrapy.policy.robots.access import AccessResult, access_result
from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.context import Crawl
from walsh_scrapy.scheduler import scheduler_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from walsh_scrapy.politeness.prerequisites import Flow
    from walsh_scrapy.politeness.robotscache import RobotsFiles

logger = logging.getLogger(__name__)


class RobotsFlow:
    """Reads one robots.txt after the other, and settles what each means."""

    def __init__(self, crawler: Crawler, files: RobotsFiles) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._files = files
        self._put_off: dict[str, tuple[RequestDeferred, float]] = {}

    def put_off(self, origin: str) -> RequestDeferred | None:
        """Return why an origin's file cannot be read yet, if so (decision 7).

        A run may last longer than what it did not wait for.
        """
        error, until = self._put_off.get(origin, (None, 0.0))
        return error if self._crawl.now() < until else None

    def read(self, origin: str, url: str) -> Flow:
        """Ask for a robots.txt, wherever it redirects to, and settle what that means."""
        hops: tuple[str, ...] = ()
        while True:
            answer = yield _request(url, hops)
            if isinstance(answer, BaseException):
                self._failed(origin, answer)
                return
            location = answer.headers.get("Location")
            meaning = access_result(answer.status, len(hops), has_location=location is not None)
            if meaning != "redirect" or location is None:
                break
            target = resolve_reference(answer.url, location)
            if target is None:
                meaning = "unavailable"
                break
            url, hops = target, (*hops, meta.asked_by(answer).url)
        self._settle(origin, answer.status, meaning, answer.body)

    def _failed(self, origin: str, error: BaseException) -> None:
        if isinstance(error, RequestDeferred):
            self._leave(origin, error)
        elif isinstance(error, Denied):  # a redirect led to where we may not ask
            logger.info("%s/robots.txt redirects to where it cannot be read: %s", origin, error)
            self._settle(origin, None, "unavailable", b"")
        else:
            self._settle(origin, None, "unreachable", b"")

    def _leave(self, origin: str, error: RequestDeferred) -> None:
        # A state that failed names no later moment, and is not asked again at once either.
        self._put_off[origin] = error, max(error.until, self._crawl.now() + LOOK_AGAIN)

    def _settle(self, origin: str, status: int | None, meaning: AccessResult, body: bytes) -> None:
        """Let the host's targets go on by what came, at the spacing that it asks for."""
        self._crawler.stats.inc_value(f"walsh/robots/{meaning}")
        try:
            file = self._files.settle(origin, status, meaning, body)
        except RequestDeferred as error:  # the state failed
            self._leave(origin, error)
            return
        now = self._crawl.now()
        interval = file.interval(now)
        if interval > self._crawl.options.min_interval:
            self._widen(self._crawl.host(origin), interval)

    def _widen(self, host: str, interval: float) -> None:
        ledger = self._crawl.state.ledger
        standing = ledger.change(host, lambda times, _now: times.widened(interval))
        if scheduler := scheduler_of(self._crawler):
            scheduler.wait(host, standing.rest, standing.times.interval)


def _request(url: str, hops: tuple[str, ...]) -> Request:
    return Request(
        url,
        headers={"Accept": "text/plain, */*;q=0.5"},
        meta={
            # Redirects and errors mean something of their own here (RFC 9309 2.3.1).
            "redirect_urls": list(hops),
            "dont_redirect": True,
            "dont_retry": True,
            "handle_httpstatus_all": True,
            "download_maxsize": 0,
        },
    )
