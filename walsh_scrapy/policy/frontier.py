"""The frontier: waiting requests by host, and which of them goes next (decision 6).

No request waits behind another host's wait. Times are seconds of a monotonic clock, handed in.
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
class _Host(Generic[T]):
    queue: list[tuple[int, int, int, T]] = field(default_factory=list)
    ready_at: float = 0.0
    interval: float = 1.0
    open_to: int = Rank.TARGET  #: the highest rank that may go out now
    version: int = 0  #: of its last change: heap entries with another version are void
    is_ready: bool = False  #: its time has come; only a closed rank may still keep it waiting
    is_busy: bool = False  #: a request to it is out
    unexplored: float = 0.0  #: seconds of pacing that its first target may lead to

    def work(self) -> float:
        """Return the seconds of pacing that this host will take, as far as is known."""
        return len(self.queue) * self.interval + self.unexplored


class Frontier(Generic[T]):
    """Waiting requests by host: hosts that are ready, and hosts that wait.

    One request to a host is out at a time: the next goes after ``free``. Each operation costs the
    logarithm of the number of hosts. A host without requests is dropped once its wait is over.

    ``intervals`` are the known spacings of hosts in seconds; any other host is taken to want one
    second. ``unexplored`` is the work, in seconds, that a host may have beyond its queue until
    ``explored`` is called for it. A crawl that follows links does not know it before, and a host
    that is explored last is waited for at the end.
    """

    def __init__(
        self, intervals: Mapping[str, float] | None = None, *, unexplored: float = 0.0
    ) -> None:
        self._intervals = dict(intervals or {})
        self._unexplored = unexplored
        self._hosts: dict[str, _Host[T]] = {}
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
        return (entry[3] for record in self._hosts.values() for entry in sorted(record.queue))

    def push(self, host: str, item: T, rank: Rank = Rank.TARGET, priority: int = 0) -> None:
        """Add a request. Of a host, low ranks go first, then high priorities, then old ones."""
        record = self._host(host)
        heapq.heappush(record.queue, (rank, -priority, next(self._order), item))
        self._size += 1
        self._place(host, record)

    def pop(self, now: float) -> tuple[str, T] | None:
        """Return the next request that may go at ``now``; None if every host waits or is busy."""
        self._wake(now)
        while self._ready:
            _, _, version, host = heapq.heappop(self._ready)
            record = self._current(host, version)
            if record is None:
                continue
            if not self._is_open(record):
                self._closed[host] = None
                continue
            item = heapq.heappop(record.queue)[3]
            self._size -= 1
            record.is_busy = True
            self._place(host, record)
            return host, item
        return None

    def free(self, host: str) -> None:
        """Let the next request of a host go: the one that was out has ended, in whatever way."""
        record = self._hosts[host]
        record.is_busy = False
        self._place(host, record)

    def explored(self, host: str) -> None:
        """Take a host's queue for all its work: one of its targets is being read."""
        if record := self._hosts.get(host):
            record.unexplored = 0.0

    def wait(self, host: str, ready_at: float, interval: float | None = None) -> None:
        """Let a host wait until ``ready_at``; ``interval`` is its spacing, for the order."""
        record = self._host(host)
        record.ready_at = ready_at
        if interval is not None and interval != record.interval:
            record.interval = self._intervals[host] = interval
        self._place(host, record)

    def ready_hosts(self, now: float) -> int:
        """Return how many hosts have a request that could go now."""
        self._wake(now)
        return self._ready_count

    def next_at(self) -> float | None:
        """Return when the next waiting host is ready, or None if none waits."""
        while self._waiting:
            ready_at, version, host = self._waiting[0]
            if self._current(host, version):
                return ready_at
            heapq.heappop(self._waiting)
        return None

    def restrict(self, rank: Rank, host: str | None = None) -> None:
        """Hand out nothing above ``rank``, of one host or (None) of all, until told otherwise."""
        if host is not None:
            record = self._host(host)
            record.open_to = rank
            self._place(host, record)
            return
        self._open_to = rank
        for name in list(self._closed):
            self._place(name, self._hosts[name])

    def _host(self, name: str) -> _Host[T]:
        if name not in self._hosts:
            interval = self._intervals.get(name, 1.0)
            self._hosts[name] = _Host(interval=interval, unexplored=self._unexplored)
        return self._hosts[name]

    def _is_open(self, record: _Host[T]) -> bool:
        return record.queue[0][0] <= min(record.open_to, self._open_to)

    def _place(self, host: str, record: _Host[T]) -> None:
        """Put a host into the heap that fits its queue, its time and its open rank."""
        record.version = next(self._order)
        self._ready_count -= record.is_ready
        record.is_ready = False
        self._closed.pop(host, None)
        if record.is_busy:
            return
        heap = self._waiting if record.queue else self._unused
        heapq.heappush(heap, (record.ready_at, record.version, host))

    def _wake(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, version, host = heapq.heappop(self._waiting)
            if record := self._current(host, version):
                record.is_ready = True
                self._ready_count += 1
                heapq.heappush(self._ready, (-record.work(), next(self._order), version, host))
        while self._unused and self._unused[0][0] <= now:
            _, version, host = heapq.heappop(self._unused)
            record = self._current(host, version)
            if record and record.open_to == Rank.TARGET:
                del self._hosts[host]

    def _current(self, host: str, version: int) -> _Host[T] | None:
        """Return a host if it has not changed since a heap entry with ``version`` was made."""
        record = self._hosts.get(host)
        return record if record and record.version == version else None


def start_order(waiting: Iterable[tuple[str, float, T]], intervals: Mapping[str, float]) -> list[T]:
    """Return the items of a run in the order in which to ask for them.

    ``waiting`` has the host, the time since when it is due, and the item. The host with most paced
    work goes first, with all it has: a frontier that is fed in this order, as it has room, takes
    no longer than one that knew everything from the start. Of one host the item that is due
    longest goes first, so a host that lets us in once a day gives each of its sources a turn.
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
