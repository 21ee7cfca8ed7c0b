"""Which waiting request goes next: only of a host that may be asked, none behind another's wait.

Decision 6. Times are seconds of one clock that never jumps, handed in.
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
    """What a request is for: a lower one goes first, for others depend on its answer."""

    ROBOTS = 0
    OPERATOR = 1  #: the blocklist and its schema
    TARGET = 2


@dataclass(slots=True)
class _Host(Generic[T]):
    queue: list[tuple[int, int, int, T]] = field(default_factory=list)
    ready_at: float = 0.0
    interval: float = 1.0
    open_to: int = Rank.TARGET  #: the highest rank that may be asked for now
    turn: int = 0  #: the number of the host's last change: heap entries with others are void
    is_awake: bool = False  #: its time has come; only a closed rank may keep it still
    is_busy: bool = False  #: a request of it is out
    hidden: float = 0.0  #: seconds of pacing that its first target may lead to

    def work(self) -> float:
        """Return the seconds of pacing that this host will cost, as far as anybody knows."""
        return len(self.queue) * self.interval + self.hidden


class Frontier(Generic[T]):
    """Waiting requests by host, with the hosts that are ready apart from those that wait.

    One request of a host is out at a time: the next goes after ``free``. Each operation costs the
    logarithm of the number of hosts, and a host that nothing more is asked of is forgotten when its
    rest is over. ``intervals`` are the spacings of hosts known from earlier; a host that is not
    among them is taken to want a second. ``hidden`` is the work, in seconds, that a host may have
    beyond what is queued, until it was ``looked_into``: of a crawl that follows links nobody knows
    it, and a host that is looked into last is waited for in the end.
    """

    def __init__(
        self, intervals: Mapping[str, float] | None = None, *, hidden: float = 0.0
    ) -> None:
        self._intervals = dict(intervals or {})
        self._hidden = hidden
        self._hosts: dict[str, _Host[T]] = {}
        self._ready: list[tuple[float, int, int, str]] = []  # most work first, then first come
        self._waiting: list[tuple[float, int, str]] = []  # soonest first
        self._idle: list[tuple[float, int, str]] = []  # asked for nothing more; soonest first
        self._closed: dict[str, None] = {}  # ready, but for a rank that is not open
        self._open_to: int = Rank.TARGET
        self._size = 0
        self._awake = 0
        self._order = count()

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        """Go through what waits, host by host, each in its own order."""
        return (entry[3] for record in self._hosts.values() for entry in sorted(record.queue))

    def push(self, host: str, item: T, rank: Rank = Rank.TARGET, priority: int = 0) -> None:
        """Add a request; of one host, lower ranks, then higher priorities, then older ones go."""
        record = self._host(host)
        heapq.heappush(record.queue, (rank, -priority, next(self._order), item))
        self._size += 1
        self._place(host, record)

    def pop(self, now: float) -> tuple[str, T] | None:
        """Take the next request that may go at ``now``, or None if every host waits or is busy."""
        self._wake(now)
        while self._ready:
            _, _, turn, host = heapq.heappop(self._ready)
            record = self._current(host, turn)
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
        """Let the next request of a host go: the one that was out has ended, whatever its end."""
        record = self._hosts[host]
        record.is_busy = False
        self._place(host, record)

    def looked_into(self, host: str) -> None:
        """Take what is queued for a host for all its work: one of its targets is being read."""
        if record := self._hosts.get(host):
            record.hidden = 0.0

    def wait(self, host: str, ready_at: float, interval: float | None = None) -> None:
        """Let a host rest until ``ready_at``; ``interval`` is its spacing, for the order."""
        record = self._host(host)
        record.ready_at = ready_at
        if interval is not None and interval != record.interval:
            record.interval = self._intervals[host] = interval
        self._place(host, record)

    def awake(self, now: float) -> int:
        """Return how many hosts have a request whose time has come."""
        self._wake(now)
        return self._awake

    def next_at(self) -> float | None:
        """Return when the next waiting host is ready, or None if none waits."""
        while self._waiting:
            ready_at, turn, host = self._waiting[0]
            if self._current(host, turn):
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
            self._hosts[name] = _Host(interval=interval, hidden=self._hidden)
        return self._hosts[name]

    def _is_open(self, record: _Host[T]) -> bool:
        return record.queue[0][0] <= min(record.open_to, self._open_to)

    def _place(self, host: str, record: _Host[T]) -> None:
        """Put a host where its queue, its time and what is open say; older entries are void."""
        record.turn = next(self._order)
        self._awake -= record.is_awake
        record.is_awake = False
        self._closed.pop(host, None)
        if record.is_busy:
            return
        heap = self._waiting if record.queue else self._idle
        heapq.heappush(heap, (record.ready_at, record.turn, host))

    def _wake(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, turn, host = heapq.heappop(self._waiting)
            if record := self._current(host, turn):
                record.is_awake = True
                self._awake += 1
                heapq.heappush(self._ready, (-record.work(), next(self._order), turn, host))
        while self._idle and self._idle[0][0] <= now:
            _, turn, host = heapq.heappop(self._idle)
            record = self._current(host, turn)
            if record and record.open_to == Rank.TARGET:
                del self._hosts[host]

    def _current(self, host: str, turn: int) -> _Host[T] | None:
        """Return a host if nothing happened to it since a heap entry of ``turn`` was made."""
        record = self._hosts.get(host)
        return record if record and record.turn == turn else None


def in_turn(waiting: Iterable[tuple[str, float, T]], intervals: Mapping[str, float]) -> list[T]:
    """Order what a run begins with, given as host, moment since when it is due, and item.

    The host with most paced work goes first, with all it has: a frontier that is fed in this
    order, as it has room, needs no longer than one that knew everything from the start. Of one host
    whoever waited longest goes first: if it lets us in once a day, all of its sources get their
    turn.
    """
    hosts: dict[str, list[tuple[float, T]]] = {}
    for host, since, item in waiting:
        hosts.setdefault(host, []).append((since, item))
    for queue in hosts.values():
        queue.sort(key=itemgetter(0))

    def turn(host: str) -> tuple[float, float]:
        queue = hosts[host]
        return -len(queue) * intervals.get(host, 1.0), queue[0][0]

    return [item for host in sorted(hosts, key=turn) for _, item in hosts[host]]
