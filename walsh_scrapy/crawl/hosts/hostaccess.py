"""Access to hosts for gates and fetches, which wait outside of the scheduler's queue.

A host is owned before it gets a request. A request that would wait longer than ``WALSH_MAX_WAIT``,
or past the end of the crawl, is deferred to a later run, so that a run ends and loses nothing.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from scrapy.utils.asyncio import sleep

from walsh_scrapy.crawl.startup import Gate, has_gate
from walsh_scrapy.crawl.ticket import subject_of, ticket_of
from walsh_scrapy.exceptions import RequestDeferred, StillDue
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.pacing import RECHECK_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy import Request

    from walsh_scrapy.crawl.parts import Crawl

#: Seconds for which a request waits for a host that another worker owns.
OWNED_HOST_TIMEOUT_SECONDS: Final = 90.0


class HostAccess:
    """Takes hosts, waits for them, and defers requests that would wait too long."""

    def __init__(self, crawl: Crawl) -> None:
        self._is_paced = has_gate(crawl.settings, Gate.PACING)
        self._context = crawl.context
        self._engine = crawl.engine
        self._stats = crawl.stats
        self._hosts = crawl.hosts
        self._queue = crawl.queue
        self.deferred_requests: WeakSet[Request] = WeakSet()
        #: Method and URL of each deferred request, until it is requested again.
        self.deferred_urls: set[tuple[str, str]] = set()
        #: The hosts whose deferred requests are logged, with one line for each host.
        self.logged_hosts: set[str] = set()

    @asynccontextmanager
    async def owning(self, url: str) -> AsyncIterator[None]:
        """Own the host of a URL in an ``async with`` block; see ``take``."""
        host = self._context.host(url)
        reason = object()
        await self.take(host, reason)
        try:
            yield
        finally:
            self._hosts.let_go(host, reason)

    async def take(self, host: str, reason: object) -> None:
        """Own a host as soon as no other worker owns it.

        Does nothing in a crawl without PacingMiddleware. Raises RequestDeferred if the wait takes
        too long, if another worker has deferred the host, and at the end of the crawl.
        """
        if not self._is_paced:
            return
        until = self._context.clock.monotonic() + OWNED_HOST_TIMEOUT_SECONDS
        while (result := self._queue.own(host, reason)) == "wait":
            if self._context.clock.monotonic() > until:
                raise self.make_deferral(f"another worker owns {host}")
            await self.sleep(RECHECK_SECONDS)
        if result == "deferred":
            raise self.make_deferral(f"{host} is given up for this run, maybe by another crawl")

    async def sleep(self, seconds: float) -> None:
        """Sleep. Raises RequestDeferred if the spider closes, which Scrapy has no signal for."""
        clock = self._context.clock
        until = clock.monotonic() + seconds
        while (remaining := until - clock.monotonic()) > 0:
            self.check_open(remaining)
            await sleep(min(remaining, RECHECK_SECONDS))

    def check_open(self, seconds: float = 0.0) -> None:
        """Raise RequestDeferred if the spider is closing; the wait would end in ``seconds``."""
        if self._engine.is_closing:
            raise self.make_deferral("the crawl ends", seconds)

    def check_wait(self, request: Request, seconds: float) -> None:
        """Raise RequestDeferred for a wait longer than ``WALSH_MAX_WAIT``.

        If the host itself asks for that wait, other workers defer its sources too.
        """
        if seconds > self._context.options.max_wait:
            host = self._context.host(request.url)
            if subject_of(request) and self._hosts.wait(host) > self._context.options.max_wait:
                self._hosts.give_up(host)
            until = self._context.clock.now() + seconds
            self._stats.inc_value("walsh/pacing/deferred")
            reason = f"{host} must not be requested before {format_moment(until)}"
            raise RequestDeferred(until, reason)

    async def wait_after_redirect(self, request: Request) -> None:
        """Wait as long as the redirect that led to a request asked for (Retry-After).

        Raises RequestDeferred for a wait longer than ``WALSH_MAX_WAIT``.
        """
        seconds = ticket_of(request).not_before - self._context.clock.monotonic()
        if seconds > self._context.options.max_wait:
            until = self._context.clock.now() + seconds
            self._stats.inc_value("walsh/pacing/deferred")
            reason = f"its redirect allows no request before {format_moment(until)}"
            raise RequestDeferred(until, reason)
        if seconds > 0.0:
            await self.sleep(seconds)

    def make_deferral(self, reason: str, seconds: float = 0.0) -> StillDue:
        """Count and return the deferral of a request that could be sent after ``seconds``."""
        self._stats.inc_value("walsh/pacing/deferred")
        return StillDue(self._context.clock.now() + seconds, reason)

    def defer(self, request: Request) -> None:
        """Record that a request from the scheduler was deferred.

        The crawl then ends with the reason "deferred". A job keeps the request for its next start,
        because its duplicate filter would drop it when the spider makes it again.
        """
        if self._queue.turn_of(request) is not None:
            self.deferred_requests.add(request)
            self.deferred_urls.add((request.method, request.url))
