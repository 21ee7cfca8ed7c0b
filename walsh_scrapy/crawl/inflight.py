"""Which requests are in flight: one at a time to a host, and under ``WALSH_SERIAL`` to all (R4)."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from walsh_scrapy.crawl.engine import PerLoop
from walsh_scrapy.crawl.ticket import marks_of, rank_of
from walsh_scrapy.exceptions import StoodStill, Unreachable
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import MARGIN, RECHECK_SECONDS, Exchange
from walsh_scrapy.wire.stalls import stalled
from walsh_scrapy.wire.tlserrors import NoHandshake

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from scrapy import Request
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from walsh_scrapy.crawl.context import Clock


class _Sent(NamedTuple):
    at: float  #: by the monotonic clock
    stalled: float  #: seconds for which the process had stood still until then
    until: float  #: its latest possible end: its timeout, and the margin of a lease


class _Traffic:
    """The requests in flight, and the lock of the request that is sent next."""

    def __init__(self) -> None:
        self.sent: WeakKeyDictionary[Request, _Sent] = WeakKeyDictionary()
        self.ended = asyncio.Event()
        self.next = asyncio.Lock()  # held by the request that is sent once none is in flight


#: Shared by all serial crawls of this process, because R4 allows one request at a time in it.
_SERIAL = PerLoop(_Traffic)


class InFlight:
    """The requests of one gate in flight: each from its start to its end, or its latest end."""

    def __init__(self, settings: BaseSettings, clock: Clock, *, serial: bool = False) -> None:
        self._timeout = settings.getfloat("DOWNLOAD_TIMEOUT")
        self._clock = clock
        self._is_serial = serial
        #: Ends the requests that are over, although nobody was told; pacing does that.
        self.sweep: Callable[[], None] = lambda: None

    @cached_property
    def _traffic(self) -> _Traffic:
        return _SERIAL.get() if self._is_serial else _Traffic()

    def timeout(self, request: Request) -> float:
        """Return the most seconds for which a request is in flight."""
        own: float = request.meta.get("download_timeout") or self._timeout
        return own

    def begin(self, request: Request) -> None:
        """Record that a request is sent now."""
        now = self._clock.monotonic()
        until = now + self.timeout(request) + MARGIN
        self._traffic.sent[request] = _Sent(now, stalled(), until)

    def end(self, request: Request) -> float | None:
        """Return the seconds for which a request was in flight; None if it was not.

        They count from when it was sent: its connection may have waited while a document was read.
        They count from its begin if it was never sent. Time in which the process stood still is not
        counted (decision 29).
        """
        sent = self._traffic.sent.pop(request, None)
        if sent is None:
            return None
        self._traffic.ended.set()
        passed = self._clock.monotonic() - max(sent.at, marks_of(request).sent or 0.0)
        return max(0.0, passed - (stalled() - sent.stalled))

    def quiet(self) -> AbstractAsyncContextManager[None]:
        """Wait as ``quiet_process`` in a serial crawl; in any other one for nothing."""
        return self.quiet_process() if self._is_serial else nullcontext()

    @asynccontextmanager
    async def quiet_process(self) -> AsyncIterator[None]:
        """Wait until no request is in flight; then one waiting request at a time enters."""
        async with self._traffic.next:
            await self._until_none()
            yield

    async def _until_none(self) -> None:
        while (left := self._seconds_left()) > 0:
            self._traffic.ended.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._traffic.ended.wait(), min(left, RECHECK_SECONDS))
            self.sweep()

    def _seconds_left(self) -> float:
        ends = (sent.until for sent in self._traffic.sent.values())
        return max(ends, default=0.0) - self._clock.monotonic()


def exchange_of(
    request: Request,
    response: Response | None,
    latency: float,
    delay: float = 0.0,
    error: BaseException | None = None,
) -> Exchange:
    """Return the exchange of a request; ``response`` is None if there was no response.

    ``latency`` is how long it took, ``delay`` what counts from its end on, both in seconds.
    ``error`` is how it ended without a response, if that is known.
    """
    retry_after = b"\n".join(response.headers.getlist("Retry-After")) if response else b""
    return Exchange(
        delay=delay,
        latency=latency,
        status=response.status if response is not None else 0,
        retry_after=retry_after.decode("latin-1") if retry_after else None,
        for_robots=rank_of(request) is Rank.ROBOTS,
        unreachable=isinstance(error, Unreachable),
        is_blameless=isinstance(error, NoHandshake | StoodStill),
    )
