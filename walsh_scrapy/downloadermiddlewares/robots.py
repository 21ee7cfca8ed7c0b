"""R2: no target is asked for before its host's robots.txt was read, and only as that allows."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from scrapy import Request, signals
from scrapy.exceptions import StopDownload
from scrapy.utils.datatypes import LocalCache

from walsh_scrapy import meta
from walsh_scrapy.crawl import Crawl
from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.policy.availability import Meaning, RobotsCopy, meaning_of, updated
from walsh_scrapy.policy.durations import format_seconds
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.robots import RobotsTxt, Rules
from walsh_scrapy.policy.robotslines import MAX_OCTETS
from walsh_scrapy.policy.urls import origin_of, robots_url
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
#: Parsed files kept in memory at once; the state has the others.
KEPT_RULES = 2000


@dataclass(frozen=True, slots=True)
class _Read:
    copy: RobotsCopy
    rules: Rules

    def interval(self, now: float) -> float:
        asked = (self.rules.crawl_delay, self.rules.interval(datetime.fromtimestamp(now, UTC)))
        return max((seconds for seconds in asked if seconds is not None), default=0.0)


class RobotsMiddleware:
    """Asks for robots.txt first, then lets through what it allows (order 100).

    A request for robots.txt is a request like any other: it is scheduled, paced, backed off and
    logged. While it is out, the host's targets wait in the scheduler, and other hosts go on.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._read: LocalCache[str, _Read] = LocalCache(KEPT_RULES)
        self._deferred: dict[str, RequestDeferred] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        gate = cls(crawler)
        crawler.signals.connect(gate.bytes_received, signal=signals.bytes_received)
        return gate

    async def process_request(self, request: Request) -> Request | None:
        """Decide by the host's robots.txt, or send for it."""
        if meta.rank(request) is Rank.ROBOTS:
            return None
        origin = origin_of(request.url)
        read = self._usable(origin)
        if read is None:
            if origin in self._deferred:
                raise self._deferred[origin]
            return self._send_for(origin, request)
        self._judge(request, read)
        return self._outside_visit_time(request, read)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Let a copy grow old once the request that it made wait was sent (ruling 7)."""
        if meta.rank(request) is not Rank.ROBOTS:
            self._mark_used(origin_of(request.url))
        return response

    def bytes_received(self, data: bytes, request: Request) -> None:
        """Read no more of a robots.txt than counts (ruling 11)."""
        if meta.rank(request) is Rank.ROBOTS:
            # A longer file is read as far as it counts, but what it unpacks to is bounded.
            request.meta["download_maxsize"] = self._crawler.settings.getint("DOWNLOAD_MAXSIZE")
            received = request.meta[RECEIVED] = request.meta.get(RECEIVED, 0) + len(data)
            if received > MAX_OCTETS:
                raise StopDownload(fail=False)

    def _judge(self, request: Request, read: _Read) -> None:
        now = self._crawl.now()
        request.meta[meta.INTERVAL] = read.interval(now)
        verdict = read.rules.verdict(request.url)
        meta.note(request, "robots", "allowed" if verdict.allowed else "denied")
        if not verdict.allowed:
            self._mark_used(origin_of(request.url))
            self._crawler.stats.inc_value("walsh/robots/denied")
            raise Denied("robots", f"line {verdict.line} of robots.txt says {verdict.rule!r}")

    def _outside_visit_time(self, request: Request, read: _Read) -> Request | None:
        """Send a request back to wait for the host's next opening, if it is closed now."""
        now = self._crawl.now()
        at = datetime.fromtimestamp(now, UTC)
        wait = (read.rules.opens(at) - at).total_seconds()
        if wait <= 0:
            return None
        host = self._crawl.host(request.url)
        logger.info("%s asks to be visited at other times; it rests %s", host, format_seconds(wait))
        self._crawl.state.ledger.change(host, now, lambda times: times.held(now, wait))
        if wait > self._crawl.options.max_wait:
            raise RequestDeferred(now + wait, f"{host} opens in {format_seconds(wait)}")
        if scheduler := scheduler_of(self._crawler):
            scheduler.wait(host, wait)
        return request.replace(dont_filter=True)

    def _usable(self, origin: str) -> _Read | None:
        """Return the rules at hand for an origin, if they may still be used."""
        now, ttl = self._crawl.now(), self._crawl.options.robots_ttl
        if (read := self._read.get(origin)) is None:
            copy = self._crawl.state.robots.find(origin)
            if copy is None or not copy.is_usable(now, ttl):
                return None
            read = self._remember(origin, copy, now)
        return read if read.copy.is_usable(now, ttl) else None

    def _remember(self, origin: str, copy: RobotsCopy, now: float) -> _Read:
        body = copy.rules_body(self._crawl.options.robots_unreachable, now)
        rules = RobotsTxt.parse(body).rules_for(self._crawl.options.ua_token)
        for line, warning in rules.warnings:
            logger.info("%s/robots.txt line %d: %s", origin, line, warning)
        self._read[origin] = read = _Read(copy, rules)
        return read

    def _send_for(self, origin: str, request: Request) -> Request:
        """Set a target aside until its host's robots.txt was read; return the request for that."""
        if scheduler := scheduler_of(self._crawler):
            scheduler.put_back(request)
            scheduler.restrict(Rank.ROBOTS, self._crawl.host(request.url))
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
            target = urljoin(response.url, location.decode("latin-1"))
            if target.startswith(("http://", "https://")):
                hop = self._request(target, request.meta[ORIGIN], (*hops, request.url))
                self._crawler.engine.crawl(hop)
                return
            meaning = "unavailable"
        self._settle(request.meta[ORIGIN], response.status, meaning, response.body)

    def _failed(self, failure: Failure) -> None:
        origin, error = meta.asked_by(failure).meta[ORIGIN], failure.value
        if isinstance(error, RequestDeferred):
            self._deferred[origin] = error
            self._go_on(origin)
        elif isinstance(error, Denied):  # a redirect led to where we may not ask
            logger.info("%s/robots.txt redirects to where it cannot be read: %s", origin, error)
            self._settle(origin, None, "unavailable", b"")
        else:
            self._settle(origin, None, "unreachable", b"")

    def _settle(self, origin: str, status: int | None, meaning: Meaning, body: bytes) -> None:
        """Keep what came of a request for robots.txt, and let the host's targets go on."""
        now = self._crawl.now()
        store = self._crawl.state.robots
        copy = updated(store.find(origin), now, status, meaning, body)
        store.keep(origin, copy)
        self._crawler.stats.inc_value(f"walsh/robots/{meaning}")
        if meaning == "unreachable":
            logger.warning(
                "%s/robots.txt could not be read (%s); going by %s",
                origin,
                status or "no answer",
                "the last good copy" if copy.body is not None else "WALSH_ROBOTS_UNREACHABLE",
            )
        self._widen(origin, self._remember(origin, copy, now).interval(now), now)
        self._go_on(origin)

    def _widen(self, origin: str, interval: float, now: float) -> None:
        """Let the spacing that the file asks for hold from the file itself on."""
        host = self._crawl.host(origin)
        times = self._crawl.state.ledger.change(host, now, lambda known: known.widened(interval))
        if scheduler := scheduler_of(self._crawler):
            scheduler.wait(host, times.ready_at(0.0) - now, times.interval)

    def _go_on(self, origin: str) -> None:
        if scheduler := scheduler_of(self._crawler):
            scheduler.restrict(Rank.TARGET, self._crawl.host(origin))

    def _mark_used(self, origin: str) -> None:
        read = self._read.get(origin)
        if read is not None and read.copy.unused:
            self._crawl.state.robots.mark_used(origin)
            self._read[origin] = _Read(replace(read.copy, unused=False), read.rules)
