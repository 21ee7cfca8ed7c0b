"""Time in which this process stood still: it counts in no latency and no limit (decision 29).

A process stands still while it is stopped, while the machine has no time for it, and while it waits
for its database. One ticker per event loop measures how late its ticks are. It ticks only while a
limit is in force.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

#: A clock of Linux; elsewhere the monotonic clock goes on during suspension, or there is none.
_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
#: Seconds between two ticks, and the delay of a tick that shows that the process stood still.
_TICK: Final = 0.1
_LATE: Final = 0.2


class StoodStill(TimeoutError):
    """A limit is over, mostly because this process stood still."""


def moment() -> float:
    """Return the seconds since the machine was started, where the system has that clock."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class _Ticker:
    def __init__(self) -> None:
        self._stalled = 0.0  # seconds until the last tick
        self._limits: dict[asyncio.Timeout, asyncio.Timeout] = {}  # each with its most seconds
        self._due: float | None = None  # of the next tick
        self._due_moment = 0.0

    @property
    def stalled(self) -> float:
        """Seconds so far. The next tick may be late already, when this is read before it."""
        late = 0.0 if self._due is None else asyncio.get_running_loop().time() - self._due
        return self._stalled + (late if late > _LATE else 0.0)

    def add(self, limit: asyncio.Timeout, most: asyncio.Timeout) -> None:
        self._limits[limit] = most
        if self._due is None:
            self._schedule()

    def remove(self, limit: asyncio.Timeout) -> None:
        self._limits.pop(limit, None)

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        due, self._due_moment = loop.time() + _TICK, moment() + _TICK
        self._due = due
        loop.call_at(due, self._tick, due)

    def _tick(self, due: float) -> None:
        """Extend each limit by the time that the process stood still; a tick is due before it.

        The clock of the loop does not count the time that the machine slept: most seconds do.
        """
        late = asyncio.get_running_loop().time() - due
        slept = moment() - self._due_moment - late
        if late + slept > _LATE:
            self._stalled += late
            for limit, most in self._limits.items():
                _move(limit, late)
                _move(most, -slept)
        self._due = None
        if self._limits:
            self._schedule()


def _move(limit: asyncio.Timeout, seconds: float) -> None:
    if (when := limit.when()) is not None and not limit.expired():
        limit.reschedule(when + seconds)


_tickers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Ticker] = WeakKeyDictionary()


def _ticker() -> _Ticker:
    return _tickers.setdefault(asyncio.get_running_loop(), _Ticker())


def stalled() -> float:
    """Return the seconds for which the process stood still so far, while limits were in force."""
    return _ticker().stalled


@asynccontextmanager
async def limit(seconds: float, most: float | None = None) -> AsyncIterator[None]:
    """Raise TimeoutError after so many seconds in which the process did not stand still.

    StoodStill is raised after ``most`` seconds, in which the machine may have slept.
    """
    ticker, whole = _ticker(), asyncio.timeout(most)
    try:
        async with whole, asyncio.timeout(seconds) as timeout:
            ticker.add(timeout, whole)
            try:
                yield
            finally:
                ticker.remove(timeout)
    except TimeoutError as error:
        if whole.expired():
            raise StoodStill from error
        raise
