"""R4: no order of events lets a host be asked twice at once, or too soon.

Two processes share one ledger; they take hosts and give them back, die with a request out, and
the clock jumps back. The model knows the true time, which none of them does.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.hosttimes import LEASE_MARGIN
from walsh_scrapy.policy.pacing import Exchange
from walsh_scrapy.state import State
from walsh_scrapy.state.requests import RequestRecord

TIMEOUT = 20.0
HOSTS = ("a.example", "b.example")
RECORD = RequestRecord(0.0, "", "", "", 200, 0.0)
BACKOFF = Backoff(2.0, 300.0, Random(1))

processes = st.sampled_from([0, 1])
hosts = st.sampled_from(HOSTS)
seconds = st.sampled_from([0.0, 0.5, 1.0, 3.0, 20.0, 60.0])


class LedgerMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp())
        self.stack = contextlib.ExitStack()
        self.stack.callback(shutil.rmtree, self.folder)
        self.true, self.offset = 1_000_000.0, 0.0
        self.states = [self._open(), self._open()]
        self.out = {}  # host -> (process, true time of its start): what is on the wire now
        self.ended = {}  # host -> (true time of the last end, spacing asked for from then on)

    def _open(self):
        return self.stack.enter_context(
            contextlib.closing(
                State(f"sqlite:///{self.folder / 'state.sqlite3'}", lambda: self.wall)
            )
        )

    def teardown(self):
        if hasattr(self, "stack"):
            self.stack.close()

    @property
    def wall(self):
        return self.true + self.offset

    @rule(length=seconds)
    def time_goes_on(self, length):
        # No exchange outlasts its timeout: what is out by then has ended, one way or another.
        for host, (process, start) in list(self.out.items()):
            if self.true + length > start + TIMEOUT:
                self._end(process, host, min(self.true, start + TIMEOUT), interval=1.0)
        self.true += length

    @precondition(lambda self: self.offset > -4000.0)
    @rule(back=st.sampled_from([1.0, 30.0, 3600.0]))
    def the_clock_jumps_back(self, back):
        self.offset -= back

    @rule(
        process=processes,
        host=hosts,
        before=seconds,
        spacing=st.sampled_from([1.0, 10.0]),
        length=st.sampled_from([0.1, 5.0]),
        interval=st.sampled_from([1.0, 5.0]),
    )
    def a_whole_visit(self, process, host, before, spacing, length, interval):
        """The usual course of things, so that the odd ones have something to meet."""
        self.time_goes_on(before)
        self.a_process_wants_a_host(process, host, spacing)
        self.time_goes_on(length)
        if self.out.get(host, (None,))[0] == process:
            self._end(process, host, self.true, interval)

    @rule(process=processes, host=hosts, spacing=st.sampled_from([1.0, 2.0, 10.0, 100.0]))
    def a_process_wants_a_host(self, process, host, spacing):
        wait = self.states[process].ledger.take(host, spacing, TIMEOUT).wait
        if wait:
            asked = max(spacing, self.ended.get(host, (0.0, 0.0))[1], 100.0)
            assert 0.0 < wait <= asked + TIMEOUT + LEASE_MARGIN
            return
        assert host not in self.out, "two requests to a host at once"
        if host in self.ended:
            end, interval = self.ended[host]
            assert self.true - end >= max(interval, spacing) - 1e-6, "too soon after the last"
        self.out[host] = (process, self.true)

    @rule(host=hosts, interval=st.sampled_from([1.0, 5.0, 50.0]))
    def an_answer_arrives(self, host, interval):
        if host in self.out:
            self._end(self.out[host][0], host, self.true, interval)

    def _end(self, process, host, end, interval):
        del self.out[host]
        true, self.true = self.true, end
        self.states[process].ledger.release(host, Exchange(interval=interval), BACKOFF, RECORD)
        self.true = true
        self.ended[host] = (end, interval)

    @rule(process=processes)
    def a_process_dies_with_what_it_has_out(self, process):
        for host, (owner, _) in list(self.out.items()):
            if owner == process:
                del self.out[host]
                self.ended[host] = (self.true, 0.0)
        self.states[process] = self._open()

    @invariant()
    def a_host_nobody_holds_is_free_in_bounded_time(self):
        if not hasattr(self, "states"):
            return
        for host in HOSTS:
            standing = self.states[0].ledger.find(host)
            assert standing.wait <= 100.0 + TIMEOUT + LEASE_MARGIN


LedgerMachine.TestCase.settings = settings(max_examples=75, stateful_step_count=50)
TestLedger = LedgerMachine.TestCase
