"""Slack: how long a host can wait before the crawl would wait for it (decision 6)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: By what part of itself a crawl may get longer for hosts that were begun late.
TOLERANCE = 0.04


class Slack:
    """Compares a host's chain, which is its own pauses, with what the crawl still has to do.

    Durations are seconds. A host that is not begun is critical when its chain may outlast all
    requests that wait. The robots.txt of hosts that are not begun are no part of these: such hosts
    are then begun one after the other, and the waiting requests fill the pauses of the last of
    them. So the crawl does not get longer, although targets are read long before the last
    robots.txt.
    """

    def __init__(self) -> None:
        self._exchanges = 0
        self._seconds = 0.0
        self._last: float | None = None  # when the last exchange ended, if no pause came after it

    def record_service(self, seconds: float, at_once: int, now: float) -> None:
        """Count an exchange that ended ``now`` and was one of ``at_once`` in flight.

        It cost the crawl the time since the one before, which includes what the machine did
        meanwhile. After a pause only its own time is known.
        """
        cost = seconds / max(1, at_once) if self._last is None else now - self._last
        self._seconds += cost
        self._exchanges += 1
        self._last = now

    def record_pause(self) -> None:
        """Note that no host was ready: the time until the next exchange is no work."""
        self._last = None

    @property
    def mean(self) -> float:
        """The seconds that an exchange costs the crawl, as far as is known; 0 before the first."""
        return self._seconds / self._exchanges if self._exchanges else 0.0

    def is_critical(self, chain: float, waiting: int) -> bool:
        """Return True if a host whose chain may take so long has to begin now.

        ``waiting`` is the number of all waiting requests. Before the first exchange nobody knows
        how long one takes, and only a chain without an end is critical.
        """
        if not self._exchanges:
            return chain == math.inf
        return chain >= self.mean * (waiting + TOLERANCE * (waiting + self._exchanges))


def remaining(chains: Iterable[float], requests: int, seconds_each: float) -> float:
    """Return the least time in seconds that a crawl still takes (decision 6).

    That is the longest chain of a host, or the service times of all requests that are left, if
    these are longer. It is infinite if a host's work is not known yet.
    """
    return max(max(chains, default=0.0), requests * seconds_each)
