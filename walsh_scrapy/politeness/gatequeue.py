"""The host queue in a gate, for requests that cannot go back to our scheduler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from scrapy.utils.asyncio import sleep

from walsh_scrapy.policy.pacing import LOOK_AGAIN
from walsh_scrapy.politeness.hostqueue import HostQueue, Wait
from walsh_scrapy.runtime.engine import is_closing

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler


class GateQueue(HostQueue):
    """One queue for each gate and host, first come, first served.

    Only the first request of a queue reads the ledger and sleeps. So many waiting requests cost no
    more reads than one.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def wait(self, request: Request, wait: Wait) -> Request | None:  # noqa: ARG002
        """Return None when the request may go on; see ``HostQueue.wait``."""
        was_closing = is_closing(self._crawler)
        lock = self._locks.setdefault((wait.gate, wait.host), asyncio.Lock())
        async with lock:
            while True:
                async with wait.quiet():
                    if is_closing(self._crawler) and not was_closing:
                        raise self._deferred(wait, 0.0)
                    seconds = wait.seconds()
                if not seconds:
                    return None
                self._check(wait, seconds)
                await self._sleep(wait, seconds)

    async def _sleep(self, wait: Wait, seconds: float) -> None:
        """Sleep in short steps, and stop if the spider closes: Scrapy has no signal for that."""
        clock = self._context.clock
        until = clock.monotonic() + seconds
        while (left := until - clock.monotonic()) > 0:
            if is_closing(self._crawler):
                raise self._deferred(wait, left)
            await sleep(min(left, LOOK_AGAIN))
