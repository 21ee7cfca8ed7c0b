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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

#: Linux has this clock, which also counts the time in which the machine was suspended.
_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)
#: Seconds between two ticks, and the minimum delay of a tick that is treated as a standstill.
_TICK_SECONDS: Final = 0.1
_LATE_SECONDS: Final = 0.2
#: The maximum seconds for which a time limit goes on after the process was told to end.
END_SECONDS: Final = 2.0


class StoodStill(TimeoutError):
    """The total time of a limit is over: this process stood still, or was told to end."""


def moment() -> float:
    """Return seconds of a clock that goes on while the machine is suspended, if there is one."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class _Ticker:
    def __init__(self) -> None:
        self._stalled = 0.0  # seconds, measured at the last tick
        self._limits: set[_Limit] = set()
        self._due: float | None = None  # the time of the next tick, by the clock of the loop
        self._due_moment = 0.0

    @property
    def stalled(self) -> float:
        """Seconds of standstill so far, including a tick that is overdue."""
        late = 0.0 if self._due is None else asyncio.get_running_loop().time() - self._due
        return self._stalled + (late if late > _LATE_SECONDS else 0.0)

    def add(self, limit: _Limit) -> None:
        self._limits.add(limit)
        if self._due is None:
            self._schedule()

    def remove(self, limit: _Limit) -> None:
        self._limits.discard(limit)

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
        now = asyncio.get_running_loop().time()
        late = now - due
        slept = moment() - self._due_moment - late
        is_late = late + slept > _LATE_SECONDS
        self._stalled += late if is_late else 0.0
        for running in self._limits:
            if is_late:
                _move(running.timeout, late)
                _move(running.total, -slept)
            running.check_end(now)
        self._due = None
        if self._limits:
            self._schedule()


@dataclass(eq=False, slots=True)
class _Limit:
    timeout: asyncio.Timeout
    total: asyncio.Timeout  #: counts suspension and standstill too
    is_ending: Callable[[], bool]
    has_end: bool = False

    def check_end(self, now: float) -> None:
        """Let the limit end soon, once the process was told to end."""
        if self.has_end or not self.is_ending():
            return
        self.has_end = True
        latest = now + END_SECONDS
        when = self.total.when()
        if not self.total.expired() and (when is None or when > latest):
            self.total.reschedule(latest)


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
async def limit(
    seconds: float | None,
    max_total: float | None = None,
    is_ending: Callable[[], bool] = lambda: False,
) -> AsyncIterator[None]:
    """Raise TimeoutError after so many seconds, without those in which the process stood still.

    None is no limit. StoodStill is raised after ``max_total`` seconds of any kind, suspension
    included, and ``END_SECONDS`` after ``is_ending`` returned True, which is asked ten times a
    second.
    """
    ticker = _ticker()
    total = asyncio.timeout(max_total)
    try:
        async with total, asyncio.timeout(seconds) as timeout:
            running = _Limit(timeout, total, is_ending)
            ticker.add(running)
            try:
                yield
            finally:
                ticker.remove(running)
    except TimeoutError as error:
        if total.expired():
            raise StoodStill from error
        raise
