"""The frontier: the waiting requests of all hosts, and which one is sent next.

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
    from collections.abc import Callable, Collection, Iterable, Mapping

T = TypeVar("T")

#: After an exchange of this many seconds the host goes last, because a serial crawl stood still.
LONG: Final = 10.0
#: More requests of a host are read from its backlog when the queued ones take fewer seconds.
SHORT: Final = 10.0
#: By how much a crawl may take longer, as a share of its time, because some hosts begin late.
TOLERANCE: Final = 0.04
#: The delay of a host that was never requested, in seconds.
_UNKNOWN_DELAY: Final = 1.0


class Rank(IntEnum):
    """The purpose of a request. Lower ranks go first, because the other requests need them."""

    ROBOTS = 0
    OPERATOR = 1  #: the blocklist and its schema
    TARGET = 2


class _Lane(IntEnum):
    """The state of a host. Hosts in one lane are ordered by the length of their chains."""

    KNOWN = 0  #: not begun; the delay is known from an earlier run
    NEW = 1  #: not begun; the delay is unknown
    BEGUN = 2  #: its robots.txt was fetched
    LATE = 3  #: its last exchange took long
    CLOSED = 4  #: ready, but its next request must wait for the blocklist or robots.txt
    WAITING = 5  #: its delay or hold has not passed
    EMPTY = 6  #: without requests
    BUSY = 7  #: with a request in flight


_NOT_BEGUN: Final = (_Lane.KNOWN, _Lane.NEW)
_READY: Final = frozenset({*_NOT_BEGUN, _Lane.BEGUN, _Lane.LATE, _Lane.CLOSED})


@dataclass(slots=True, eq=False)
class _Host(Generic[T]):
    """The requests of one host, and when they may be handed out."""

    name: str
    requests: list[tuple[int, int, int, T]] = field(default_factory=list)  # a heap
    backlog: int = 0  #: the number of requests that are not queued yet
    ready_at: float = 0.0
    open_to: int = Rank.TARGET  #: the highest rank that may be handed out now
    lane: _Lane = _Lane.EMPTY
    version: int = 0  #: changes with each move; heap entries with another version are void
    is_busy: bool = False
    is_touched: bool = False  #: one of its requests was handed out before
    is_explored: bool = False  #: one of its targets was sent
    waits: bool = True  #: False: its next request will not be sent, so it waits for nothing


#: A host in a heap: key, whether it is untouched, version, host. The smallest entry goes first.
_Entry: TypeAlias = tuple[float, bool, int, _Host[T]]


class NextHost(NamedTuple):
    """When a waiting host becomes ready, and its delay in seconds, or None if it is unknown."""

    host: str
    ready_at: float
    delay: float | None


class Frontier(Generic[T]):
    """The waiting requests of all hosts, and the order in which they are handed out.

    Each host has at most one request in flight; its next one is handed out after ``free``. The
    *chain* of a host is the sum of the delays that its requests still need. A host is *critical* if
    its chain may take longer than everything else that waits. Order:

    1. the host with the longest chain, if it is critical: else it would be the last to end;
    2. hosts whose robots.txt was fetched, so that targets are read early;
    3. hosts that are not begun;
    4. hosts that lately took long.

    ``delays`` are the known delays of hosts in seconds; the default is one second. ``late`` are
    hosts that did not answer lately. ``follows_links`` means that the links of a host are unknown
    until one of its targets was read, so one target of each host is sent early. ``will_send``
    returns False for a request that will be denied or deferred: its host hands it out at once.

    Each operation takes time logarithmic in the number of hosts, except for ``remaining`` and a
    restriction of all hosts.
    """

    def __init__(
        self,
        delays: Mapping[str, float] | None = None,
        *,
        late: Collection[str] = (),
        follows_links: bool = False,
        will_send: Callable[[T], bool] = lambda _: True,
    ) -> None:
        self._delays = dict(delays or {})
        self._late = set(late)
        self._follows_links = follows_links
        self._will_send = will_send
        self._hosts: dict[str, _Host[T]] = {}
        lanes = (lane for lane in _Lane if lane not in {_Lane.CLOSED, _Lane.BUSY})
        self._heaps: dict[_Lane, list[_Entry[T]]] = {lane: [] for lane in lanes}
        self._short: dict[str, None] = {}  # hosts with a backlog, and few queued requests
        self._open_to: int = Rank.TARGET
        self._order = count(1)
        self._size = self._backlog = self._busy = self._ready = 0
        self._now = 0.0  # when the frontier was asked last
        self._last: _Lane | None = None  # the lane of the last host that was handed out
        self._has_read = False  # a host in the lane BEGUN was handed out
        self._exchanges = 0
        self._seconds = 0.0  # the cost of all exchanges
        self._ended_at: float | None = None  # the end of the last exchange; None after idle time

    def __len__(self) -> int:
        return self._size

    def count(self, host: str) -> int:
        """Return the number of requests that wait for a host."""
        state = self._hosts.get(host)
        return len(state.requests) if state else 0

    def push(
        self,
        host: str,
        item: T,
        rank: Rank = Rank.TARGET,
        priority: int = 0,
        *,
        is_back: bool = False,
    ) -> None:
        """Add a request. The order within a host is lower rank, higher priority, then age.

        A request that could not be sent yet and comes back (``is_back``) is treated as the oldest.
        """
        state = self._host(host)
        order = next(self._order)
        heapq.heappush(state.requests, (rank, -priority, -order if is_back else order, item))
        self._size += 1
        if state.requests[0][3] is item:
            self._place_again(state)
        else:
            self._place(state)

    def expect(self, host: str, backlog: int) -> None:
        """Set the number of requests of a host that are pushed later, when few are queued.

        They count for its chain, so the order of hosts is the same as if they were queued already.
        """
        state = self._host(host)
        self._backlog += backlog - state.backlog
        state.backlog = backlog
        self._place(state)

    def short_host(self) -> str | None:
        """Return the first host with a backlog and few queued requests, or None."""
        return next(iter(self._short), None)

    def pop(self, now: float) -> tuple[str, T] | None:
        """Remove and return the host and request to send at ``now``.

        None if every host waits or is busy.
        """
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
        state = self._hosts[host]
        self._busy -= state.is_busy
        state.is_busy = False
        self._place_again(state)

    def record_service(self, host: str, seconds: float, now: float) -> None:
        """Record an exchange of ``seconds`` that ended at ``now``; call this before ``free``.

        The cost of the exchange is the time since the end of the previous one, which includes the
        work of this machine; after idle time it is the exchange alone. If it took `LONG`, the host
        goes last from now on, until one of its exchanges is shorter.
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
        """Mark a host as explored: one of its targets was sent, so its links are known soon."""
        if state := self._hosts.get(host):
            state.is_explored = True

    def wait(self, host: str, ready_at: float, delay: float | None = None) -> None:
        """Let a host wait until ``ready_at``; ``delay`` is its new delay, if it has changed."""
        state = self._host(host)
        state.ready_at = ready_at
        if delay is not None:
            self._delays[host] = delay
        self._place_again(state)

    def recheck(self, host: str) -> None:
        """Ask again whether the next request of a host will be sent."""
        if state := self._hosts.get(host):
            self._place_again(state)

    def restrict(self, rank: Rank, host: str | None = None) -> None:
        """Hand out only requests up to ``rank``, of one host or, if it is None, of all hosts."""
        if host is not None:
            self._host(host).open_to = rank
            self._place_again(self._host(host))
            return
        self._open_to = rank
        for state in self._hosts.values():
            self._place(state)

    @property
    def is_restricted(self) -> bool:
        """Whether the targets of all hosts wait, for example for the blocklist."""
        return self._open_to < Rank.TARGET

    def ready_hosts(self, now: float) -> int:
        """Return the number of hosts whose delay and hold have passed, restricted ones too."""
        self._wake(now)
        return self._ready

    def next_at(self) -> float | None:
        """Return when the first waiting host becomes ready, or None if no host waits."""
        top = self._top(_Lane.WAITING)
        return None if top is None else top[0]

    def next_host(self) -> NextHost | None:
        """Return the host that becomes ready first, or None if no host waits."""
        if (top := self._top(_Lane.WAITING)) is None:
            return None
        name = top[3].name
        return NextHost(name, top[0], self._delays.get(name))

    def upcoming(self, count: int) -> list[T]:
        """Return about the next ``count`` requests to be handed out, at most one of each host.

        Hosts that are not begun come first, because any of them may become critical at any time.
        The cost does not depend on the number of hosts.
        """
        entries: list[_Entry[T]] = []
        for lanes in (_NOT_BEGUN, (_Lane.BEGUN,), (_Lane.LATE,), (_Lane.WAITING,)):
            # The first entries of a heap are near its beginning, mixed with void ones.
            first = [entry for lane in lanes for entry in self._heaps[lane][: 4 * count]]
            entries += sorted(filter(_is_current, first))
        return [entry[3].requests[0][3] for entry in entries[:count]]

    def remaining(self, now: float, unqueued: int = 0) -> float:
        """Return the minimum time in seconds that the crawl still takes.

        That is the longest chain of a host, or the sum of the service times of all requests,
        whichever is longer. It is infinite while the links of a host are unknown. ``unqueued`` is
        the number of requests that were not pushed yet.
        """
        chains = (
            max(0.0, host.ready_at - now) + self._chain(host)
            for host in self._hosts.values()
            if host.requests and host.waits
        )
        return max(max(chains, default=0.0), (self._size + unqueued) * self._service)

    def _host(self, name: str) -> _Host[T]:
        if name not in self._hosts:
            self._hosts[name] = _Host(name)
        return self._hosts[name]

    def _place_again(self, host: _Host[T]) -> None:
        """Put a host into its lane after a change of its next request, or of what may be sent."""
        if host.requests and not host.is_busy:
            may_wait = host.ready_at > self._now or host.name in self._late
            host.waits = not may_wait or self._will_send(host.requests[0][3])
        self._place(host)

    def _place(self, host: _Host[T]) -> None:
        """Put a host into its lane after a change. ``_wake`` moves it on when it is ready."""
        if host.backlog and len(host.requests) * self._delay(host) <= SHORT:
            self._short[host.name] = None
        else:
            self._short.pop(host.name, None)
        if host.is_busy:
            self._put(host, _Lane.BUSY, host.ready_at)
        elif not host.requests:
            self._put(host, _Lane.EMPTY, host.ready_at)
        else:
            self._put(host, _Lane.WAITING, host.ready_at if host.waits else -math.inf)

    def _put(self, host: _Host[T], lane: _Lane, key: float) -> None:
        self._ready += (lane in _READY) - (host.lane in _READY)
        host.lane = lane
        host.version = next(self._order)
        if lane in self._heaps:
            entry = (key, not host.is_touched, host.version, host)
            heapq.heappush(self._heaps[lane], entry)

    def _wake(self, now: float) -> None:
        """Move hosts whose wait is over into a ready lane, and drop hosts without requests."""
        self._now = now
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
        if host.name in self._late and host.waits:
            return _Lane.LATE
        if host.is_touched and rank != Rank.ROBOTS:
            return _Lane.BEGUN
        return _Lane.KNOWN if host.name in self._delays else _Lane.NEW

    def _next_lane(self, now: float) -> _Lane | None:
        """Return the lane whose first host is handed out next, or None."""
        tops = {lane: top for lane in _READY & self._heaps.keys() if (top := self._top(lane))}
        if tops.pop(_Lane.LATE, None) and not tops:
            # A late host may take long again, so hosts that are ready before its end go first.
            soonest = self.next_at()
            return _Lane.LATE if soonest is None or soonest - now >= LONG else None
        if not self._has_read and self._last is _Lane.KNOWN and _Lane.NEW in tops:
            # Known delays are mostly long, and the crawl should read its first target soon.
            tops.pop(_Lane.KNOWN, None)
        if not tops:
            return None
        longest = min(tops, key=tops.__getitem__)
        is_critical = self._has_read and -tops[longest][0] >= self._slack()
        return longest if is_critical or _Lane.BEGUN not in tops else _Lane.BEGUN

    def _chain(self, host: _Host[T]) -> float:
        """Return the sum of the delays that a host still needs, in seconds.

        An untouched host needs one more, for its robots.txt. No delay follows the last request.
        """
        if self._follows_links and not host.is_explored:
            return math.inf
        delays = len(host.requests) + host.backlog - host.is_touched
        return delays * self._delay(host)

    def _delay(self, host: _Host[T]) -> float:
        return self._delays.get(host.name, _UNKNOWN_DELAY)

    def _slack(self) -> float:
        """Return the length in seconds from which on a chain is critical.

        It does not include the robots.txt of hosts that are not begun. Before the first exchange
        the cost of an exchange is unknown, and only an infinite chain is critical.
        """
        waiting = self._size + self._backlog
        seconds = self._service * (waiting + TOLERANCE * (waiting + self._exchanges))
        return seconds if self._exchanges else math.inf

    @property
    def _service(self) -> float:
        """The average cost of an exchange in seconds; 0 before the first one."""
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
    """The work at a host with due sources."""

    host: str  #: the host name, or the registrable domain
    sources: int  #: the number of due sources
    since: float = 0.0  #: the earliest due time; 0 for a new source

    @property
    def requests(self) -> int:
        """The number of requests: one for robots.txt, and one for each source."""
        return self.sources + 1


def in_order(
    hosts: Iterable[HostWork], delays: Mapping[str, float], late: Collection[str] = ()
) -> list[HostWork]:
    """Return hosts in the order in which a run begins them: the longest chain first.

    ``delays`` are the known delays. Hosts that lately did not answer (``late``) go last. A frontier
    that gets its requests in this order takes no longer than one that gets all at the start.
    """

    def order(work: HostWork) -> tuple[bool, float, float]:
        chain = work.sources * delays.get(work.host, _UNKNOWN_DELAY)
        return work.host in late, -chain, work.since

    return sorted(hosts, key=order)
