"""The waiting requests of one host, and what pacing still needs for them (decision 6)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, TypeVar

from walsh_scrapy.policy.readyhosts import Lane

T = TypeVar("T")


class Rank(IntEnum):
    """What a request is for: a lower rank goes first, because others depend on its answer."""

    ROBOTS = 0
    OPERATOR = 1  #: the blocklist and its schema
    TARGET = 2


@dataclass(slots=True)
class HostRequests(Generic[T]):
    """The requests of one host, and when they may be handed out. Durations are seconds."""

    interval: float | None = None  #: the spacing; None if it is not known
    unexplored: float = 0.0  #: pacing that the links of its first target may cause
    requests: list[tuple[int, int, int, T]] = field(default_factory=list)
    ready_at: float = 0.0
    open_to: int = Rank.TARGET  #: the highest rank that may go out now
    version: int = 0  #: of its last change: heap entries with another version are void
    is_busy: bool = False  #: one of its requests was handed out and has not ended
    is_touched: bool = False  #: one of its requests was handed out at some time

    def push(self, rank: Rank, priority: int, order: int, item: T) -> None:
        """Add a request: a lower rank goes first, then a higher priority, then a lower order."""
        heapq.heappush(self.requests, (rank, -priority, order, item))

    def pop(self) -> T:
        """Hand out the first request."""
        self.is_busy = self.is_touched = True
        return heapq.heappop(self.requests)[3]

    @property
    def first(self) -> T:
        """The request that is handed out next."""
        return self.requests[0][3]

    @property
    def rank(self) -> int:
        """The rank of that request."""
        return self.requests[0][0]

    def lane(self) -> Lane:
        """Return the lane of a host that is not late."""
        if self.is_touched and self.rank != Rank.ROBOTS:
            return Lane.BEGUN
        return Lane.NEW if self.interval is None else Lane.KNOWN

    def chain(self) -> float:
        """Return the pauses that the host still needs, as far as is known.

        Until a request was handed out, its robots.txt is still to come. Nothing has to wait after
        the last request.
        """
        pauses = len(self.requests) - self.is_touched
        return pauses * (1.0 if self.interval is None else self.interval) + self.unexplored
