"""What this crawl has out at the moment: one request at a time, however they are made (R4)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from walsh_scrapy.crawl import Crawl
from walsh_scrapy.policy.pacing import LEASE_MARGIN

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.settings import BaseSettings


class _Sent(NamedTuple):
    host: str
    at: float  #: on the clock of this run
    until: float  #: by when it must have come back


class Wire:
    """The requests of one gate that are out, each until it came back, or must have."""

    def __init__(self, settings: BaseSettings) -> None:
        self._timeout = settings.getfloat("DOWNLOAD_TIMEOUT")
        self._out: WeakKeyDictionary[Request, _Sent] = WeakKeyDictionary()
        self._came_back = asyncio.Event()

    def timeout(self, request: Request) -> float:
        """Return the most seconds for which a request is out."""
        own: float = request.meta.get("download_timeout") or self._timeout
        return own

    def went_out(self, request: Request, host: str) -> None:
        """Note that a request goes out now."""
        now = Crawl.ticks()
        self._out[request] = _Sent(host, now, now + self.timeout(request) + LEASE_MARGIN)

    def came_back(self, request: Request) -> float | None:
        """Return the seconds for which a request was out; None if it was not."""
        sent = self._out.pop(request, None)
        if sent is None:
            return None
        self._came_back.set()
        return Crawl.ticks() - sent.at

    async def silence(self, host: str | None = None) -> None:
        """Wait until nothing is out, to one host or (None) to any."""
        while (busy := self._busy_for(host)) > 0:
            self._came_back.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._came_back.wait(), busy)

    def _busy_for(self, host: str | None) -> float:
        out = (sent.until for sent in self._out.values() if host in (None, sent.host))
        return max(out, default=0.0) - Crawl.ticks()
