"""R4 and R5 when the clock is set back: pauses are judged by true time.

Several processes share one state and one wall clock, which jumps back now and then. They wait by
a clock that does not, as the scheduler does; the simulation knows the true time and judges by it.
"""

import contextlib
import heapq
from dataclasses import dataclass
from itertools import count
from random import Random

import pytest

from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.hosttimes import LEASE_MARGIN
from walsh_scrapy.policy.pacing import Exchange
from walsh_scrapy.state import State
from walsh_scrapy.state.requests import RequestRecord

TIMEOUT = 20.0
INTERVALS = (1.0, 5.0, 30.0)
HOLDS = (0.0, 0.0, 0.0, 2.0, 60.0)
JUMPS = (0.002, 0.5, 30.0, 3600.0)
LONGEST_WAIT = max(*INTERVALS, *HOLDS) + TIMEOUT + LEASE_MARGIN
#: What a float of epoch seconds can tell apart, a few times over.
TINY = 1e-5
RECORD = RequestRecord(0.0, "", "", "", 200, 0.0)
BACKOFF = Backoff(2.0, 300.0, Random(1))


@dataclass
class Server:
    """What a host has seen, by true time."""

    free_at: float = 0.0  #: when the last request had ended, with the spacing asked for then
    rests_until: float = 0.0  #: its Retry-After
    is_busy: bool = False
    served: int = 0

    def check(self, now):
        assert not self.is_busy, "two requests at once"
        assert now >= self.free_at - TINY, f"{self.free_at - now:.6f} s too soon"
        assert now >= self.rests_until - TINY, f"{self.rests_until - now:.6f} s into a hold"


class Simulation:
    def __init__(self, open_state, random, *, jumps, processes=5, hosts=3):
        self._open_state = open_state
        self._random = random
        self._jumps = jumps  #: how likely one is before an event
        self._true, self._offset = 0.0, 1_000_000.0
        self._order = count()
        self._events = []
        self._states = [open_state(self.wall) for _ in range(processes)]
        self.servers = {f"h{number}.example": Server() for number in range(hosts)}
        for process in range(processes):
            self._at(random.uniform(0.0, 1.0), self._ask, process)

    def wall(self):
        return self._true + self._offset

    def run(self, steps):
        for _ in range(steps):
            self._true, _, act, arguments = heapq.heappop(self._events)
            if self._random.random() < self._jumps:
                self._offset -= self._random.choice(JUMPS)
            act(*arguments)

    def _at(self, moment, act, *arguments):
        heapq.heappush(self._events, (moment, next(self._order), act, arguments))

    def _ask(self, process, host=None):
        host = host or self._random.choice(sorted(self.servers))
        if wait := self._states[process].ledger.take(host, 1.0, TIMEOUT).wait:
            assert 0.0 < wait <= LONGEST_WAIT
            self._at(self._true + wait, self._ask, process, host)
            return
        server = self.servers[host]
        server.check(self._true)
        server.is_busy = True
        length = self._random.choice((0.01, 0.5, 3.0, TIMEOUT))
        end = self._die if self._random.random() < 0.1 else self._end
        self._at(self._true + self._random.random() * length, end, process, host)

    def _end(self, process, host):
        server, ledger = self.servers[host], self._states[process].ledger
        interval, hold = self._random.choice(INTERVALS), self._random.choice(HOLDS)
        ledger.release(host, Exchange(interval=interval), BACKOFF, RECORD)
        if hold:
            ledger.hold(host, hold)
        server.is_busy, server.served = False, server.served + 1
        server.free_at = self._true + interval
        server.rests_until = max(server.rests_until, self._true + hold)
        self._at(self._true + self._random.random(), self._ask, process)

    def _die(self, process, host):
        """The process ends with its request out, and another is started in its place."""
        server = self.servers[host]
        server.is_busy, server.free_at = False, max(server.free_at, self._true + 1.0)
        self._states[process] = self._open_state(self.wall)
        self._at(self._true + 1.0, self._ask, process)


@pytest.fixture
def open_state(tmp_path):
    with contextlib.ExitStack() as stack:

        def once(clock):
            state = State(f"sqlite:///{tmp_path / 'state.sqlite3'}", clock)
            return stack.enter_context(contextlib.closing(state))

        yield once


@pytest.mark.parametrize("seed", range(4))
def test_no_host_is_asked_too_soon_or_forgotten_after_the_clock_was_set_back(open_state, seed):
    simulation = Simulation(open_state, Random(seed), jumps=0.02)
    simulation.run(steps=6000)
    assert all(server.served > 50 for server in simulation.servers.values())
