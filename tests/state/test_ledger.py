"""R4, R5: no order of events lets a host be asked twice at once, too soon, or during a hold.

Three processes share one ledger; they take hosts and give them back, die with a request out, and
the clock jumps back. The model knows the true time, which none of them does. A process that waits
as long as it is told gets its host in the end.
"""

import contextlib
import math
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.helpers.records import BACKOFF, RECORD
from walsh_scrapy.policy.claims import CLAIM_SECONDS
from walsh_scrapy.policy.hosttimes import LEASE_MARGIN
from walsh_scrapy.policy.pacing import Exchange
from walsh_scrapy.state import State

TIMEOUT = 20.0
LONGEST_WAIT = 100.0 + TIMEOUT + LEASE_MARGIN
#: What a float of epoch seconds can tell apart, a few times over.
TINY = 1e-5
HOSTS = ("a.example", "b.example")

processes = st.sampled_from([0, 1, 2])
hosts = st.sampled_from(HOSTS)
holds = st.sampled_from([0.0, 2.0, 60.0])
seconds = st.sampled_from([0.0, 0.5, 1.0, 3.0, 20.0, 60.0])


class LedgerMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp())
        self.stack = contextlib.ExitStack()
        self.stack.callback(shutil.rmtree, self.folder)
        self.true, self.offset = 1_000_000.0, 0.0
        self.states = [self._open() for _ in range(3)]
        self.out = {}  # host -> (process, true time of its start): what is on the wire now
        self.ended = {}  # host -> (true time of the last end, spacing asked for from then on)
        self.rests_until = {}  # host -> true time of the end of its hold
        self.claimed = {}  # host -> (process, true time until which nobody else may ask)

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
    @rule(back=st.sampled_from([0.002, 0.5, 1.0, 30.0, 3600.0]))
    def the_clock_jumps_back(self, back):
        self.offset -= back

    @rule(
        process=processes,
        host=hosts,
        before=seconds,
        spacing=st.sampled_from([1.0, 10.0]),
        length=st.sampled_from([0.1, 5.0]),
        interval=st.sampled_from([1.0, 5.0]),
        hold=holds,
    )
    def a_whole_visit(self, process, host, before, spacing, length, interval, hold):
        """The usual course of things, so that the odd ones have something to meet."""
        self.time_goes_on(before)
        self._ask(process, host, spacing)
        self.time_goes_on(length)
        if self.out.get(host, (None,))[0] == process:
            self._end(process, host, self.true, interval, hold)

    @rule(process=processes, host=hosts, spacing=st.sampled_from([1.0, 2.0, 10.0, 100.0]))
    def a_process_wants_a_host(self, process, host, spacing):
        self._ask(process, host, spacing)

    @rule(process=processes, host=hosts)
    def a_process_waits_until_it_gets_a_host(self, process, host):
        begin = self.true
        while wait := self._ask(process, host, 1.0):
            self.time_goes_on(wait)
            assert self.true - begin <= 2 * LONGEST_WAIT

    def _ask(self, process, host, spacing):
        """Take a host, and return how long to wait if that cannot be."""
        wait = self.states[process].ledger.take(host, spacing, TIMEOUT).wait
        if wait:
            assert 0.0 < wait <= LONGEST_WAIT
            return wait
        assert host not in self.out, "two requests to a host at once"
        claimant, until = self.claimed.get(host, (process, 0.0))
        assert claimant == process or self.true >= until - TINY, "it is claimed by another"
        if host in self.ended:
            end, interval = self.ended[host]
            assert self.true - end >= max(interval, spacing) - TINY, "too soon after the last"
        assert self.true >= self.rests_until.get(host, 0.0) - TINY, "during a hold"
        self.out[host] = (process, self.true)
        return 0.0

    @rule(
        host=hosts,
        interval=st.sampled_from([1.0, 5.0, 50.0]),
        hold=holds,
        later=st.booleans(),
    )
    def an_answer_arrives(self, host, interval, hold, later):
        if host in self.out:
            self._end(self.out[host][0], host, self.true, interval, hold, later=later)

    @rule(process=processes)
    def the_ends_that_were_left_for_later_are_written(self, process):
        self.states[process].ledger.write_ends()

    def _end(self, process, host, end, interval, hold=0.0, *, later=False):
        del self.out[host]
        true, self.true = self.true, end
        ledger = self.states[process].ledger
        ledger.release(host, Exchange(interval=interval), BACKOFF, RECORD, later=later)
        if hold:
            ledger.hold(host, hold)
        self.true = true
        self.ended[host] = (end, interval)
        self.rests_until[host] = max(self.rests_until.get(host, 0.0), end + hold)

    @rule(process=processes, names=st.sets(hosts, min_size=1))
    def a_process_claims_hosts(self, process, names):
        for host in self.states[process].ledger.claim(sorted(names), math.inf).ours:
            assert self.out.get(host, (process,))[0] == process, "it is asked by another"
            claimant, until = self.claimed.get(host, (process, 0.0))
            assert claimant == process or self.true >= until - TINY, "it is claimed by another"
            self.claimed[host] = (process, self.true + CLAIM_SECONDS)

    @rule(process=processes)
    def a_process_renews_its_claims(self, process):
        ledger = self.states[process].ledger
        assert ledger.renew(None, self.wall) >= 1
        for host, (claimant, _) in list(self.claimed.items()):
            if claimant == process and host in ledger._claimed():
                self.claimed[host] = (process, self.true + CLAIM_SECONDS)

    @rule(process=processes, host=hosts, put_off=st.booleans())
    def a_process_gives_a_host_up(self, process, host, put_off):
        self.states[process].ledger.unclaim([host], put_off=put_off)
        self._is_given_up(process, host)

    @rule(process=processes, host=hosts)
    def the_exchange_of_a_process_is_its_last_there(self, process, host):
        self.states[process].ledger.finish(host)
        self._is_given_up(process, host)

    def _is_given_up(self, process, host):
        if self.claimed.get(host, (None,))[0] == process:
            del self.claimed[host]

    @rule(process=processes, host=hosts)
    def a_claim_keeps_its_process_from_nothing(self, process, host):
        is_free = host not in self.out and self.true >= self.rests_until.get(host, 0.0)
        end, interval = self.ended.get(host, (-math.inf, 0.0))
        claimant, until = self.claimed.get(host, (None, 0.0))
        if claimant == process and self.true < until and is_free:
            is_spaced = self.true - end >= max(interval, 1.0) + TINY
            assert not (self._ask(process, host, 1.0) and is_spaced and self.offset == 0.0)

    @rule(process=processes)
    def a_process_dies_with_what_it_has_out(self, process):
        for host, (owner, _) in list(self.out.items()):
            if owner == process:
                del self.out[host]
                self.ended[host] = (self.true, 0.0)
        for host, held in self.states[process].ledger._held.items():
            if held.end:  # nobody will know what was asked for
                self.ended[host] = (self.ended[host][0], 0.0)
        self.states[process] = self._open()

    @invariant()
    def a_host_nobody_holds_is_free_in_bounded_time(self):
        if not hasattr(self, "states"):
            return
        for host in HOSTS:
            standing = self.states[0].ledger.find(host)
            assert standing.wait <= LONGEST_WAIT


LedgerMachine.TestCase.settings = settings(max_examples=75, stateful_step_count=50)
TestLedger = pytest.mark.long(LedgerMachine.TestCase)
