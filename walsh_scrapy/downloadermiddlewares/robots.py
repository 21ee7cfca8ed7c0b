"""R2: no target is asked for before its host's robots.txt was read, and only as that allows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request, signals
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import StopDownload

from walsh_scrapy import identity
from walsh_scrapy.downloadermiddlewares.identity import IdentityMiddleware
from walsh_scrapy.downloadermiddlewares.pacing import PacingMiddleware
from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.options import bad_setting
from walsh_scrapy.policy.durations import format_seconds
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.robots.records import MAX_OCTETS
from walsh_scrapy.policy.urls import origin_of, robots_url
from walsh_scrapy.politeness.hostqueue import Turns
from walsh_scrapy.politeness.prerequisites import Errands
from walsh_scrapy.politeness.robotscache import RobotsFile, RobotsFiles
from walsh_scrapy.politeness.robotsflow import RobotsFlow
from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.context import Crawl
from walsh_scrapy.runtime.startup import check_floor, in_force, require_order

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings


logger = logging.getLogger(__name__)

#: In the meta of a request for robots.txt: how many bytes of it have come.
RECEIVED = "walsh_robots_received"


class RobotsMiddleware:
    """Asks for robots.txt first, then lets through what it allows (order 100).

    A request for robots.txt is a request like any other: it is paced, backed off and logged. While
    it is out, the host's targets wait, in our scheduler if they came from there.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._files = RobotsFiles(self._crawl)
        self._flow = RobotsFlow(crawler, self._files)
        self._errands = Errands(crawler, Rank.ROBOTS)
        self._turns = Turns(crawler, "robots")
        self._comments: dict[str, tuple[str, ...]] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        check_floor(crawler, _floor)
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
            self._errands.check(request)
            # A Crawl-delay holds for robots.txt too, once the host has told us of it.
            request.meta[meta.INTERVAL] = self._files.known_interval(origin)
            return None
        while (file := self._files.at_hand(origin)) is None:
            if (error := self._flow.put_off(origin)) is not None:
                raise error
            if instead := await self._sent_for(origin, request):
                return instead
        self._tell(origin, file)
        self._judge(request, origin, file)
        return await self._until_open(request, file)

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Keep the copy that makes a request wait for a later run."""
        if isinstance(exception, RequestDeferred) and meta.rank(request) is not Rank.ROBOTS:
            self._files.keep_for_later(origin_of(request.url))

    def request_reached_downloader(self, request: Request) -> None:
        """Note that the request for whose sake a robots.txt was fetched is sent."""
        if meta.rank(request) is not Rank.ROBOTS:
            self._files.mark_used(origin_of(request.url))

    def bytes_received(self, data: bytes, request: Request) -> None:
        """Read no more of a robots.txt than counts (decision 11)."""
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

    async def _until_open(self, request: Request, file: RobotsFile) -> Request | None:
        """Let a request wait for the host's next opening, if that is closed now."""
        if not file.closed_for(self._crawl.now()):
            return None
        host = self._crawl.host(request.url)

        def closed() -> float:
            wait = max(0.0, file.closed_for(self._crawl.now()))
            if wait:
                rest = format_seconds(wait)
                logger.info("%s asks to be visited at other times; it rests %s", host, rest)
                self._crawl.state.ledger.change(host, lambda times, at: times.held(at, wait))
            return wait

        return await self._turns.wait(request, host, closed)

    async def _sent_for(self, origin: str, request: Request) -> Request | None:
        url = robots_url(request.url)
        host = self._crawl.host(origin)
        return await self._errands.before(
            request, origin, host, lambda: self._flow.read(origin, url)
        )


def _floor(settings: BaseSettings) -> None:
    require_order(
        settings,
        (RobotsMiddleware,),
        (PacingMiddleware,),
        "robots.txt is read before a host is taken; set the order of RobotsMiddleware to 100",
    )
    if settings.getbool("ROBOTSTXT_OBEY") and in_force(settings, RobotsTxtMiddleware):
        raise bad_setting(
            "ROBOTSTXT_OBEY",
            settings["ROBOTSTXT_OBEY"],
            "False beside RobotsMiddleware: Scrapy's own gate would ask for every robots.txt again",
        )
    token = settings.get("WALSH_UA_TOKEN") or identity.UA_TOKEN
    is_named = token.lower() in str(settings["USER_AGENT"]).lower()
    if not is_named and not in_force(settings, IdentityMiddleware):
        raise bad_setting(
            "USER_AGENT",
            settings["USER_AGENT"],
            f"a line that holds {token!r}, the name whose rules are obeyed (WALSH_UA_TOKEN); "
            "IdentityMiddleware at 860 sets it",
        )
