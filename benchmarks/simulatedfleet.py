"""A thousand workers on one state, in simulated time, with the policy code of a crawl.

The queue of each worker, its claims, and the ledger's row of each host are real. The wire and the
database take no time of their own: every exchange takes what its worker takes for it.
"""

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from walsh_scrapy.policy.hosttimes import LEASE_MARGIN, HostTimes

from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.claims import BEAT_SECONDS, CLAIM_SECONDS, HostWork
from walsh_scrapy.policy.frontier import Frontier, Rank
from walsh_scrapy.policy.pacing import Claim, Exchange, GiveBack, Lease, Release, after

SPACING = 1.0
SERVICE = 0.3
TIMEOUT = 30.0
_BACKOFF = Backoff(2.0, 300.0, random.Random(0))


@dataclass
class Fleet:
    """How the workers differ: a part of them is slower by a factor, a part dies on the way."""

    workers: int
    slow: float = 0.0
    slower: float = 3.0
    dying: float = 0.0


@dataclass
class Outcome:
    """When all was done, what no fleet can undercut, and what the log of the web shows."""

    seconds: float
    bound: float
    requests: int = 0
    claims: int = 0
    too_soon: int = 0  #: requests to a host before its spacing was over, or beside another
    again: int = 0  #: requests for what an earlier exchange had brought
    missing: int = 0  #: sources that were not asked for


@dataclass
class _Worker:
    name: str
    service: float
    dies: float = float("inf")
    frontier: Frontier[str] = field(default_factory=Frontier)
    left: dict[str, int] = field(default_factory=dict)  #: requests, by claimed host
    under_way: str = ""
    beat: float = 0.0
    claimed_until: float = 0.0


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
        self._work = {each.host: each.sources for each in hosts}  # what is still due
        self._has_robots: set[str] = set()
        self._rows = dict.fromkeys(self._work, HostTimes())
        in_order = sorted(hosts, key=lambda each: -each.sources)
        self._agenda = iter(in_order)
        self._orphans: list[tuple[float, str]] = []  # of dead workers: when they are free
        speeds = [
            SERVICE * (fleet.slower if chance.random() < fleet.slow else 1.0)
            for _ in range(fleet.workers)
        ]
        requests = sum(each.requests for each in hosts)
        longest = max(each.requests * (SPACING + SERVICE) - SPACING for each in hosts)
        ideal = requests / sum(1.0 / each for each in speeds)
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
            free = worker.claimed_until + LEASE_MARGIN
            for host in worker.left:
                heapq.heappush(self._orphans, (free, host))
            return None
        if worker.under_way:
            self._end_exchange(worker, now)
        if now >= worker.beat:
            self._renew(worker, now)
        self._claim(worker, now)
        if picked := worker.frontier.pop(now):
            return self._send(worker, picked[0], now)
        ready_at = worker.frontier.next_at()
        if ready_at is not None:
            return max(ready_at, now + 1e-6)
        # Hosts of the dead may become free; in a real run hosts of the living too.
        return now + 1.0 if any(self._work.values()) else None

    def _renew(self, worker: _Worker, now: float) -> None:
        worker.beat = now + BEAT_SECONDS
        worker.claimed_until = now + CLAIM_SECONDS
        for host in worker.left:
            event = Claim(worker.name, worker.claimed_until)
            self._rows[host] = after(self._rows[host], event, now)

    def _claim(self, worker: _Worker, now: float) -> None:
        if not worker.frontier.ready_hosts(now):
            self.outcome.claims += self._take(worker, [*islice(self._free(now), 1)], now)

    def _free(self, now: float) -> Iterator[HostWork]:
        """Yield hosts that have work and are not claimed, in the order of a run's start."""
        while self._orphans and self._orphans[0][0] < now:
            host = heapq.heappop(self._orphans)[1]
            yield HostWork(host, self._work[host])
        yield from self._agenda

    def _take(self, worker: _Worker, hosts: list[HostWork], now: float) -> int:
        taken = 0
        for each in hosts:
            before = self._rows[each.host]
            row = after(before, Claim(worker.name, now + CLAIM_SECONDS), now)
            if row.holder != worker.name:
                heapq.heappush(self._orphans, (before.lease_until, each.host))
                continue
            self._rows[each.host] = row
            worker.claimed_until = max(worker.claimed_until, now + CLAIM_SECONDS)
            taken += 1
            needs_robots = each.host not in self._has_robots
            worker.left[each.host] = each.sources + needs_robots
            worker.frontier.wait(each.host, row.ended + SPACING if row.ended else now)
            for number in range(each.sources + needs_robots):
                rank = Rank.ROBOTS if needs_robots and not number else Rank.TARGET
                worker.frontier.push(each.host, each.host, rank)
        return taken

    def _send(self, worker: _Worker, host: str, now: float) -> float:
        event = Lease(SPACING, TIMEOUT, worker.name, claimed_until=worker.claimed_until)
        row = self._rows[host] = after(self._rows[host], event, now)
        # By the log of the web, and not by the ledger: the pause before this request.
        is_soon = now < self._ended.get(host, -SPACING) + SPACING - 1e-9
        self.outcome.too_soon += is_soon or row.lease_since != now
        self._ended[host] = now + worker.service
        self.outcome.requests += 1
        worker.under_way = host
        return now + worker.service

    def _end_exchange(self, worker: _Worker, now: float) -> None:
        host, worker.under_way = worker.under_way, ""
        worker.left[host] -= 1
        if host not in self._has_robots:
            self._has_robots.add(host)
        elif self._work[host]:
            self._work[host] -= 1
        else:
            self.outcome.again += 1
        goes_on = worker.claimed_until if worker.left[host] else 0.0
        exchange = Exchange(interval=SPACING, latency=worker.service)
        event = Release(exchange, _BACKOFF, worker.name, goes_on)
        self._rows[host] = after(self._rows[host], event, now)
        if not worker.left[host]:
            del worker.left[host]
            self._rows[host] = after(self._rows[host], GiveBack(worker.name), now)
        worker.frontier.record_service(host, worker.service, now)
        worker.frontier.wait(host, now + SPACING, SPACING)
        worker.frontier.free(host)
        self.outcome.seconds = now
