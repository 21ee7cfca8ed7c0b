"""The clock of the database's server, by which the processes on several machines lease hosts (R4).

It is measured as an offset to the monotonic clock of this machine, which nobody sets.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds after which the offset is measured anew, because the server's clock may be set.
MOST_AGE: Final = 1.0
#: Seconds by which the time of day may move against the monotonic clock, as when it is slewed. A
#: machine that was suspended is further behind: its monotonic clock stood still.
MOST_SLEW: Final = 0.05


class ServerClock:
    """Reckons the time of a server; ``ask`` asks it, and returns epoch seconds."""

    def __init__(self, ask: Callable[[], float]) -> None:
        self._ask = ask
        self._measured_at = -float("inf")
        self._ahead = self._wall_ahead = 0.0  # of the monotonic clock

    def now(self) -> float:
        """Return epoch seconds. Raises what ``ask`` raises, which is called once a second."""
        now = time.monotonic()
        slew = abs(time.time() - now - self._wall_ahead)
        if now - self._measured_at > MOST_AGE or slew > MOST_SLEW:
            self._measure()
        return self.reckoned()

    def reckoned(self) -> float:
        """Return epoch seconds by the last measurement."""
        return time.monotonic() + self._ahead

    def _measure(self) -> None:
        began = time.monotonic()
        told = self._ask()
        ended = time.monotonic()
        self._ahead = told - (began + ended) / 2  # the server looked at its clock in between
        self._wall_ahead = time.time() - ended
        self._measured_at = ended
