"""R2: no target is asked for before its host's robots.txt was read, and only as that allows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request, signals
from scrapy.exceptions import StopDownload

from walsh_scrapy import meta
from walsh_scrapy.crawl import Crawl
from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.policy.availability import Meaning, meaning_of
from walsh_scrapy.policy.durations import format_seconds
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.robotslines import MAX_OCTETS
from walsh_scrapy.policy.urls import followed, origin_of, robots_url
from walsh_scrapy.robotsfiles import RobotsFile, RobotsFiles
from walsh_scrapy.scheduler import scheduler_of

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

logger = logging.getLogger(__name__)

#: In the meta of a request for robots.txt: the scheme, host and port whose rules it will bring.
ORIGIN = "walsh_robots_origin"
RECEIVED = "walsh_robots_received"


class RobotsMiddleware:
    """Asks for robots.txt first, then lets through what it allows (order 100).

    A request for robots.txt is a request like any other: it is scheduled, paced, backed off and
    logged. While it is out, the host's targets wait in the scheduler, and other hosts go on.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._files = RobotsFiles(self._crawl)
        self._deferred: dict[str, RequestDeferred] = {}
        self._comments: dict[str, tuple[str, ...]] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        gate = cls(crawler)
        crawler.signals.connect(gate.bytes_received, signal=signals.bytes_received)
        crawler.signals.connect(
            gate.request_reached_downloader, signal=signals.request_reached_downloader
        )
        return gate

    async def process_request(self, request: Request) -> Request | None:
        """Decide by the host's robots.txt, or send for it."""
        origin = origin_of(request.url)
        if meta.rank(request) is Rank.ROBOTS:
            # A Crawl-delay holds for robots.txt too, once the host has told us of it.
            request.meta[meta.INTERVAL] = self._files.known_interval(origin)
            return None
        file = self._files.at_hand(origin)
        if file is None:
            if origin in self._deferred:
                raise self._deferred[origin]
            return self._send_for(origin, request)
        self._tell(origin, file)
        self._judge(request, origin, file)
        return self._outside_visit_time(request, file)

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Keep the copy that makes a request wait for a later run."""
        if isinstance(exception, RequestDeferred) and meta.rank(request) is not Rank.ROBOTS:
            self._files.keep_for_later(origin_of(request.url))

    def request_reached_downloader(self, request: Request) -> None:
        """Note that the request for whose sake a robots.txt was fetched is sent."""
        if meta.rank(request) is not Rank.ROBOTS:
            self._files.mark_used(origin_of(request.url))

    def bytes_received(self, data: bytes, request: Request) -> None:
        """Read no more of a robots.txt than counts (ruling 11)."""
        if meta.rank(request) is Rank.ROBOTS:
            # A longer file is read as far as it counts, but what it unpacks to is bounded.
            request.meta["download_maxsize"] = self._crawler.settings.getint("DOWNLOAD_MAXSIZE")
            received = request.meta[RECEIVED] = request.meta.get(RECEIVED, 0) + len(data)
            if received > MAX_OCTETS:
                raise StopDownload(fail=False)

    def _tell(self, origin: str, file: RobotsFile) -> None:
        """Keep what a site says to us in Comment lines, for the summary."""
        if file.rules.comments and origin not in self._comments:
            self._comments[origin] = file.rules.comments
            self._crawler.stats.set_value("walsh/robots/comments", self._comments)

    def _judge(self, request: Request, origin: str, file: RobotsFile) -> None:
        request.meta[meta.INTERVAL] = file.interval(self._crawl.now())
        verdict = file.rules.verdict(request.url)
        meta.note(request, "robots", "allowed" if verdict.allowed else "denied")
        if not verdict.allowed:
            self._files.mark_used(origin)
            self._crawler.stats.inc_value("walsh/robots/denied")
            raise Denied("robots", file.why(verdict))

    def _outside_visit_time(self, request: Request, file: RobotsFile) -> Request | None:
        """Send a request back to wait for the host's next opening, if it is closed now."""
        now = self._crawl.now()
        wait = file.closed_for(now)
        if wait <= 0:
            return None
        host = self._crawl.host(request.url)
        logger.info("%s asks to be visited at other times; it rests %s", host, format_seconds(wait))
        self._crawl.state.ledger.change(host, lambda times, at: times.held(at, wait))
        if wait > self._crawl.options.max_wait:
            raise RequestDeferred(now + wait, f"{host} opens in {format_seconds(wait)}")
        if scheduler := scheduler_of(self._crawler):
            scheduler.wait(host, wait)
            return scheduler.again(request)
        return request.replace(dont_filter=True)

    def _send_for(self, origin: str, request: Request) -> Request:
        """Set a target aside until its host's robots.txt was read; return the request for that."""
        if scheduler := scheduler_of(self._crawler):
            scheduler.set_aside(request, Rank.ROBOTS, self._crawl.host(origin))
        return self._request(robots_url(request.url), origin, ())

    def _request(self, url: str, origin: str, hops: tuple[str, ...]) -> Request:
        return Request(
            url,
            callback=self._arrived,
            errback=self._failed,
            dont_filter=True,
            headers={"Accept": "text/plain, */*;q=0.5"},
            meta={
                meta.RANK: Rank.ROBOTS,
                ORIGIN: origin,
                # Redirects and errors mean something of their own here (RFC 9309 2.3.1).
                "redirect_urls": list(hops),
                "dont_redirect": True,
                "dont_retry": True,
                "handle_httpstatus_all": True,
                "download_maxsize": 0,
            },
        )

    def _arrived(self, response: Response) -> None:
        request = meta.asked_by(response)
        hops = tuple(request.meta["redirect_urls"])
        location = response.headers.get("Location")
        meaning = meaning_of(response.status, len(hops), has_location=location is not None)
        if meaning == "redirect" and location is not None:
            if target := followed(response.url, location):
                hop = self._request(target, request.meta[ORIGIN], (*hops, request.url))
                self._crawler.engine.crawl(hop)
                return
            meaning = "unavailable"
        self._settle(request.meta[ORIGIN], response.status, meaning, response.body)

    def _failed(self, failure: Failure) -> None:
        origin, error = meta.asked_by(failure).meta[ORIGIN], failure.value
        if isinstance(error, RequestDeferred):
            self._put_off(origin, error)
        elif isinstance(error, Denied):  # a redirect led to where we may not ask
            logger.info("%s/robots.txt redirects to where it cannot be read: %s", origin, error)
            self._settle(origin, None, "unavailable", b"")
        else:
            self._settle(origin, None, "unreachable", b"")

    def _put_off(self, origin: str, error: RequestDeferred) -> None:
        self._deferred[origin] = error
        self._go_on(origin)

    def _settle(self, origin: str, status: int | None, meaning: Meaning, body: bytes) -> None:
        """Let the host's targets go on by what came, at the spacing that it asks for."""
        self._crawler.stats.inc_value(f"walsh/robots/{meaning}")
        try:
            file = self._files.settle(origin, status, meaning, body)
        except RequestDeferred as error:  # the state failed
            self._put_off(origin, error)
            return
        now = self._crawl.now()
        interval = file.interval(now)
        if interval > self._crawl.options.min_interval:
            self._widen(self._crawl.host(origin), interval)
        self._go_on(origin)

    def _widen(self, host: str, interval: float) -> None:
        ledger = self._crawl.state.ledger
        standing = ledger.change(host, lambda times, _now: times.widened(interval))
        if scheduler := scheduler_of(self._crawler):
            scheduler.wait(host, standing.rest, standing.times.interval)

    def _go_on(self, origin: str) -> None:
        if scheduler := scheduler_of(self._crawler):
            scheduler.restrict(Rank.TARGET, self._crawl.host(origin))
