"""The frontier: waiting requests by host, and which of them goes next (decision 6).

A host that waits never delays another host. Times are seconds of a monotonic clock, and are
arguments.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

T = TypeVar("T")


class Rank(IntEnum):
    """What a request is for: a lower rank goes first, because others depend on its answer."""

    ROBOTS = 0
    OPERATOR = 1  #: the blocklist and its schema
    TARGET = 2


@dataclass(slots=True)
class _HostQueue(Generic[T]):
    requests: list[tuple[int, int, int, T]] = field(default_factory=list)
    ready_at: float = 0.0
    interval: float = 1.0
    open_to: int = Rank.TARGET  #: the highest rank that may go out now
    version: int = 0  #: of its last change: heap entries with another version are void
    is_ready: bool = False  #: its wait has ended; its next request may still be of a closed rank
    is_busy: bool = False  #: one of its requests was handed out and has not ended
    unexplored: float = 0.0  #: seconds of pacing that the links of its first target may cause

    def work(self) -> float:
        """Return the seconds of pacing that the host still needs, as far as is known."""
        return len(self.requests) * self.interval + self.unexplored


class Frontier(Generic[T]):
    """Waiting requests by host: hosts that are ready, and hosts that wait.

    Each host has at most one request out; the next is handed out after ``free``. The cost of each
    operation is logarithmic in the number of hosts. A host without requests is dropped once its
    wait is over.

    ``intervals`` are the known spacings of hosts in seconds; the default is one second.
    ``unexplored`` is added to the work of a host, in seconds, until ``explored`` is called for it.
    A crawl that follows links cannot know the work of a host before it has read one of its pages,
    so it reads one of each host early.
    """

    def __init__(
        self, intervals: Mapping[str, float] | None = None, *, unexplored: float = 0.0
    ) -> None:
        self._intervals = dict(intervals or {})
        self._unexplored = unexplored
        self._hosts: dict[str, _HostQueue[T]] = {}
        self._ready: list[tuple[float, int, int, str]] = []  # most work first, then the oldest
        self._waiting: list[tuple[float, int, str]] = []  # soonest first
        self._unused: list[tuple[float, int, str]] = []  # without requests; soonest first
        self._closed: dict[str, None] = {}  # ready, but their next rank is closed
        self._open_to: int = Rank.TARGET
        self._size = 0
        self._ready_count = 0
        self._order = count()

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        """Yield all waiting requests, host by host, each host in its own order."""
        return (entry[3] for queue in self._hosts.values() for entry in sorted(queue.requests))

    def push(self, host: str, item: T, rank: Rank = Rank.TARGET, priority: int = 0) -> None:
        """Add a request. Within a host, order is by lower rank, higher priority, then age."""
        queue = self._queue_of(host)
        heapq.heappush(queue.requests, (rank, -priority, next(self._order), item))
        self._size += 1
        self._place(host, queue)

    def pop(self, now: float) -> tuple[str, T] | None:
        """Return the host and request to send at ``now``; None if every host waits or is busy."""
        self._wake(now)
        while self._ready:
            _, _, version, host = heapq.heappop(self._ready)
            queue = self._current(host, version)
            if queue is None:
                continue
            if not self._is_open(queue):
                self._closed[host] = None
                continue
            item = heapq.heappop(queue.requests)[3]
            self._size -= 1
            queue.is_busy = True
            self._place(host, queue)
            return host, item
        return None

    def free(self, host: str) -> None:
        """Mark the request of a host as ended, so that its next request may be handed out."""
        queue = self._hosts[host]
        queue.is_busy = False
        self._place(host, queue)

    def explored(self, host: str) -> None:
        """Stop adding ``unexplored`` to the work of a host: one of its targets was sent."""
        if queue := self._hosts.get(host):
            queue.unexplored = 0.0

    def wait(self, host: str, ready_at: float, interval: float | None = None) -> None:
        """Let a host wait until ``ready_at``; ``interval`` is its new spacing."""
        queue = self._queue_of(host)
        queue.ready_at = ready_at
        if interval is not None and interval != queue.interval:
            queue.interval = self._intervals[host] = interval
        self._place(host, queue)

    def ready_hosts(self, now: float) -> int:
        """Return how many hosts have a request that could go now."""
        self._wake(now)
        return self._ready_count

    def next_at(self) -> float | None:
        """Return when the first of the waiting hosts becomes ready, or None if no host waits."""
        while self._waiting:
            ready_at, version, host = self._waiting[0]
            if self._current(host, version):
                return ready_at
            heapq.heappop(self._waiting)
        return None

    def restrict(self, rank: Rank, host: str | None = None) -> None:
        """Hand out only requests up to ``rank``, for ``host``, or for all hosts if it is None."""
        if host is not None:
            queue = self._queue_of(host)
            queue.open_to = rank
            self._place(host, queue)
            return
        self._open_to = rank
        for name in list(self._closed):
            self._place(name, self._hosts[name])

    def _queue_of(self, name: str) -> _HostQueue[T]:
        if name not in self._hosts:
            interval = self._intervals.get(name, 1.0)
            self._hosts[name] = _HostQueue(interval=interval, unexplored=self._unexplored)
        return self._hosts[name]

    def _is_open(self, queue: _HostQueue[T]) -> bool:
        return queue.requests[0][0] <= min(queue.open_to, self._open_to)

    def _place(self, host: str, queue: _HostQueue[T]) -> None:
        """Put a host into the heap of waiting hosts, or of hosts without requests."""
        queue.version = next(self._order)
        self._ready_count -= queue.is_ready
        queue.is_ready = False
        self._closed.pop(host, None)
        if queue.is_busy:
            return
        heap = self._waiting if queue.requests else self._unused
        heapq.heappush(heap, (queue.ready_at, queue.version, host))

    def _wake(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, version, host = heapq.heappop(self._waiting)
            if queue := self._current(host, version):
                queue.is_ready = True
                self._ready_count += 1
                heapq.heappush(self._ready, (-queue.work(), next(self._order), version, host))
        while self._unused and self._unused[0][0] <= now:
            _, version, host = heapq.heappop(self._unused)
            queue = self._current(host, version)
            if queue and queue.open_to == Rank.TARGET:
                del self._hosts[host]

    def _current(self, host: str, version: int) -> _HostQueue[T] | None:
        """Return the queue of a host if it did not change since a heap entry of ``version``."""
        queue = self._hosts.get(host)
        return queue if queue and queue.version == version else None


def start_order(waiting: Iterable[tuple[str, float, T]], intervals: Mapping[str, float]) -> list[T]:
    """Return the items of a run in the order in which they are requested.

    ``waiting`` has tuples of host, the time since when the item is due, and the item. The host with
    the most paced work goes first, with all its items. A frontier that gets them in this order,
    as it has room, takes no longer than one that knows all of them from the start. Within a host,
    the item that is due longest goes first, so each source gets its turn even on a host that
    allows one request a day.
    """
    hosts: dict[str, list[tuple[float, T]]] = {}
    for host, since, item in waiting:
        hosts.setdefault(host, []).append((since, item))
    for queue in hosts.values():
        queue.sort(key=itemgetter(0))

    def order(host: str) -> tuple[float, float]:
        queue = hosts[host]
        return -len(queue) * intervals.get(host, 1.0), queue[0][0]

    return [item for host in sorted(hosts, key=order) for _, item in hosts[host]]
