"""The frontier: waiting requests by host, and when each host is ready (decision 6).

A host that waits never delays another host. Times are seconds of a monotonic clock, and are
arguments.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from walsh_scrapy.policy.readyhosts import HostRequests, Lane, Rank, ReadyHosts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

__all__ = ["Frontier", "NextHost", "Rank"]

T = TypeVar("T")

#: Seconds of an exchange after which its host goes last: a serial crawl waited for it.
LONG = 10.0
#: A host with a backlog gets more requests when it has no more than this number left.
FEW = 25


class NextHost(NamedTuple):
    """When a host that waits becomes ready, and its spacing in seconds; None if that is unknown."""

    host: str
    ready_at: float
    interval: float | None


class Frontier(Generic[T]):
    """Waiting requests by host: hosts that are ready, and hosts that wait.

    Each host has at most one request out; the next is handed out after ``free``. The cost of each
    operation is logarithmic in the number of hosts. A host without requests is dropped once its
    wait is over.

    ``intervals`` are the known spacings of hosts in seconds; the default is one second.
    ``late`` are hosts that lately did not answer: they go last until an exchange is short.
    ``unexplored`` is added to the chain of a host, in seconds, until ``explored`` is called for it.
    A crawl that follows links does not know the work of a host before it has read one of its pages.
    So it reads one page of each host early.
    """

    def __init__(
        self,
        intervals: Mapping[str, float] | None = None,
        *,
        late: Collection[str] = (),
        unexplored: float = 0.0,
    ) -> None:
        self._intervals = dict(intervals or {})
        self._late = set(late)
        self._unexplored = unexplored
        self._hosts: dict[str, HostRequests[T]] = {}
        self._ready = ReadyHosts()
        self._waiting: list[tuple[float, int, str]] = []  # soonest first
        self._unused: list[tuple[float, int, str]] = []  # without requests; soonest first
        self._closed: dict[str, None] = {}  # ready, but their next rank is closed
        self._open_to: int = Rank.TARGET
        self._short: dict[str, None] = {}  # hosts with a backlog that have few requests left
        self._size = 0
        self._backlog = 0
        self._busy = 0
        self._order = count()

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        """Yield all waiting requests, host by host, each host in its own order."""
        return (entry[3] for queue in self._hosts.values() for entry in sorted(queue.requests))

    def push(
        self,
        host: str,
        item: T,
        rank: Rank = Rank.TARGET,
        priority: int = 0,
        *,
        is_back: bool = False,
    ) -> None:
        """Add a request. Within a host, order is by lower rank, higher priority, then age.

        One that comes back because it could not be sent yet (``is_back``) is the oldest.
        """
        queue, order = self._queue_of(host), next(self._order)
        queue.push(rank, priority, -order if is_back else order, item)
        self._size += 1
        self._place(host, queue)

    def expect(self, host: str, backlog: int) -> None:
        """Count so many further requests of a host, which are pushed when it has few left.

        So the order of all hosts is the same as if they were here already (decision 6).
        """
        queue = self._queue_of(host)
        self._backlog += backlog - queue.backlog
        queue.backlog = backlog
        self._note_short(host, queue)
        self._place(host, queue)

    def short_host(self) -> str | None:
        """Return a host with a backlog that has few requests left, the first one that had."""
        return next(iter(self._short), None)

    def pop(self, now: float) -> tuple[str, T] | None:
        """Return the host and request to send at ``now``; None if every host waits or is busy."""
        self._wake(now)
        soonest = self.next_at()
        # A late host may take so long again, so it does not go while another is ready before that.
        with_late = soonest is None or soonest - now >= LONG
        waiting = self._size + self._backlog
        while (host := self._ready.pop(waiting, with_late=with_late)) is not None:
            queue = self._hosts[host]
            if queue.rank > min(queue.open_to, self._open_to):
                self._closed[host] = None
                continue
            self._size -= 1
            self._busy += 1
            item = queue.pop()
            self._note_short(host, queue)
            self._place(host, queue)
            return host, item
        self._ready.slack.record_pause()
        return None

    def free(self, host: str) -> None:
        """Mark the request of a host as ended, so that its next request may be handed out."""
        queue = self._hosts[host]
        self._busy -= queue.is_busy
        queue.is_busy = False
        self._place(host, queue)

    def record_service(self, host: str, seconds: float, now: float) -> None:
        """Note how long an exchange took that ended ``now``; call it before ``free``.

        A host that took long goes last from now on, any other no longer does.
        """
        self._ready.slack.record_service(seconds, self._busy, now)
        if seconds >= LONG:
            self.put_last(host)
        else:
            self._late.discard(host)

    def put_last(self, host: str) -> None:
        """Hand out requests to a host only while no other host is ready, until it answers."""
        self._late.add(host)
        if queue := self._hosts.get(host):
            self._place(host, queue)

    def explored(self, host: str) -> None:
        """Stop adding ``unexplored`` to the chain of a host: one of its targets was sent."""
        if queue := self._hosts.get(host):
            queue.unexplored = 0.0

    def wait(self, host: str, ready_at: float, interval: float | None = None) -> None:
        """Let a host wait until ``ready_at``; ``interval`` is its new spacing."""
        queue = self._queue_of(host)
        queue.ready_at = ready_at
        if interval is not None:
            queue.interval = interval
            if interval != self._intervals.get(host, 1.0):
                self._intervals[host] = interval
        self._place(host, queue)

    def ready_hosts(self, now: float) -> int:
        """Return how many hosts have a request that could go now."""
        self._wake(now)
        return len(self._ready) + len(self._closed)

    def next_at(self) -> float | None:
        """Return when the first of the waiting hosts becomes ready, or None if no host waits."""
        found = self.next_host()
        return None if found is None else found.ready_at

    def next_host(self) -> NextHost | None:
        """Return the host that becomes ready first, or None if no host waits."""
        while self._waiting:
            ready_at, version, host = self._waiting[0]
            if queue := self._current(host, version):
                return NextHost(host, ready_at, queue.interval)
            heapq.heappop(self._waiting)
        return None

    def remaining(self, now: float, others: int = 0) -> float:
        """Return the least time in seconds that the crawl still takes (decision 6).

        That is the longest chain of a host, or the service times of all requests that are left, if
        these are longer. It is infinite if a host's work is not known yet. ``others`` are requests
        to come that are not here yet. The cost is linear in the number of hosts.
        """
        chains = (
            max(0.0, queue.ready_at - now) + queue.chain()
            for queue in self._hosts.values()
            if queue.requests
        )
        service = (self._size + others) * self._ready.slack.mean
        return max(max(chains, default=0.0), service)

    @property
    def is_restricted(self) -> bool:
        """Whether all targets wait for something that goes first."""
        return self._open_to < Rank.TARGET

    def upcoming(self, count: int) -> list[T]:
        """Return about the next ``count`` requests to be handed out, one of each host.

        The order is roughly that of their turns. Nothing is changed, and the cost does not depend
        on the number of hosts.
        """
        soonest = sorted(self._waiting[: 4 * count])
        waiting = [host for _, version, host in soonest if self._current(host, version)]
        hosts = [*self._ready.upcoming(count), *waiting][:count]
        return [self._hosts[host].first for host in hosts]

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

    def _queue_of(self, name: str) -> HostRequests[T]:
        if name not in self._hosts:
            interval = self._intervals.get(name)
            self._hosts[name] = HostRequests(interval, unexplored=self._unexplored)
        return self._hosts[name]

    def _place(self, host: str, queue: HostRequests[T]) -> None:
        """Put a host into the heap of waiting hosts, or of hosts without requests."""
        queue.version = next(self._order)
        self._ready.discard(host)
        self._closed.pop(host, None)
        if queue.is_busy:
            return
        heap = self._waiting if queue.requests else self._unused
        heapq.heappush(heap, (queue.ready_at, queue.version, host))

    def _wake(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, version, host = heapq.heappop(self._waiting)
            if queue := self._current(host, version):
                lane = Lane.LATE if host in self._late else queue.lane()
                self._ready.add(host, lane, queue.chain(), is_touched=queue.is_touched)
        while self._unused and self._unused[0][0] <= now:
            _, version, host = heapq.heappop(self._unused)
            queue = self._current(host, version)
            if queue and queue.open_to == Rank.TARGET and not queue.backlog:
                del self._hosts[host]

    def _note_short(self, host: str, queue: HostRequests[T]) -> None:
        if queue.backlog and len(queue.requests) <= FEW:
            self._short[host] = None
        else:
            self._short.pop(host, None)

    def _current(self, host: str, version: int) -> HostRequests[T] | None:
        """Return the queue of a host if it did not change since a heap entry of ``version``."""
        queue = self._hosts.get(host)
        return queue if queue and queue.version == version else None
