"""The clock of a crawl: that of the machine, or that of a simulation."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings: the time of day, and one that never jumps."""

    def now(self) -> float:
        """Return the time of day in epoch seconds, as state and leases count it."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never jumps, for waits within a run."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> float:
        """Return the time of day in epoch seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return the seconds of the machine's monotonic clock."""
        return time.monotonic()
