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
_TICK_SECONDS: Final = 0.1
_LATE_SECONDS: Final = 0.2


class StoodStill(TimeoutError):
    """A limit is over, mostly because this process stood still."""


def moment() -> float:
    """Return the seconds since the machine was started, where the system has that clock."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class _Ticker:
    def __init__(self) -> None:
        self._stalled = 0.0  # seconds until the last tick
        self._timeouts: dict[asyncio.Timeout, asyncio.Timeout] = {}  # each with its most seconds
        self._due: float | None = None  # of the next tick
        self._due_moment = 0.0

    @property
    def stalled(self) -> float:
        """Seconds so far. The next tick may be late already, when this is read before it."""
        late = 0.0 if self._due is None else asyncio.get_running_loop().time() - self._due
        return self._stalled + (late if late > _LATE_SECONDS else 0.0)

    def add(self, timeout: asyncio.Timeout, total: asyncio.Timeout) -> None:
        self._timeouts[timeout] = total
        if self._due is None:
            self._schedule()

    def remove(self, timeout: asyncio.Timeout) -> None:
        self._timeouts.pop(timeout, None)

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        due, self._due_moment = loop.time() + _TICK_SECONDS, moment() + _TICK_SECONDS
        self._due = due
        loop.call_at(due, self._tick, due)

    def _tick(self, due: float) -> None:
        """Extend each limit by the time that the process stood still; a tick is due before it.

        The clock of the loop does not count the time that the machine slept: most seconds do.
        """
        late = asyncio.get_running_loop().time() - due
        slept = moment() - self._due_moment - late
        if late + slept > _LATE_SECONDS:
            self._stalled += late
            for timeout, total in self._timeouts.items():
                _move(timeout, late)
                _move(total, -slept)
        self._due = None
        if self._timeouts:
            self._schedule()


def _move(timeout: asyncio.Timeout, seconds: float) -> None:
    if (when := timeout.when()) is not None and not timeout.expired():
        timeout.reschedule(when + seconds)


_tickers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Ticker] = WeakKeyDictionary()


def _ticker() -> _Ticker:
    return _tickers.setdefault(asyncio.get_running_loop(), _Ticker())


def stalled() -> float:
    """Return the seconds for which the process stood still so far, while limits were in force."""
    return _ticker().stalled


@asynccontextmanager
async def limit(seconds: float, max_total: float | None = None) -> AsyncIterator[None]:
    """Raise TimeoutError after so many seconds in which the process did not stand still.

    StoodStill is raised after ``most`` seconds, in which the machine may have slept.
    """
    ticker, total = _ticker(), asyncio.timeout(max_total)
    try:
        async with total, asyncio.timeout(seconds) as timeout:
            ticker.add(timeout, total)
            try:
                yield
            finally:
                ticker.remove(timeout)
    except TimeoutError as error:
        if total.expired():
            raise StoodStill from error
        raise
