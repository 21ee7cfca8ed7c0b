"""Lets a request wait until its host may be asked: in our scheduler, or else in the gate (R4)."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from scrapy.utils.asyncio import sleep

from walsh_scrapy.exceptions import RequestDeferred
from walsh_scrapy.policy.pacing import LOOK_AGAIN
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.runtime.context import Crawl
from walsh_scrapy.scheduler import is_closing, scheduler_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from scrapy import Request
    from scrapy.crawler import Crawler


class Turns:
    """The queues of one gate, whose name is in the stats.

    In the gate the requests of a host stand in line, first come, first served, and only the first
    asks and sleeps: however many wait, the ledger is asked once a turn.
    """

    def __init__(self, crawler: Crawler, gate: str) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._gate = gate
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def wait(
        self,
        request: Request,
        host: str,
        ask: Callable[[], float],
        quiet: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> Request | None:
        """Return None when it is the request's turn, or the request that goes back to wait.

        ``ask`` gives 0 if the host may be asked now, else the seconds after which to ask again;
        ``quiet`` the moment at which that may be asked.
        Raises RequestDeferred for a wait beyond ``WALSH_MAX_WAIT`` (decision 7), and for one that
        the crawl will not see the end of.
        """
        scheduler = scheduler_of(self._crawler)
        if scheduler is not None and scheduler.came_from_here(request):
            async with quiet():
                wait = ask()
            if not wait:
                return None
            self._check(host, wait)
            scheduler.wait(host, wait)
            return scheduler.again(request)
        was_closing = is_closing(self._crawler)
        line = self._lines.setdefault(host, asyncio.Lock())
        async with line:
            while True:
                async with quiet():
                    if is_closing(self._crawler) and not was_closing:
                        raise self._deferred(host, 0.0)
                    wait = ask()
                if not wait:
                    return None
                self._check(host, wait)
                await self._sleep(host, wait)

    def _check(self, host: str, wait: float) -> None:
        if wait > self._crawl.options.max_wait:
            raise self._deferred(host, wait)

    async def _sleep(self, host: str, seconds: float) -> None:
        """Sleep, but do not keep a spider that closes: Scrapy tells nobody that it does."""
        until = self._crawl.ticks() + seconds
        while (left := until - self._crawl.ticks()) > 0:
            if is_closing(self._crawler):
                raise self._deferred(host, left)
            await sleep(min(left, LOOK_AGAIN))

    def _deferred(self, host: str, wait: float) -> RequestDeferred:
        until = self._crawl.now() + wait
        self._crawler.stats.inc_value(f"walsh/{self._gate}/deferred")
        return RequestDeferred(until, f"{host} may not be asked before {format_moment(until)}")
