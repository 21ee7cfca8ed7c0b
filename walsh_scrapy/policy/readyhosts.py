"""The requests of each host, and which ready host goes next (decision 6).

Durations are seconds.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain, count, zip_longest
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

#: By what part of itself a crawl may get longer for hosts that were begun late.
TOLERANCE = 0.04


class Rank(IntEnum):
    """What a request is for: a lower rank goes first, because others depend on its answer."""

    ROBOTS = 0
    OPERATOR = 1  #: the blocklist and its schema
    TARGET = 2


class Lane(IntEnum):
    """Hosts that are compared by their chains alone."""

    BEGUN = 1  #: robots.txt is at hand
    KNOWN = 2  #: not begun; the spacing is known from an earlier run
    NEW = 3  #: not begun; the spacing is not known, and reckoned as one second
    LATE = 4  #: the host lately took long


@dataclass(slots=True)
class HostRequests(Generic[T]):
    """The requests of one host, and when they may be handed out. Durations are seconds."""

    interval: float | None = None  #: the spacing; None if it is not known
    backlog: int = 0  #: requests that are still to come, and count for the chain
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
        pauses = len(self.requests) + self.backlog - self.is_touched
        return pauses * (1.0 if self.interval is None else self.interval) + self.unexplored


class Slack:
    """Compares a host's chain, which is its own pauses, with what the crawl still has to do.

    Durations are seconds. A host that is not begun is critical when its chain may last longer than
    all requests that wait. The robots.txt of hosts that are not begun do not count among these
    requests. The crawl begins such hosts one after the other, and sends the waiting requests in the
    pauses of the last host. So it reads targets long before the last robots.txt, and takes no
    longer.
    """

    def __init__(self) -> None:
        self._exchanges = 0
        self._seconds = 0.0
        self._last: float | None = None  # when the last exchange ended, if no pause came after it

    def record_service(self, seconds: float, at_once: int, now: float) -> None:
        """Count an exchange that ended ``now`` and was one of ``at_once`` in flight.

        Its cost is the time since the end of the exchange before it, with the work of the machine.
        After a pause the cost is only the time of the exchange itself.
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

        ``waiting`` is the number of all waiting requests. Before the first exchange the cost of one
        is not known. Only an infinite chain is critical then.
        """
        if not self._exchanges:
            return chain == math.inf
        return chain >= self.mean * (waiting + TOLERANCE * (waiting + self._exchanges))


class _Entry(NamedTuple):
    """A host in the heap of its lane. The longest chain is first, then the oldest entry."""

    chain: float  #: negative, because the least entry comes first
    is_untouched: bool  #: False sorts first: a host whose robots.txt was requested
    order: int
    host: str


class ReadyHosts:
    """The hosts that may be asked now.

    A host's chain is the pauses that it still needs, in seconds. A host that is not begun is
    critical if its chain could become the longest thing left in the crawl: it goes first. If none
    is critical, a host that was begun goes first, then one that was not, then one that is late.
    The cost of each operation is logarithmic in the number of hosts.
    """

    def __init__(self) -> None:
        self.slack = Slack()
        self._entries: dict[str, _Entry] = {}  # heap entries that are not here are void
        self._heaps: dict[Lane, list[_Entry]] = {lane: [] for lane in Lane}
        self._order = count()
        self._last: Lane | None = None
        self._has_begun = False  # a host that was begun had a turn

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, host: str, lane: Lane, chain: float, *, is_touched: bool) -> None:
        """Add a host; ``is_touched`` is True if one of its requests was handed out before."""
        entry = _Entry(-chain, not is_touched, next(self._order), host)
        self._entries[host] = entry
        heapq.heappush(self._heaps[lane], entry)

    def discard(self, host: str) -> None:
        """Remove a host if it is here."""
        self._entries.pop(host, None)

    def pop(self, waiting: int, *, with_late: bool = True) -> str | None:
        """Remove and return the host that goes next, or None if there is none.

        ``waiting`` is the number of all requests that wait, of hosts that are not ready too.
        ``with_late`` is False while no late host may go.
        """
        lanes = [lane for lane in Lane if with_late or lane is not Lane.LATE]
        tops = {lane: top for lane in lanes if (top := self._top(lane)) is not None}
        if not tops:
            return None
        lane = self._opening(tops) or self._critical(tops, waiting) or _first(tops)
        self._last = lane
        self._has_begun = self._has_begun or lane is Lane.BEGUN
        host = heapq.heappop(self._heaps[lane]).host
        del self._entries[host]
        return host

    def upcoming(self, count: int) -> list[str]:
        """Return about the first ``count`` hosts of each lane, roughly in the order of their turns.

        Nobody knows when a host becomes critical, so the lanes take turns; late hosts are last.
        """
        *lanes, late = (self._upcoming_in(lane, count) for lane in Lane)
        turns = chain.from_iterable(zip_longest(*lanes))
        return [host for host in turns if host is not None] + late

    def _opening(self, tops: Mapping[Lane, _Entry]) -> Lane | None:
        """Return the lane that goes next while the crawl has not read anything yet.

        The crawl should read its first entry before it has begun every critical host. Hosts with a
        known spacing have a long one, so every other turn is for a new host.
        """
        if self._has_begun:
            return None
        if Lane.BEGUN in tops:
            return Lane.BEGUN
        return Lane.NEW if Lane.NEW in tops and self._last is Lane.KNOWN else None

    def _critical(self, tops: Mapping[Lane, _Entry], waiting: int) -> Lane | None:
        """Return the lane of the longest chain, if that is the chain of a critical host."""
        chains: dict[Lane, float] = {
            lane: -top.chain for lane, top in tops.items() if lane is not Lane.LATE
        }
        longest = max(chains, key=chains.__getitem__, default=Lane.BEGUN)
        if longest is Lane.BEGUN or not self.slack.is_critical(chains[longest], waiting):
            return None
        return longest

    def _upcoming_in(self, lane: Lane, count: int) -> list[str]:
        """Return hosts from the beginning of a heap, which has its first entries, and some void."""
        beginning = self._heaps[lane][: 4 * count]
        current = [entry for entry in beginning if self._entries.get(entry.host) is entry]
        return [entry.host for entry in sorted(current)[:count]]

    def _top(self, lane: Lane) -> _Entry | None:
        heap = self._heaps[lane]
        while heap and self._entries.get(heap[0].host) is not heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None


def _first(tops: Mapping[Lane, _Entry]) -> Lane:
    """Return the lane that goes next if no host is critical."""
    if Lane.BEGUN in tops:
        return Lane.BEGUN
    not_begun = [lane for lane in (Lane.KNOWN, Lane.NEW) if lane in tops]
    return min(not_begun, key=tops.__getitem__, default=Lane.LATE)
