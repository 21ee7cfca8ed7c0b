"""What an operator may do to a host: lift its hold, and give it a pause (decision 31)."""

import pytest

from tests.helpers.records import BACKOFF, RECORD
from walsh_scrapy.policy.pacing import Exchange
from walsh_scrapy.state import StateError
from walsh_scrapy.state.hosts import Act

HOST = "a.example"
YEAR = 31_536_000.0


def exchange(ledger, **answer):
    ledger.take(HOST, 1.0, 10.0)
    return ledger.release(HOST, Exchange(**{"interval": 1.0} | answer), BACKOFF, RECORD)


def test_a_hold_is_lifted_once_and_the_reason_is_kept(opened, clock):
    crawl, operator = opened(), opened()
    exchange(crawl.ledger, status=429, retry_after="31536000")
    clock.at = 110.0
    assert operator.ledger.lift(HOST, "they wrote: go on") == YEAR - 10.0
    assert operator.ledger.lift(HOST, "once more") == 0.0
    assert operator.acts.last() == {
        HOST: Act(110.0, HOST, "release", YEAR - 10.0, "they wrote: go on")
    }
    assert crawl.ledger.take(HOST, 1.0, 10.0).wait == 0.0, "a crawl under way sees it too"
    assert crawl.ledger.find(HOST).times.strikes == 1, "the next hold is as long as it would be"


def test_a_hold_that_has_ended_is_not_lifted(state, clock):
    state.ledger.hold(HOST, 50.0)
    clock.at = 150.0
    assert state.ledger.lift(HOST, "for nothing") == 0.0
    assert state.acts.last() == {}


def test_nothing_shortens_a_pause_but_the_operator(opened, clock):
    crawl, operator = opened(), opened()
    exchange(crawl.ledger)
    assert operator.ledger.pause(HOST, 3600.0, "").wait == 3600.0
    assert crawl.ledger.take(HOST, 1.0, 10.0).wait > 1.0
    clock.at = 3700.0
    assert exchange(crawl.ledger).wait == 3600.0, "the end of an exchange leaves it"
    assert crawl.ledger.widen(HOST, 2.0).wait == 3600.0
    assert crawl.ledger.intervals(above=1.0) == {HOST: 3600.0}
    assert [*crawl.ledger.waiting()] == [HOST]
    operator.ledger.pause(HOST, 7200.0, "slower still")
    operator.ledger.pause(HOST, 0.0, "the relaunch is over")
    clock.at = 3702.0
    assert crawl.ledger.find(HOST).wait <= 0.0
    assert operator.acts.last()[HOST].reason == "the relaunch is over"


def test_a_host_that_was_never_asked_may_have_a_pause_and_is_asked_at_once(state):
    state.ledger.pause(HOST, 60.0, "")
    assert state.ledger.take(HOST, 1.0, 10.0).wait == 0.0, "R4: the first request is never delayed"
    assert state.ledger.release(HOST, Exchange(interval=1.0), BACKOFF, RECORD).wait == 60.0


def test_those_that_are_marked_are_found(state, clock):
    exchange(state.ledger, unreachable=True, status=0)
    state.ledger.pause("paused.example", 60.0, "")
    state.ledger.hold("held.example", 500.0)
    state.ledger.hold("free.example", 1.0)
    clock.at = 110.0
    found = {host: snapshot.reason for host, snapshot in state.ledger.marked().items()}
    assert found == {HOST: None, "paused.example": None, "held.example": "hold"}


def test_a_unit_that_would_not_see_a_pause_is_refused(opened, state):
    state.ledger.pace_by("host")
    state.ledger.pause("www.a.example", 60.0, "")
    with pytest.raises(StateError, match=r"scrapy hosts pause www\.a\.example 0"):
        opened().ledger.pace_by("domain")
    state.ledger.pause("www.a.example", 0.0, "")
    opened().ledger.pace_by("domain")
