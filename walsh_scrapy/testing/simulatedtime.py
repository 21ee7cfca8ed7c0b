"""Simulated time: an event loop that does not wait, and the clock that a crawl reads from it."""

import asyncio
import math
import selectors
from typing import Any, Final

from walsh_scrapy.testing.clock import EPOCH

#: Of the clock in a second. A power of two, so that the difference of two times is exact: Scrapy
#: would else wait for the rounding error of an interval, again and again.
_TICKS: Final = 2**20


class SimulatedTime(selectors.DefaultSelector):
    """A selector with a clock. It never waits, but advances the clock to the next timer."""

    now = 0.0  #: seconds since the beginning of the simulation

    @property
    def wall(self) -> float:
        """Epoch seconds."""
        return EPOCH + self.now

    @property
    def kept(self) -> float:
        """Seconds since the beginning, rounded as the epoch seconds in the state are."""
        return self.wall - EPOCH

    def select(self, timeout: float | None = None) -> Any:  # noqa: ANN401 - as typeshed has it
        """Return what is ready; if nothing is, advance the clock by `timeout`."""
        ready = super().select(None if timeout is None else 0.0)
        if not ready and timeout is not None:
            self.now = math.ceil((self.now + max(0.0, timeout)) * _TICKS) / _TICKS
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop in simulated time."""

    def __init__(self, clock: SimulatedTime) -> None:
        self._clock = clock
        super().__init__(clock)

    def time(self) -> float:
        """Return seconds since the beginning."""
        return self._clock.now


class SimulatedClock:
    """The clock of each crawl."""

    def __init__(self, clock: SimulatedTime) -> None:
        self._clock = clock

    def now(self) -> float:
        """Return epoch seconds."""
        return self._clock.wall

    def monotonic(self) -> float:
        """Return seconds since the beginning."""
        return self._clock.now
