"""What is out at the moment: one request at a time, however it was made (R4)."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from walsh_scrapy.policy.pacing import LEASE_MARGIN
from walsh_scrapy.runtime.context import Crawl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy import Request
    from scrapy.settings import BaseSettings


class _Sent(NamedTuple):
    host: str
    at: float  #: on the clock of this run
    until: float  #: by when it must have come back


class _Traffic:
    """What is out, and who goes next."""

    def __init__(self) -> None:
        self.out: WeakKeyDictionary[Request, _Sent] = WeakKeyDictionary()
        self.came_back = asyncio.Event()
        self.next = asyncio.Lock()  # whose turn it is, of those who wait for silence everywhere


#: Of all serial crawls in this process: one request at a time is a matter of the process (R4).
_SERIAL = _Traffic()


class Wire:
    """The requests of one gate that are out, each until it came back, or must have."""

    def __init__(self, settings: BaseSettings, *, serial: bool = False) -> None:
        self._timeout = settings.getfloat("DOWNLOAD_TIMEOUT")
        self._traffic = _SERIAL if serial else _Traffic()

    def timeout(self, request: Request) -> float:
        """Return the most seconds for which a request is out."""
        own: float = request.meta.get("download_timeout") or self._timeout
        return own

    def went_out(self, request: Request, host: str) -> None:
        """Note that a request goes out now."""
        now = Crawl.ticks()
        self._traffic.out[request] = _Sent(host, now, now + self.timeout(request) + LEASE_MARGIN)

    def came_back(self, request: Request) -> float | None:
        """Return the seconds for which a request was out; None if it was not."""
        sent = self._traffic.out.pop(request, None)
        if sent is None:
            return None
        self._traffic.came_back.set()
        return Crawl.ticks() - sent.at

    @asynccontextmanager
    async def silence(self, host: str) -> AsyncIterator[None]:
        """Give the moment at which nothing is out to a host."""
        await self._until_silent(host)
        yield

    @asynccontextmanager
    async def silence_everywhere(self) -> AsyncIterator[None]:
        """Give the moment at which nothing is out at all, to one after the other."""
        async with self._traffic.next:
            await self._until_silent(None)
            yield

    async def _until_silent(self, host: str | None) -> None:
        while (busy := self._busy_for(host)) > 0:
            self._traffic.came_back.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._traffic.came_back.wait(), busy)

    def _busy_for(self, host: str | None) -> float:
        out = (sent.until for sent in self._traffic.out.values() if host in (None, sent.host))
        return max(out, default=0.0) - Crawl.ticks()
