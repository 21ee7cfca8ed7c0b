"""A host's hold (R5): what an answer does to it, and who keeps it where no pacing gate does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals

from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.politeness.hostqueue import Turns
from walsh_scrapy.politeness.inflight import Wire
from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.context import Crawl

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.policy.pacing import HostTimes
    from walsh_scrapy.state.hosts import Decision


def hold_after(
    crawl: Crawl, request: Request, response: Response | None, latency: float
) -> Decision:
    """Return the decision on a host's line after an exchange of ``latency`` seconds.

    A response of None is no answer at all.
    """
    status = 0 if response is None else response.status
    retry_after = None if response is None else response.headers.get("Retry-After")

    def held(times: HostTimes, now: float) -> HostTimes:
        return crawl.backoff.after(
            times,
            now,
            now - latency,
            status,
            None if retry_after is None else retry_after.decode("latin-1"),
            for_robots=meta.rank(request) is Rank.ROBOTS,
        )

    return held


class Holds:
    """Lets one request at a time out to a host, and none while that is on hold.

    One at a time, for what passed here may wait in Scrapy's downloader, where nobody asks again.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawl = Crawl.of(crawler)
        self._turns = Turns(crawler, "backoff")
        self._wire = Wire(crawler.settings)
        # Middlewares nearer to the wire take some answers away, to retry them or to redirect.
        crawler.signals.connect(self.response_downloaded, signal=signals.response_downloaded)
        crawler.signals.connect(self.over, signal=signals.request_left_downloader)

    async def wait(self, request: Request) -> Request | None:
        """Return None when a request may go out, or the request that goes back to wait."""
        host = self._crawl.host(request.url)

        def hold() -> float:
            standing = self._crawl.state.ledger.find(host)
            wait = max(0.0, standing.times.hold_until - standing.now)
            if not wait:
                self._wire.went_out(request, host)
            return wait

        return await self._turns.wait(request, host, hold, lambda: self._wire.silence(host))

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Lay the hold that an answer asks for, before the next request is let out."""
        if response.status >= 400:
            self.lay(request, response)

    def lay(self, request: Request, response: Response | None) -> None:
        """Write a hold into the ledger: for this crawl, all others on the state, and later ones."""
        held = hold_after(self._crawl, request, response, self._wire.came_back(request) or 0.0)
        standing = self._crawl.state.ledger.change(self._crawl.host(request.url), held)
        request.meta[meta.HELD] = standing.times.hold_until - standing.now

    def over(self, request: Request) -> None:
        """Let the next request out: this one came to its end, in whatever way."""
        self._wire.came_back(request)
