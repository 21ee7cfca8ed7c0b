"""Hosts as commands and starting crawls read them, and what an operator does (decision 31)."""

import contextlib
from dataclasses import replace

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from tests.helpers.records import (
    RECORD,
    SOURCE,
    THEM,
    US,
    begin,
    entry_of,
    exchange,
)
from walsh_scrapy.policy.pacing import MARGIN, HostTimes
from walsh_scrapy.state import State, StateError, hosts
from walsh_scrapy.state.hosts import Begun
from walsh_scrapy.state.log import forget_begin, log_begin, log_end
from walsh_scrapy.state.tables import requests

DAY = 86_400.0


def test_a_host_is_owned_by_one_worker_and_each_reads_why_it_waits(opened, clock):
    ours, theirs = opened(), opened()
    assert theirs.hosts.find("a.example").times == HostTimes()
    assert isinstance(begin(ours), Begun)
    assert begin(theirs, worker=THEM) is None, "it is ours"
    found = theirs.hosts.find("a.example")
    assert (found.times.owner, found.reason, found.wait) == (US.id, "in flight", 60.0 + MARGIN)
    ours.write(lambda connection: hosts.withdraw(connection, "a.example", US))
    assert theirs.hosts.find("a.example").reason is None
    exchange(ours, delay=5.0)
    found = begin(theirs, worker=THEM)
    assert (found.reason, found.wait) == ("delay", 5.0)
    theirs.write(lambda connection: hosts.let_go(connection, "a.example", THEM))
    clock.at += 5.0
    exchange(ours, status=503, retry_after="60")
    found = theirs.hosts.find("a.example")
    assert (found.reason, found.hold, found.times.refused) == ("hold", 60.0, 503)


def test_an_unreachable_host_is_known_until_it_answers(state, clock):
    for host in ("a.example", "b.example"):
        exchange(state, host, status=0, unreachable=host == "a.example")
    assert state.hosts.unreachable() == {"a.example"}
    assert state.hosts.find("a.example").hold == 0.0, "after the first time it only comes late"
    clock.at += 100.0
    exchange(state, status=0, unreachable=True)
    assert state.hosts.find("a.example").hold == 2 * DAY
    clock.at += 2 * DAY
    exchange(state, status=500)
    assert state.hosts.unreachable() == frozenset()


def test_a_request_is_logged_with_its_begin_and_has_no_end_before_its_end(state, rows):
    log = select(*requests.c["sent_at", "waited", "seconds", "status", "hold"])
    sent = replace(RECORD, status=None, seconds=None)
    begun = state.write(lambda connection: log_begin(connection, sent))
    assert rows(log) == [(100.0, 0.0, None, None, 0.0)]
    ended = replace(RECORD, sent_at=101.5, seconds=2.5, status=429, hold=30.0)
    state.write(lambda connection: log_end(connection, ended, begun))
    whole = (100.0, 1.5, 2.5, 429, 30.0)
    assert rows(log) == [whole]
    again = state.write(lambda connection: log_begin(connection, replace(sent, sent_at=200.0)))
    assert rows(log) == [whole, (200.0, 0.0, None, None, 0.0)]
    state.write(lambda connection: forget_begin(connection, again))
    assert rows(log) == [whole], "it was never sent"


def test_an_outcome_is_written_with_the_end_of_its_exchange_or_neither_is(state, rows):
    begun = begin(state)
    times = replace(begun.times, ended=begun.now, delay=9.0)

    def end(found):
        outcome = state.sources.outcome(None, SOURCE, found, host="a.example")

        def write(connection):
            hosts.end(connection, "a.example", US, begun.times, times, 0.0)
            return outcome(connection)

        return state.write(write)

    with pytest.raises(IntegrityError):
        end([entry_of("http://nowhere.example/")])
    assert state.hosts.find("a.example").reason == "in flight"
    assert end([entry_of(SOURCE.url)]) == {"k"}
    assert state.hosts.find("a.example").reason == "delay"


def test_pace_by_may_change_once_no_host_waits(opened, clock):
    state = opened()
    state.hosts.pace_by("host")
    state.hosts.pace_by("host")
    exchange(state, "www.a.example", status=429, retry_after="9")
    refused = r"paced by host, and 1 of its hosts wait.*set WALSH_PACE_BY = 'host'"
    with pytest.raises(StateError, match=refused):
        opened().hosts.pace_by("domain")
    state.hosts.delay("www.a.example", 5.0, "")
    with pytest.raises(StateError, match=r"www\.a\.example has a delay of the operator's"):
        opened().hosts.pace_by("domain")
    state.hosts.delay("www.a.example", 0.0, "")
    clock.at += 9.0
    opened().hosts.pace_by("domain")
    state.hosts.pace_by("host")
    with contextlib.closing(State(str(state._database), clock.now)) as again:
        again.hosts.pace_by("host")
