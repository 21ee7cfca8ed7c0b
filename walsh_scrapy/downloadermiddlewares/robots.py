"""R2: a target is requested only after its robots.txt was read, and only if that allows it."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from scrapy import Request, signals
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import StopDownload

from walsh_scrapy.crawl import Crawl
from walsh_scrapy.exceptions import RequestDeferred
from walsh_scrapy.options import bad_setting
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.robots.records import MAX_OCTETS
from walsh_scrapy.policy.urls import host_of, origin_of, robots_url
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.politeness.hostqueue import Wait
from walsh_scrapy.politeness.robots import RobotsFetch
from walsh_scrapy.politeness.robotscache import RobotsCache
from walsh_scrapy.runtime.components import compression_problems
from walsh_scrapy.runtime.gates import Gate
from walsh_scrapy.runtime.requests import mark, marks_of, note_answer, rank_of, resolved, source_of
from walsh_scrapy.runtime.startup import in_force, require_order

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from walsh_scrapy.policy.robots.access import RobotsFile
    from walsh_scrapy.runtime.startup import Problems


logger = logging.getLogger(__name__)

#: Visits for which the state is read at once.
AHEAD: Final = 50


class RobotsMiddleware:
    """Fetches robots.txt first, then lets through what it allows (order 100).

    A request for robots.txt is paced, retried and logged like any other. The targets of its host
    wait for it.
    """

    def __init__(self, crawl: Crawl) -> None:
        settings, stats, context = crawl.settings, crawl.stats, crawl.context
        self._stats = stats
        self._context = context
        self._denials = crawl.denials
        self._queues = crawl.queues
        self._prerequisites = crawl.prerequisites(Rank.ROBOTS)
        self._put_off = crawl.put_off
        self._cache = RobotsCache(context)
        self._fetch = RobotsFetch(settings, stats, context, crawl.queues, self._cache)
        self._most_bytes = settings.getint("DOWNLOAD_MAXSIZE")
        self._comments: dict[str, tuple[str, ...]] = {}
        self._received: WeakKeyDictionary[Request, int] = WeakKeyDictionary()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        gate = cls(Crawl.of(crawler))
        crawler.signals.connect(gate.bytes_received, signal=signals.bytes_received)
        crawler.signals.connect(
            gate.request_reached_downloader, signal=signals.request_reached_downloader
        )
        crawler.signals.connect(
            gate.request_left_downloader, signal=signals.request_left_downloader
        )
        return gate

    @staticmethod
    def problems(settings: BaseSettings) -> Problems:
        """Yield an error for each setting that has to be changed."""
        why = "robots.txt has to be read before the host is leased"
        yield from require_order(settings, Gate.ROBOTS, why, before=(Gate.PACING,))
        if settings.getbool("ROBOTSTXT_OBEY") and in_force(settings, RobotsTxtMiddleware):
            yield bad_setting(
                "ROBOTSTXT_OBEY",
                settings["ROBOTSTXT_OBEY"],
                "False beside RobotsMiddleware: Scrapy's own gate would ask for every robots.txt "
                "again",
            )
        yield from compression_problems(settings)

    async def process_request(self, request: Request) -> Request | None:
        """Decide by the robots.txt of the request's origin, which is fetched first if necessary."""
        if instead := resolved(request):
            return instead
        origin = origin_of(request.url)
        if rank_of(request) is Rank.ROBOTS:
            self._prerequisites.check(request)
            # A known Crawl-delay counts for the request for robots.txt too.
            mark(request, robots_interval=self._cache.interval(origin))
            self._fetch.limit(request)
            return None
        host = host_of(request.url)
        self._put_off.check(host)
        self._look_ahead(request)
        while (file := self._cache.find(origin, request.url)) is None:
            if (error := self._cache.deferral(origin)) is not None:
                raise error
            if instead := await self._fetch_first(origin, request):
                return instead
            self._put_off.check(host)  # the fetch has shown whether it can be reached
        self._keep_comments(origin, file)
        self._judge(request, origin, file)
        return await self._until_open(request, file)

    async def process_exception(self, request: Request, exception: Exception) -> None:
        """Keep a copy of robots.txt usable for the request that it defers to a later run."""
        if rank_of(request) is Rank.ROBOTS or not isinstance(exception, RequestDeferred):
            return
        if exception.by_robots:
            self._cache.keep_for_later(origin_of(request.url), request.url)

    def request_reached_downloader(self, request: Request) -> None:
        """Record that a target is sent, so its robots.txt was used; or a try for robots.txt."""
        if rank_of(request) is Rank.ROBOTS:
            self._fetch.sent(request)
        else:
            self._cache.mark_used(origin_of(request.url), request.url)

    def request_left_downloader(self, request: Request) -> None:
        """Record that a try for robots.txt has ended."""
        self._fetch.ended(request)

    def bytes_received(self, data: bytes, request: Request) -> None:
        """Stop the download of a robots.txt after 500 KiB (decision 11)."""
        if rank_of(request) is Rank.ROBOTS:
            # A longer file is cut off and still read; DOWNLOAD_MAXSIZE bounds what it unpacks to.
            request.meta["download_maxsize"] = self._most_bytes
            received = self._received[request] = self._received.get(request, 0) + len(data)
            if received > MAX_OCTETS:
                raise StopDownload(fail=False)

    def _look_ahead(self, request: Request) -> None:
        """Read what the state has of the next visits, if it was not read for this one.

        So it is read once for many of them. What another crawl writes meanwhile is noticed where
        their hosts are leased.
        """
        if self._is_known(request):
            return
        coming = [request, *self._queues.scheduler.upcoming(AHEAD)]
        visits = {
            source.url: each.url
            for each in coming
            if (source := source_of(each)) and not self._is_known(each)
        }
        if len(visits) > 1:
            state, urls = self._context.state, visits.values()
            state.ledger.look_ahead({self._context.host(url) for url in urls})
            self._cache.look_ahead([*{origin_of(url) for url in urls}])
            state.sources.look_ahead(visits)

    def _is_known(self, request: Request) -> bool:
        """Return True if the state was looked at for the source and the origin of a request."""
        source, sources = source_of(request), self._context.state.sources
        is_remembered = source is None or sources.remembers(source.url)
        return is_remembered and self._cache.has_looked(origin_of(request.url))

    def _keep_comments(self, origin: str, file: RobotsFile) -> None:
        """Keep the Comment lines of a site, for the summary."""
        if file.rules.comments and origin not in self._comments:
            self._comments[origin] = file.rules.comments
            self._stats.set_value("walsh/robots/comments", self._comments)

    def _judge(self, request: Request, origin: str, file: RobotsFile) -> None:
        mark(request, robots_interval=file.interval(self._context.clock.now()))
        verdict = file.rules.verdict(request.url)
        note_answer(
            request,
            "robots",
            "allowed" if verdict.allowed else "denied",
            rule=verdict.rule,
            line=verdict.line,
            robots=file.hash,
            robots_at=file.copy.fetched_at,
            robots_status=file.copy.status,
        )
        if not verdict.allowed:
            self._cache.mark_used(origin, request.url)
            raise self._denials.deny(request, "robots", file.why(verdict))

    async def _until_open(self, request: Request, file: RobotsFile) -> Request | None:
        """Let a request wait until Visit-time allows it."""
        if not file.closed_for(self._context.clock.now()):
            return None
        host, name = host_of(request.url), self._context.hold_name(request.url)

        def seconds() -> float:
            left = max(0.0, file.closed_for(self._context.clock.now()))
            if left:
                hold = format_seconds(left)
                logger.info("%s is on hold for %s, until its Visit-time begins", host, hold)
                self._context.state.ledger.hold(name, left, "visit-time")
            return left

        wait = Wait("robots", name, seconds, by_robots=lambda: True)
        return await self._queues.wait(request, wait)

    async def _fetch_first(self, origin: str, request: Request) -> Request | None:
        url = robots_url(request.url)
        steps = partial(
            self._fetch.steps,
            origin,
            url,
            public_only=marks_of(request).public_only,
            for_blocklist=rank_of(request) is Rank.OPERATOR,
        )
        came_meanwhile = partial(self._cache.came_meanwhile, origin)
        host = self._context.host(origin)
        return await self._prerequisites.before(request, origin, host, steps, came_meanwhile)
