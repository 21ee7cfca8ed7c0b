"""Time in which this process stood still: nobody's latency, and no part of a limit (decision 29).

A process stands still while it is stopped, while the machine has no time for it, and while it waits
for its database. One ticker for each event loop measures by how much its ticks are late. It ticks
only while a limit is in force.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

#: Seconds between two ticks, and by how much a tick is late if the process stood still.
_TICK: Final = 0.1
_LATE: Final = 0.2


class _Ticker:
    def __init__(self) -> None:
        self.stalled = 0.0  #: seconds so far
        self._limits: set[asyncio.Timeout] = set()
        self._due = 0.0

    def add(self, limit: asyncio.Timeout) -> None:
        if not self._limits:
            self._schedule()
        self._limits.add(limit)

    def remove(self, limit: asyncio.Timeout) -> None:
        self._limits.discard(limit)

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + _TICK
        loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        """Extend each limit by the time that the process stood still; a tick is due before it."""
        late = asyncio.get_running_loop().time() - self._due
        if late > _LATE:
            self.stalled += late
            for limit in self._limits:
                if (when := limit.when()) is not None and not limit.expired():
                    limit.reschedule(when + late)
        if self._limits:
            self._schedule()


_tickers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Ticker] = WeakKeyDictionary()


def _ticker() -> _Ticker:
    return _tickers.setdefault(asyncio.get_running_loop(), _Ticker())


def stalled() -> float:
    """Return for how many seconds the process stood still so far, while limits were in force."""
    return _ticker().stalled


@asynccontextmanager
async def limit(seconds: float, most: float | None = None) -> AsyncIterator[None]:
    """Raise TimeoutError after so many seconds in which the process did not stand still.

    After ``most`` seconds it is raised whatever the process did.
    """
    ticker = _ticker()
    async with asyncio.timeout(most), asyncio.timeout(seconds) as timeout:
        ticker.add(timeout)
        try:
            yield
        finally:
            ticker.remove(timeout)


class Deadline:
    """A moment that comes later if the process stands still before it."""

    def __init__(self, seconds: float) -> None:
        self._until = asyncio.get_running_loop().time() + seconds - stalled()

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self._until + stalled() - asyncio.get_running_loop().time()
