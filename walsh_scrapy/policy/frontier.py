"""The frontier: the requests that wait, by host, and which goes next (decisions 6 and 41).

A host that waits never delays another host. Durations are seconds; moments are seconds of a
monotonic clock, and are arguments.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

T = TypeVar("T")

#: Seconds of an exchange after which its host goes last: a serial crawl waited for it.
LONG: Final = 10.0
#: A host with a backlog gets more requests when its remaining ones take no longer, in seconds.
SHORT: Final = 10.0
#: The part of its time that a crawl may get longer for hosts that it begins late.
TOLERANCE: Final = 0.04
#: A delay that is not known yet.
_UNKNOWN: Final = 1.0


class Rank(IntEnum):
    """The purpose of a request: lower ranks go first, because others depend on their answers."""

    ROBOTS = 0
    OPERATOR = 1  #: the blocklist and its schema
    TARGET = 2


class _Lane(IntEnum):
    """Hosts that are compared with each other."""

    KNOWN = 0  #: not begun; the delay is known from an earlier run
    NEW = 1  #: not begun; the delay is not known
    BEGUN = 2  #: robots.txt is at hand
    LATE = 3  #: the host lately took long
    CLOSED = 4  #: ready, but its next request may not go yet
    WAITING = 5
    EMPTY = 6  #: without requests
    BUSY = 7  #: a request was handed out, and has not ended


_NOT_BEGUN: Final = (_Lane.KNOWN, _Lane.NEW)
_READY: Final = frozenset({*_NOT_BEGUN, _Lane.BEGUN, _Lane.LATE, _Lane.CLOSED})


@dataclass(slots=True, eq=False)
class _Host(Generic[T]):
    """The requests of one host, and when they may be handed out."""

    name: str
    requests: list[tuple[int, int, int, T]] = field(default_factory=list)  # a heap
    backlog: int = 0  #: requests that are still to come, and count for the chain
    ready_at: float = 0.0
    open_to: int = Rank.TARGET  #: the highest rank that may go out now
    lane: _Lane = _Lane.EMPTY
    version: int = 0  #: of its last change: heap entries with another version are void
    is_busy: bool = False
    is_touched: bool = False  #: one of its requests was handed out at some time
    is_explored: bool = False  #: one of its targets was sent


#: A host in a heap: the least goes first, then a host that was touched, then the oldest entry.
_Entry: TypeAlias = tuple[float, bool, int, _Host[T]]


class NextHost(NamedTuple):
    """When a host that waits becomes ready, and its delay in seconds; None if that is unknown."""

    host: str
    ready_at: float
    delay: float | None


class Frontier(Generic[T]):
    """Waiting requests by host: hosts that are ready, and hosts that wait.

    Each host has at most one request in flight; the next is handed out after ``free``. A host's
    chain is the delays that it still needs, in seconds. A host is critical if its chain may outlast
    all requests that wait. The longest chain goes first if its host is critical. Else a host that
    was begun goes first, then one that was not, then one that is late. So a crawl reads targets
    long before the last robots.txt, and takes no longer. The cost of each operation is logarithmic
    in the number of hosts, except for ``remaining`` and a restriction of all hosts.

    ``delays`` are the known delays of hosts in seconds; the default is one second. ``late`` are
    hosts that lately did not answer: they go last until an exchange is short. ``follows_links``
    means that the work of a host is not known before one of its targets was sent. So a target of
    each host is sent early.
    """

    def __init__(
        self,
        delays: Mapping[str, float] | None = None,
        *,
        late: Collection[str] = (),
        follows_links: bool = False,
    ) -> None:
        self._delays = dict(delays or {})
        self._late = set(late)
        self._follows_links = follows_links
        self._hosts: dict[str, _Host[T]] = {}
        lanes = (lane for lane in _Lane if lane not in {_Lane.CLOSED, _Lane.BUSY})
        self._heaps: dict[_Lane, list[_Entry[T]]] = {lane: [] for lane in lanes}
        self._short: dict[str, None] = {}  # hosts with a backlog with few remaining requests
        self._open_to: int = Rank.TARGET
        self._order = count(1)
        self._size = self._backlog = self._busy = self._ready = 0
        self._last: _Lane | None = None  # of the host that went last
        self._has_read = False  # a host that was begun had a turn
        self._exchanges = 0
        self._seconds = 0.0  # that these cost
        self._ended_at: float | None = None  # the last one, unless the crawl was idle since

    def __len__(self) -> int:
        return self._size

    def count(self, host: str) -> int:
        """Return the number of requests that wait for a host."""
        found = self._hosts.get(host)
        return len(found.requests) if found else 0

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
        found, order = self._host(host), next(self._order)
        heapq.heappush(found.requests, (rank, -priority, -order if is_back else order, item))
        self._size += 1
        self._place(found)

    def expect(self, host: str, backlog: int) -> None:
        """Count further requests of a host, which are pushed when few of its requests remain.

        So the order of all hosts is the same as if they were here already (decision 6).
        """
        found = self._host(host)
        self._backlog += backlog - found.backlog
        found.backlog = backlog
        self._place(found)

    def short_host(self) -> str | None:
        """Return a host with a backlog with few remaining requests: the first one that had few."""
        return next(iter(self._short), None)

    def pop(self, now: float) -> tuple[str, T] | None:
        """Return the host and request to send at ``now``; None if every host waits or is busy."""
        self._wake(now)
        lane = self._next_lane(now)
        if lane is None:
            self._ended_at = None  # the time until the next exchange is not work
            return None
        self._last = lane
        self._has_read = self._has_read or lane is _Lane.BEGUN
        host = heapq.heappop(self._heaps[lane])[3]
        host.is_busy = host.is_touched = True
        self._size -= 1
        self._busy += 1
        item = heapq.heappop(host.requests)[3]
        self._place(host)
        return host.name, item

    def free(self, host: str) -> None:
        """Mark the request of a host as ended, so that its next request may be handed out."""
        found = self._hosts[host]
        self._busy -= found.is_busy
        found.is_busy = False
        self._place(found)

    def record_service(self, host: str, seconds: float, now: float) -> None:
        """Note the seconds of an exchange that ended ``now``; call it before ``free``.

        Its cost is the time since the end of the exchange before it, with the work of the machine.
        After an idle time the cost is only the time of the exchange itself. A host that took long
        goes last from now on, any other no longer does.
        """
        alone = seconds / max(1, self._busy)
        self._seconds += alone if self._ended_at is None else now - self._ended_at
        self._exchanges += 1
        self._ended_at = now
        if seconds >= LONG:
            self._late.add(host)
        else:
            self._late.discard(host)

    def explored(self, host: str) -> None:
        """Note that a target of a host was sent, so that its links will be known soon."""
        if found := self._hosts.get(host):
            found.is_explored = True

    def wait(self, host: str, ready_at: float, delay: float | None = None) -> None:
        """Let a host wait until ``ready_at``; ``delay`` is its new delay."""
        found = self._host(host)
        found.ready_at = ready_at
        if delay is not None:
            self._delays[host] = delay
        self._place(found)

    def restrict(self, rank: Rank, host: str | None = None) -> None:
        """Hand out only requests up to ``rank``, for ``host``, or for all hosts if it is None."""
        if host is not None:
            self._host(host).open_to = rank
            self._place(self._host(host))
            return
        self._open_to = rank
        for each in self._hosts.values():
            self._place(each)

    @property
    def is_restricted(self) -> bool:
        """Whether all targets wait for something that goes first."""
        return self._open_to < Rank.TARGET

    def ready_hosts(self, now: float) -> int:
        """Return the number of hosts whose request could go now, or after ``restrict``."""
        self._wake(now)
        return self._ready

    def next_at(self) -> float | None:
        """Return when the first of the waiting hosts becomes ready, or None if no host waits."""
        top = self._top(_Lane.WAITING)
        return None if top is None else top[0]

    def next_host(self) -> NextHost | None:
        """Return the host that becomes ready first, or None if no host waits."""
        if (top := self._top(_Lane.WAITING)) is None:
            return None
        name = top[3].name
        return NextHost(name, top[0], self._delays.get(name))

    def upcoming(self, count: int) -> list[T]:
        """Return about the next ``count`` requests to be handed out, one of each host.

        Hosts that are not begun come first, because nobody knows when one becomes critical. Nothing
        is changed, and the cost does not depend on the number of hosts.
        """
        entries: list[_Entry[T]] = []
        for lanes in (_NOT_BEGUN, (_Lane.BEGUN,), (_Lane.LATE,), (_Lane.WAITING,)):
            # A heap has its first entries at its beginning, and void ones.
            first = [entry for lane in lanes for entry in self._heaps[lane][: 4 * count]]
            entries += sorted(filter(_is_current, first))
        return [entry[3].requests[0][3] for entry in entries[:count]]

    def remaining(self, now: float, others: int = 0) -> float:
        """Return the least time in seconds that the crawl still takes (decision 6).

        That is the longest chain of a host, or the service times of all remaining requests, if
        these are longer. It is infinite if a host's work is not known yet. ``others`` are requests
        to come that are not here yet.
        """
        chains = (
            max(0.0, host.ready_at - now) + self._chain(host)
            for host in self._hosts.values()
            if host.requests
        )
        return max(max(chains, default=0.0), (self._size + others) * self._service)

    def _host(self, name: str) -> _Host[T]:
        if name not in self._hosts:
            self._hosts[name] = _Host(name)
        return self._hosts[name]

    def _place(self, host: _Host[T]) -> None:
        """Put a host where it belongs after a change; ``_wake`` finds out whether it is ready."""
        if host.backlog and len(host.requests) * self._delay(host) <= SHORT:
            self._short[host.name] = None
        else:
            self._short.pop(host.name, None)
        lane = _Lane.WAITING if host.requests else _Lane.EMPTY
        self._put(host, _Lane.BUSY if host.is_busy else lane, host.ready_at)

    def _put(self, host: _Host[T], lane: _Lane, key: float) -> None:
        self._ready += (lane in _READY) - (host.lane in _READY)
        host.lane, host.version = lane, next(self._order)
        if lane in self._heaps:
            entry = (key, not host.is_touched, host.version, host)
            heapq.heappush(self._heaps[lane], entry)

    def _wake(self, now: float) -> None:
        """Let the hosts be ready whose wait is over, and drop those without requests."""
        while (top := self._top(_Lane.WAITING)) and top[0] <= now:
            host = heapq.heappop(self._heaps[_Lane.WAITING])[3]
            self._put(host, self._lane(host), -self._chain(host))
        while (top := self._top(_Lane.EMPTY)) and top[0] <= now:
            host = heapq.heappop(self._heaps[_Lane.EMPTY])[3]
            if host.open_to == Rank.TARGET and not host.backlog:
                del self._hosts[host.name]

    def _lane(self, host: _Host[T]) -> _Lane:
        """Return the lane of a host that is ready."""
        rank = host.requests[0][0]
        if rank > min(host.open_to, self._open_to):
            return _Lane.CLOSED
        if host.name in self._late:
            return _Lane.LATE
        if host.is_touched and rank != Rank.ROBOTS:
            return _Lane.BEGUN
        return _Lane.KNOWN if host.name in self._delays else _Lane.NEW

    def _next_lane(self, now: float) -> _Lane | None:
        """Return the lane whose first host goes next, or None if no host may go."""
        tops = {lane: top for lane in _READY & self._heaps.keys() if (top := self._top(lane))}
        if tops.pop(_Lane.LATE, None) and not tops:
            # A late host may take so long again, so another goes first that is ready before that.
            soonest = self.next_at()
            return _Lane.LATE if soonest is None or soonest - now >= LONG else None
        if not self._has_read and self._last is _Lane.KNOWN and _Lane.NEW in tops:
            # A known delay is a long one, and the crawl should read its first target soon.
            tops.pop(_Lane.KNOWN, None)
        if not tops:
            return None
        longest = min(tops, key=tops.__getitem__)
        is_critical = self._has_read and -tops[longest][0] >= self._slack()
        return longest if is_critical or _Lane.BEGUN not in tops else _Lane.BEGUN

    def _chain(self, host: _Host[T]) -> float:
        """Return the delays that a host still needs, as far as is known.

        Until a request was handed out, its robots.txt is still to come. No delay follows the last
        request.
        """
        if self._follows_links and not host.is_explored:
            return math.inf
        delays = len(host.requests) + host.backlog - host.is_touched
        return delays * self._delay(host)

    def _delay(self, host: _Host[T]) -> float:
        return self._delays.get(host.name, _UNKNOWN)

    def _slack(self) -> float:
        """Return the length from which on a chain is critical.

        The robots.txt of hosts that are not begun do not count among the requests that wait. Before
        the first exchange the cost of one is not known, and only an infinite chain is critical.
        """
        waiting = self._size + self._backlog
        seconds = self._service * (waiting + TOLERANCE * (waiting + self._exchanges))
        return seconds if self._exchanges else math.inf

    @property
    def _service(self) -> float:
        """The seconds that an exchange costs the crawl, as far as is known."""
        return self._seconds / self._exchanges if self._exchanges else 0.0

    def _top(self, lane: _Lane) -> _Entry[T] | None:
        """Return the first entry of a lane, without void ones."""
        heap = self._heaps[lane]
        while heap and not _is_current(heap[0]):
            heapq.heappop(heap)
        return heap[0] if heap else None


def _is_current(entry: _Entry[T]) -> bool:
    return entry[2] == entry[3].version


class HostWork(NamedTuple):
    """A host that has due sources."""

    host: str  #: as it is paced
    sources: int  #: number of due ones
    since: float = 0.0  #: the due time of the first; 0 for a new one

    @property
    def requests(self) -> int:
        """The requests that it takes: its robots.txt, and one for each source."""
        return self.sources + 1


def in_order(
    hosts: Iterable[HostWork], delays: Mapping[str, float], late: Collection[str] = ()
) -> list[HostWork]:
    """Return hosts in the order in which a run begins them.

    The host with the most paced work goes first, by ``delays``, the known ones. Hosts that lately
    did not answer (``late``) go last. A frontier that gets the requests in this order takes no
    longer than one that has all of them from the start.
    """

    def order(work: HostWork) -> tuple[bool, float, float]:
        paced = work.sources * delays.get(work.host, _UNKNOWN)
        return work.host in late, -paced, work.since

    return sorted(hosts, key=order)
