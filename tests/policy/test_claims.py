"""What a claim does to the ledger's row of a host (decision 41)."""

from random import Random

import pytest

from benchmarks.simulatedfleet import Fleet, Simulation, hosts_of
from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.hosttimes import LEASE_MARGIN, HostTimes
from walsh_scrapy.policy.pacing import Claim, Exchange, GiveBack, Lease, Release, after

BACKOFF = Backoff(2.0, 300.0, Random(1))
DONE = Exchange(interval=3.0, latency=0.5)
KNOWN = HostTimes(ended=50.0, interval=2.0)
CLAIMED = after(KNOWN, Claim("us", 130.0), 100.0)


def test_a_claim_keeps_others_away_and_its_holder_from_nothing():
    assert CLAIMED.lease_until == 130.0 + LEASE_MARGIN
    assert after(CLAIMED, Lease(1.0, 30.0, "them"), 101.0) == CLAIMED
    assert after(CLAIMED, Claim("them", 140.0), 101.0) == CLAIMED
    sent = after(CLAIMED, Lease(1.0, 10.0, "us", claimed_until=130.0), 101.0)
    assert (sent.lease_since, sent.lease_until) == (101.0, 130.0 + LEASE_MARGIN)
    long = after(CLAIMED, Lease(1.0, 60.0, "us", claimed_until=130.0), 101.0)
    assert long.lease_until == 161.0 + LEASE_MARGIN


def test_the_spacing_counts_within_a_claim():
    sent = after(CLAIMED, Lease(1.0, 10.0, "us", claimed_until=130.0), 101.0)
    ended = after(sent, Release(DONE, BACKOFF, "us", claimed_until=130.0), 102.0)
    assert (ended.ended, ended.holder, ended.lease_until) == (102.0, "us", 130.0 + LEASE_MARGIN)
    again = Lease(1.0, 10.0, "us", claimed_until=130.0)
    assert after(ended, again, 104.9) == ended
    assert after(ended, again, 105.0).lease_since == 105.0


def test_a_claim_ends_with_the_last_exchange_or_by_itself():
    sent = after(CLAIMED, Lease(1.0, 10.0, "us", claimed_until=130.0), 101.0)
    assert after(sent, Release(DONE, BACKOFF, "us"), 102.0).holder == ""
    assert after(sent, GiveBack("us"), 102.0) == KNOWN
    kept = after(sent, GiveBack("us", claimed_until=130.0), 102.0)
    assert (kept.ended, kept.holder) == (KNOWN.ended, "us")
    assert after(CLAIMED, GiveBack("them"), 102.0) == CLAIMED
    assert after(CLAIMED, GiveBack("us"), 102.0) == KNOWN


def test_a_claim_that_ran_out_counts_as_an_exchange_that_ended_then():
    late = 130.0 + LEASE_MARGIN
    assert after(CLAIMED, Claim("them", 170.0), late - 0.1) == CLAIMED
    theirs = after(CLAIMED, Claim("them", 170.0), late)
    assert (theirs.holder, theirs.ended, theirs.interval) == ("them", 130.0, 2.0)


def test_a_claim_that_was_lost_does_not_come_back_with_an_exchange():
    sent = after(CLAIMED, Lease(1.0, 10.0, "us", claimed_until=130.0), 101.0)
    theirs = after(sent, Claim("them", 170.0), 140.0)
    assert after(theirs, Lease(1.0, 10.0, "us", claimed_until=190.0), 150.0) == theirs
    back = after(theirs, Release(DONE, BACKOFF, "us", claimed_until=190.0), 150.0)
    assert (back.holder, back.lease_until, back.ended) == ("them", theirs.lease_until, 150.0)
    assert after(theirs, GiveBack("us", claimed_until=190.0), 150.0) == theirs
    free = after(theirs, GiveBack("them"), 160.0)
    leased = after(free, Lease(1.0, 10.0, "us", claimed_until=290.0), 180.0)
    assert leased.lease_until == 190.0 + LEASE_MARGIN
    late = after(free, Release(DONE, BACKOFF, "us", claimed_until=190.0), 180.0)
    assert late.holder == ""


def test_a_claim_is_renewed_while_a_longer_lease_goes_on():
    sent = after(CLAIMED, Lease(1.0, 60.0, "us", claimed_until=130.0), 101.0)
    renewed = after(sent, Claim("us", 150.0), 120.0)
    assert renewed.lease_until == sent.lease_until
    assert after(sent, Claim("us", 170.0), 140.0).lease_until == 170.0 + LEASE_MARGIN


def test_what_a_worker_put_off_is_claimed_only_by_those_that_begin_later():
    put_off = after(CLAIMED, GiveBack("us", put_off=True), 110.0)
    assert after(put_off, Claim("them", 150.0, began=100.0), 120.0) == put_off
    assert after(put_off, Claim("them", 150.0, began=115.0), 120.0).holder == "them"
    assert put_off.with_clock_at(90.0).put_off_at == 0.0


def test_what_is_put_off_may_be_said_with_the_end_of_an_exchange_by_the_holder_alone():
    sent = after(CLAIMED, Lease(1.0, 10.0, "us", claimed_until=130.0), 101.0)
    for end in (Release(DONE, BACKOFF, "us", put_off=True), GiveBack("us", put_off=True)):
        ended = after(sent, end, 110.0)
        assert (ended.holder, ended.put_off_at) == ("", 110.0)
        theirs = after(sent, Claim("them", 170.0), 140.0)
        assert after(theirs, end, 150.0).put_off_at == 0.0


@pytest.mark.parametrize("fleet", [{}, {"slow": 0.2}, {"dying": 0.3}])
def test_a_fleet_asks_for_everything_once_and_for_nothing_too_soon(fleet):
    found = Simulation(hosts_of(1500, 60), Fleet(20, **fleet)).run()
    lost = found.requests - 1500 if "dying" in fleet else 0
    assert (found.too_soon, found.again, found.missing) == (0, 0, 0)
    assert 0 <= lost <= 60
