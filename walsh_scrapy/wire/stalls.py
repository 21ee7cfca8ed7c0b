"""Time limits that are extended by the time in which this process stood still.

A process stands still while it is stopped, while the machine is overloaded, and while it waits for
its database. No host may be blamed for that (decision 29), so it counts neither for latencies nor
for time limits. A ticker in the event loop measures how late it is called. It runs only while there
is an active time limit.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

#: Linux has this clock, which also counts the time in which the machine was suspended.
_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
#: Seconds between two ticks, and the minimum delay of a tick that is treated as a standstill.
_TICK_SECONDS: Final = 0.1
_LATE_SECONDS: Final = 0.2


class StoodStill(TimeoutError):
    """The total time of a limit is over, mostly because this process stood still."""


def moment() -> float:
    """Return seconds of a clock that goes on while the machine is suspended, if there is one."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class _Ticker:
    def __init__(self) -> None:
        self._stalled = 0.0  # seconds, measured at the last tick
        self._timeouts: dict[asyncio.Timeout, asyncio.Timeout] = {}  # each with its total timeout
        self._due: float | None = None  # the time of the next tick, by the clock of the loop
        self._due_moment = 0.0

    @property
    def stalled(self) -> float:
        """Seconds of standstill so far, including a tick that is overdue."""
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
        self._due_moment = moment() + _TICK_SECONDS
        self._due = loop.time() + _TICK_SECONDS
        loop.call_at(self._due, self._tick, self._due)

    def _tick(self, due: float) -> None:
        """Extend each time limit by the time in which the process stood still.

        The loop's clock stops while the machine is suspended. The total timeout counts that time,
        so it is moved to an earlier moment.
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
    when = timeout.when()
    if when is not None and not timeout.expired():
        timeout.reschedule(when + seconds)


_tickers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Ticker] = WeakKeyDictionary()


def _ticker() -> _Ticker:
    return _tickers.setdefault(asyncio.get_running_loop(), _Ticker())


def stalled() -> float:
    """Return for how many seconds the process stood still so far, while a limit was active."""
    return _ticker().stalled


@asynccontextmanager
async def limit(seconds: float, max_total: float | None = None) -> AsyncIterator[None]:
    """Raise TimeoutError after so many seconds, without those in which the process stood still.

    After ``max_total`` seconds of any kind, suspension included, StoodStill is raised.
    """
    ticker = _ticker()
    total = asyncio.timeout(max_total)
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
