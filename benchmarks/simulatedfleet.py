"""A thousand workers on one state, in simulated time, with the policy code of a crawl.

The queue of each worker and the times of each host are real; a host has one owner, as in
`state/ownership`. The wire and the database take no time: every exchange takes the time of its
worker.
"""

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.frontier import Frontier, HostWork, Rank
from walsh_scrapy.policy.pacing import (
    BEAT_SECONDS,
    MARGIN,
    WORKER_SECONDS,
    Exchange,
    HostTimes,
    TakeoverGuard,
)

DELAY = 1.0
SERVICE = 0.3
TIMEOUT = 30.0
_BACKOFF = Backoff(2.0, 300.0, random.Random(0))


@dataclass
class Fleet:
    """The differences of workers: a part is slower by a factor, a part dies on the way."""

    workers: int
    slow: float = 0.0
    slower: float = 3.0
    dying: float = 0.0


@dataclass
class Outcome:
    """The time of all work, the bound of every fleet, and the log of the web."""

    seconds: float
    bound: float
    requests: int = 0
    taken: int = 0  #: hosts, each as often as a worker took it
    too_soon: int = 0  #: requests to a host before its delay was over, or during another
    again: int = 0  #: requests for a document of an earlier exchange
    missing: int = 0  #: sources that were not requested


@dataclass
class _Worker:
    name: str
    service: float
    dies: float = float("inf")
    frontier: Frontier[str] = field(default_factory=Frontier)
    watch: TakeoverGuard = field(default_factory=TakeoverGuard)
    remaining: dict[str, int] = field(default_factory=dict)  #: requests, by host that it owns
    in_flight: str = ""
    beats_at: float = 0.0


def hosts_of(requests: int, largest: int) -> list[HostWork]:
    """Return hosts with about so many requests: most have a source or two, a few have many."""
    chance = random.Random(1)
    hosts: list[HostWork] = []
    while requests > 0:
        sources = min(int(chance.paretovariate(0.9)), largest)
        hosts.append(HostWork(f"h{len(hosts)}.example", sources))
        requests -= hosts[-1].requests
    return hosts


class Simulation:
    """One run of a fleet."""

    def __init__(self, hosts: Sequence[HostWork], fleet: Fleet) -> None:
        chance = random.Random(2)
        self._fleet = fleet
        self._work = {work.host: work.sources for work in hosts}  # the due sources
        self._has_robots: set[str] = set()
        self._rows = dict.fromkeys(self._work, HostTimes())
        self._until: dict[str, float] = {"": 0.0}  # by worker: when it lapses
        in_order = sorted(hosts, key=lambda work: -work.sources)
        self._agenda = [work.host for work in reversed(in_order)]
        self._orphans: list[tuple[float, str]] = []  # of dead workers: when they are free
        speeds = [
            SERVICE * (fleet.slower if chance.random() < fleet.slow else 1.0)
            for _ in range(fleet.workers)
        ]
        requests = sum(work.requests for work in hosts)
        longest = max(work.requests * (DELAY + SERVICE) - DELAY for work in hosts)
        ideal = requests / sum(1.0 / work for work in speeds)
        self._workers = [_Worker(f"w{n}", speed) for n, speed in enumerate(speeds)]
        lost = 0.0
        for worker in self._workers:
            if chance.random() < fleet.dying:
                worker.dies = chance.uniform(0.0, ideal)
                lost += (ideal - worker.dies) / worker.service
        self.outcome = Outcome(0.0, max(longest, ideal * requests / max(1.0, requests - lost)))
        self._ended: dict[str, float] = {}

    def run(self) -> Outcome:
        """Let every worker act whenever it has something to do, until all is done."""
        turns = [(number * 1e-4, number) for number in range(len(self._workers))]
        heapq.heapify(turns)
        while turns:
            now, number = heapq.heappop(turns)
            following = self._act(self._workers[number], now)
            if following is not None:
                heapq.heappush(turns, (following, number))
        self.outcome.missing = sum(self._work.values())
        return self.outcome

    def _act(self, worker: _Worker, now: float) -> float | None:
        """Let a worker act, and return when it acts again; None if it has ended."""
        if now >= worker.dies:
            for host in worker.remaining:
                heapq.heappush(self._orphans, (self._free_at(host), host))
            return None
        if worker.in_flight:
            self._end(worker, now)
        if now >= worker.beats_at:
            self._until[worker.name] = now + WORKER_SECONDS
            worker.beats_at = now + BEAT_SECONDS
            worker.watch.see(now, now)
        if not worker.frontier.ready_hosts(now):
            self._take_one(worker, now)
        if picked := worker.frontier.pop(now):
            return self._begin(worker, picked[0], now)
        ready_at = worker.frontier.next_at()
        if ready_at is not None:
            return max(ready_at, now + 1e-6)
        # Hosts of the dead may become free; in a real run hosts of the living too.
        return now + 1.0 if any(self._work.values()) else None

    def _free_at(self, host: str) -> float:
        """Return when any worker may take a host, unless its owner beats again."""
        row = self._rows[host]
        return max(row.in_flight_until, self._until[row.owner])

    def _take_one(self, worker: _Worker, now: float) -> None:
        """Own the next host in the order of a run's start, with all its work."""
        if self._orphans and self._orphans[0][0] < min(now, worker.watch.may_take_over_until):
            host = heapq.heappop(self._orphans)[1]
        elif self._agenda:
            host = self._agenda.pop()
        else:
            return
        if self._free_at(host) > now:
            heapq.heappush(self._orphans, (self._free_at(host), host))
            return
        row = self._rows[host]
        row = replace(row, owner=worker.name, request_ended_at=row.last_end, in_flight_until=0.0)
        self._rows[host] = row
        self.outcome.taken += 1
        needs_robots = host not in self._has_robots
        worker.remaining[host] = self._work[host] + needs_robots
        worker.frontier.wait(host, max(now, row.ready_at(DELAY)))
        for number in range(worker.remaining[host]):
            rank = Rank.ROBOTS if needs_robots and not number else Rank.TARGET
            worker.frontier.push(host, host, rank)

    def _begin(self, worker: _Worker, host: str, now: float) -> float:
        row = self._rows[host]
        may_begin = row.owner == worker.name and row.ready_at(DELAY) <= now
        self._rows[host] = replace(row, in_flight_until=now + TIMEOUT + MARGIN)
        # By the log of the web, and not only by the row.
        is_soon = now < self._ended.get(host, -DELAY) + DELAY - 1e-9
        self.outcome.too_soon += is_soon or not may_begin
        self._ended[host] = now + worker.service
        self.outcome.requests += 1
        worker.in_flight = host
        return now + worker.service

    def _end(self, worker: _Worker, now: float) -> None:
        host, worker.in_flight = worker.in_flight, ""
        worker.remaining[host] -= 1
        if host not in self._has_robots:
            self._has_robots.add(host)
        elif self._work[host]:
            self._work[host] -= 1
        else:
            self.outcome.again += 1
        exchange = Exchange(delay=DELAY, latency=worker.service)
        row = self._rows[host].after(exchange, _BACKOFF, now)
        if not worker.remaining[host]:
            del worker.remaining[host]
            row = replace(row, owner="")
        self._rows[host] = row
        worker.frontier.record_service(host, worker.service, now)
        worker.frontier.wait(host, row.ready_at(), DELAY)
        worker.frontier.free(host)
        self.outcome.seconds = now
