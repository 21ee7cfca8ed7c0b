"""A clock that a test moves, and simulated time: an event loop that does not wait."""

import asyncio
import math
import selectors
from datetime import UTC, datetime, timedelta
from typing import Any, Final

#: Where a fake clock starts: 2026-01-01 00:00:00 UTC.
EPOCH: Final = 1_767_225_600.0


class FakeClock:
    """Epoch seconds as `now()`, the same as an aware datetime; pass `clock.now` as the clock.

    A test may set `at` to any moment, also to an earlier one.
    """

    def __init__(self, start: float | datetime = EPOCH) -> None:
        self.at = start.timestamp() if isinstance(start, datetime) else start

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self.at

    monotonic = moment = now

    def datetime(self) -> datetime:
        """Return the same moment as an aware datetime in UTC."""
        return datetime.fromtimestamp(self.at, UTC)

    def advance(self, by: float | timedelta) -> float:
        """Move forward by seconds or a timedelta and return the new time."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if seconds < 0:
            raise ValueError(f"a clock does not go back: {seconds} s")
        self.at += seconds
        return self.at


#: Of the clock in a second. A power of two, so that the difference of two times is exact: Scrapy
#: would else wait for the rounding error of an interval, again and again.
_TICKS: Final = 2**20
#: Turns of the loop while the clock stands still. The trial needs 207.
_MOST_TURNS: Final = 50_000


class SimulatedTime(selectors.DefaultSelector):
    """A selector with a clock. It never waits, but advances the clock to the next timer."""

    now = 0.0  #: seconds since the beginning of the simulation
    _turns = 0  #: of the loop since the clock was advanced

    @property
    def wall(self) -> float:
        """Epoch seconds."""
        return EPOCH + self.now

    @property
    def kept(self) -> float:
        """Seconds since the beginning, rounded as the epoch seconds in the state are."""
        return self.wall - EPOCH

    def select(self, timeout: float | None = None) -> Any:  # noqa: ANN401 - as typeshed has it
        """Return what is ready; if nothing is, advance the clock by `timeout`.

        Raises RuntimeError if the loop is busy for so long that it will always be.
        """
        ready = super().select(None if timeout is None else 0.0)
        self._turns += 1
        if not ready and timeout:
            self.now = math.ceil((self.now + timeout) * _TICKS) / _TICKS
            self._turns = 0
        elif self._turns > _MOST_TURNS:
            raise RuntimeError(f"it never ends: {_MOST_TURNS} turns of the loop in one moment")
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop in simulated time."""

    def __init__(self, clock: SimulatedTime) -> None:
        self._clock = clock
        super().__init__(clock)
        # Later than 97 days, a nanosecond more is the same float: a timer would never be ready.
        self._clock_resolution = 1 / _TICKS

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

    def moment(self) -> float:
        """Return the same: no machine sleeps in a simulation."""
        return self._clock.now
