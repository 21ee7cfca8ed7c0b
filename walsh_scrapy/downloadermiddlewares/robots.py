"""R2: a target is requested only after its robots.txt was read, and only if that allows it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import StopDownload

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.robotparser import RobotsSignal
from walsh_scrapy.crawl.robots import Robots, is_robots, origin_for
from walsh_scrapy.crawl.startup import Gate, in_force
from walsh_scrapy.crawl.ticket import note, note_answer, resolved, ticket_of
from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import Hold
from walsh_scrapy.policy.robots.robotstxt import MAX_OCTETS
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from scrapy import Request

    from walsh_scrapy.crawl.crawl import Crawl
    from walsh_scrapy.policy.robots.copy import RobotsFile


logger = logging.getLogger(__name__)


class RobotsMiddleware(Component):
    """Fetches robots.txt first, then lets through the requests that it allows (order 100).

    A request for robots.txt is paced, retried and logged like any other. The scheduler hands out no
    target before the file is known.
    """

    def __init__(self, crawl: Crawl) -> None:
        settings, stats, context = crawl.settings, crawl.stats, crawl.context
        self._stats = stats
        self._context = context
        self._denials = crawl.denials
        self._hosts = crawl.hosts
        self._network = crawl.network
        self._access = crawl.access
        signal = RobotsSignal(
            crawl.crawler, context.options.ua_token, crawl.engine.start, crawl.engine.take_requests
        )
        parts = (crawl.hosts, crawl.queue, crawl.access, crawl.fetcher)
        self._robots = Robots(context, settings, stats, *parts, signal)
        crawl.queue.register_preparer(Gate.ROBOTS, self._robots)
        self._is_paced = in_force(settings, Gate.PACING)
        self._comments: dict[str, tuple[str, ...]] = {}
        crawl.crawler.signals.connect(self.bytes_received, signals.bytes_received)

    async def process_request(self, request: Request) -> Request | None:
        """Decide by the robots.txt of the request's origin, which is fetched if nobody has."""
        self._network.check_route(request)
        if instead := resolved(request):
            return instead
        origin = origin_for(request)
        if is_robots(request):
            # A known Crawl-delay counts for the request for robots.txt too.
            note(request, robots_interval=self._robots.delay(origin))
            return None
        try:
            file = await self._robots.file_for(request)
        except Denied as error:
            # The gate that denies robots.txt denies the requests that need it.
            raise self._denials.deny(request, error.gate, error.reason) from error
        self._keep_comments(origin, file)
        self._check(request, file)
        await self._until_open(request, file)
        return None

    def bytes_received(self, data: bytes, request: Request) -> None:
        """Stop the download of a robots.txt after 500 KiB; our own handler does so by itself."""
        ticket = ticket_of(request)
        if ticket.rank is Rank.ROBOTS and ticket.delivery is not None:
            ticket.delivery.received += len(data)
            if ticket.delivery.received > MAX_OCTETS:
                raise StopDownload(fail=False)

    def _keep_comments(self, origin: str, file: RobotsFile) -> None:
        """Keep the Comment lines of a site, for the summary."""
        if file.rules.comments and origin not in self._comments:
            self._comments[origin] = file.rules.comments
            self._stats.set_value("walsh/robots/comments", self._comments)

    def _check(self, request: Request, file: RobotsFile) -> None:
        note(request, robots_interval=file.interval(self._context.clock.now()))
        verdict = file.rules.verdict(request.url)
        note_answer(
            request,
            "robots",
            "allowed" if verdict.allowed else "denied",
            rule=verdict.rule,
            line=verdict.line,
            robots=file.hash,
            robots_at=file.copy.requested_at,
            robots_status=file.copy.status,
        )
        if not verdict.allowed:
            self._stats.inc_value("robotstxt/forbidden")
            raise self._denials.deny(request, "robots", file.why(verdict))

    async def _until_open(self, request: Request, file: RobotsFile) -> None:
        """Put a host on hold until Visit-time allows a request; PacingMiddleware waits for that."""
        if not (left := max(0.0, file.closed_for(self._context.clock.now()))):
            return
        host = self._context.host(request.url)
        logger.info("%s is on hold for %s, until its Visit-time begins", host, format_seconds(left))
        self._hosts.hold(host, Hold(left, "visit-time"))
        if not self._is_paced:
            self._access.check_wait(request, left)
            await self._access.sleep(left)
