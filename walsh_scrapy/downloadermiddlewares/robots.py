"""R2: a target is requested only after its robots.txt was read, and only if it is allowed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import StopDownload

from walsh_scrapy.crawl.documents.robotscopies import Robots, is_robots, origin_for
from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.crawl.ticket import note, note_answer, resolved, ticket_of
from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import Hold
from walsh_scrapy.policy.robots.robotstxt import MAX_OCTETS
from walsh_scrapy.policy.urls import is_web
from walsh_scrapy.policy.wording import format_seconds

if TYPE_CHECKING:
    from scrapy import Request

    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.policy.robots.copy import RobotsFile


logger = logging.getLogger(__name__)


class RobotsMiddleware(Component):
    """Fetches robots.txt of an origin first, and denies the requests that it disallows (order 100).

    A request for robots.txt is paced, retried and logged like any other request. The scheduler
    hands out no target of an origin before its robots.txt was fetched.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._stats = crawl.stats
        self._context = crawl.context
        self._denials = crawl.denials
        self._hosts = crawl.hosts
        self._network = crawl.network
        self._access = crawl.access
        self._robots = Robots(crawl)
        crawl.queue.register_preparer(Gate.ROBOTS, self._robots)
        self._is_paced = Gate.PACING in crawl.gates
        self._comments: dict[str, tuple[str, ...]] = {}
        crawl.crawler.signals.connect(self.bytes_received, signals.bytes_received)

    async def process_request(self, request: Request) -> Request | None:
        """Deny a request that robots.txt disallows; fetch robots.txt first if necessary.

        Waits for Visit-time. Raises RequestDeferred if that is longer than ``WALSH_MAX_WAIT``.
        """
        if not is_web(request.url):
            return None
        self._network.check_route(request)
        if instead := resolved(request):
            return instead
        origin = origin_for(request)
        if is_robots(request):
            # The Crawl-delay of an earlier copy also applies to the request for robots.txt.
            note(request, robots_interval=self._robots.delay(origin))
            return None
        try:
            file = await self._robots.file_for(request)
        except Denied as error:
            # Report the gate that denied robots.txt, because it is the reason for both denials.
            raise self._denials.deny(request, error.gate, error.reason) from error
        self._keep_comments(origin, file)
        self._check_rules(request, file)
        await self._wait_for_visit_time(request, file)
        return None

    def bytes_received(self, data: bytes, request: Request) -> None:
        """Stop the download of a robots.txt after 500 KiB (RFC 9309 2.5).

        The add-on's download handler does so by itself; this is for any other handler.
        """
        ticket = ticket_of(request)
        if ticket.rank is Rank.ROBOTS and ticket.delivery is not None:
            ticket.delivery.received += len(data)
            if ticket.delivery.received > MAX_OCTETS:
                raise StopDownload(fail=False)

    def _keep_comments(self, origin: str, file: RobotsFile) -> None:
        """Keep the Comment lines of a robots.txt for the summary of the run."""
        if file.rules.comments and origin not in self._comments:
            self._comments[origin] = file.rules.comments
            self._stats.set_value("walsh/robots/comments", self._comments)

    def _check_rules(self, request: Request, file: RobotsFile) -> None:
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

    async def _wait_for_visit_time(self, request: Request, file: RobotsFile) -> None:
        """Put a host on hold until its Visit-time begins. PacingMiddleware then does the waiting.

        Without PacingMiddleware the request waits here.
        """
        if not (seconds := self._robots.visit_time_wait(origin_for(request), file)):
            return
        host = self._context.host(request.url)
        logger.info(
            "%s is on hold for %s, until its Visit-time begins", host, format_seconds(seconds)
        )
        self._hosts.hold(host, Hold(seconds, "visit-time"))
        if not self._is_paced:
            self._access.check_wait(request, seconds)
            await self._access.sleep(seconds)
