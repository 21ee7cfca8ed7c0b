"""Who owns a host, and when it may be requested: the statements of the state, one by one."""

import contextlib
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete as deleted
from sqlalchemy import insert, select

from tests.helpers import records
from tests.helpers.engine import open_engine
from tests.helpers.records import RECORD, SOURCE, entry_of
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.pacing import MARGIN, MAX_EXCHANGE_SECONDS, Exchange, Hold, HostTimes
from walsh_scrapy.state import State, StateError
from walsh_scrapy.state.engine import RefusedValues
from walsh_scrapy.state.evidence import forget_begin, log_begin, log_end, log_no_answer
from walsh_scrapy.state.hoststore import HostStore, release_hold, set_operator_delay
from walsh_scrapy.state.ownership import (
    RequestLimits,
    Worker,
    beat,
    begin,
    end,
    find,
    leave,
    lengthen_waits,
    let_go,
    lock_if_owned,
    owns,
    take,
    take_back,
    withdraw,
)
from walsh_scrapy.state.tables import hosts, overrides, requests, workers

TIMEOUT = 30.0
BACKOFF = Backoff(2.0, 300.0, Random(1))

HOST = "a.example"
US, THEM = Worker("us", 1_699_999_000.0), Worker("them", 1_699_999_500.0)
ASK = RequestLimits(1.0, TIMEOUT)


def run(engine, function, *arguments, **options):
    """Run a function of the protocol in a transaction."""
    with engine.begin() as connection:
        return function(connection, *arguments, **options)


def read_overrides(engine):
    """The overrides without their numbers, the first one first."""
    with engine.begin() as connection:
        rows = connection.execute(select(overrides).order_by(overrides.c.id))
        return [tuple(row)[1:] for row in rows]


def exchange(engine, now, worker=US, seconds=1.0, *, goes_on=False, **answer):
    """Take a host, send it a request, and end that."""
    run(engine, take, HOST, worker)
    begun = run(engine, begin, HOST, worker, ASK).host
    now[0] += seconds
    over = Exchange(**{"delay": 1.0, "latency": seconds} | answer)
    times = begun.times.after(over, BACKOFF, now[0])
    is_ours = run(engine, end, HOST, worker, begun.times, times, 0.0)
    return is_ours and (goes_on or run(engine, let_go, HOST, worker))


class Plain:
    """A database without waits and repetitions."""

    def __init__(self, engine):
        self._engine = engine

    def read(self, work):
        return run(self._engine, work)

    def all(self, query, **values):
        return self.read(lambda connection: connection.execute(query, values).all())


@pytest.fixture
def store(engine):
    return HostStore(Plain(engine))


rows = st.fixed_dictionaries(
    {
        "request_ended_at": st.none() | st.sampled_from([900.0, 990.0, 1000.0]),
        "in_flight_until": st.sampled_from([0.0, 950.0, 1000.0, 1010.0]),
        "delay": st.sampled_from([0.0, 1.0, 10.0, 1e6]),
        "hold_since": st.sampled_from([0.0, 900.0]),
        "hold_until": st.sampled_from([0.0, 1000.0, 1005.0, 1e9]),
        "operator_delay": st.sampled_from([0.0, 10.0, 100.0]),
    }
)


@pytest.mark.empty
def test_sql_and_python_agree_on_when_a_host_is_ready(engine, now):
    """Two that disagree would hand a request out again and again."""

    @given(rows, st.sampled_from([0.0, 10.0, 1e6]), st.sampled_from([5.0, 100.0, math.inf]))
    @settings(max_examples=150, derandomize=True, deadline=None)
    def agree(row, requested_delay, max_wait):
        now[0] = 1000.0
        with engine.begin() as connection:
            connection.execute(deleted(hosts))
            connection.execute(insert(hosts), {"host": HOST, "owner": "us", **row})
            before = find(connection, HOST).times
            permission = begin(
                connection, HOST, US, RequestLimits(requested_delay, TIMEOUT, max_wait)
            )
        is_ready = before.ready_at(requested_delay, max_wait) <= 1000.0
        assert permission.status == ("ready" if is_ready else "wait")

    agree()


@pytest.mark.empty
def test_a_new_host_is_taken_and_requested_at_once(engine, now):
    run(engine, beat, US)
    first = run(engine, take, HOST, US)
    assert (first.status, first.host.times) == ("ready", HostTimes(owner="us"))
    assert run(engine, take, HOST, US) == first, "a repeated call after a lost connection"
    assert run(engine, take, HOST, THEM).status == "wait"
    assert run(engine, begin, HOST, THEM, ASK).status == "lost"
    begun = run(engine, begin, HOST, US, ASK)
    until = begun.host.times.in_flight_until
    assert until == begun.host.now + ASK.allowed == now[0] + TIMEOUT + MARGIN
    waits = run(engine, begin, HOST, US, ASK)
    assert (waits.status, waits.host.reason) == ("wait", "in flight")
    assert run(engine, withdraw, HOST, US)
    assert run(engine, begin, HOST, US, ASK) == begun


@pytest.mark.empty
def test_an_exchange_lasts_an_hour_at_most(engine, now):
    run(engine, take, HOST, US)
    ask = RequestLimits(1.0, 1e9)
    begun = run(engine, begin, HOST, US, ask).host
    assert begun.times.in_flight_until - now[0] == ask.allowed == MAX_EXCHANGE_SECONDS


@pytest.mark.empty
def test_the_row_of_an_exchange_that_ended_a_while_ago(engine, now):
    run(engine, take, HOST, US)
    begun = run(engine, begin, HOST, US, ASK).host
    now[0] += 10.0
    over = Exchange(delay=5.0, status=429, retry_after=60.0)
    times = begun.times.after(over, BACKOFF, now[0] - 4.0)
    assert run(engine, end, HOST, US, begun.times, times, 4.0)
    assert run(engine, find, HOST).times == times
    assert run(engine, find, HOST).reason == "hold"


@pytest.mark.empty
def test_former_owner_can_only_lengthen_waits(engine, now):
    run(engine, take, HOST, US)
    begun = run(engine, begin, HOST, US, ASK).host
    now[0] += TIMEOUT + MARGIN
    run(engine, take, HOST, THEM)  # nobody has beaten: the owner is unknown
    theirs = run(engine, begin, HOST, THEM, RequestLimits(0.0, TIMEOUT)).host
    over = Exchange(delay=60.0, status=429, retry_after=600.0)
    times = begun.times.after(over, BACKOFF, now[0])
    assert not run(engine, end, HOST, US, begun.times, times, 0.0)
    caution = {"delay": 60.0, "hold_since": now[0], "hold_until": now[0] + 600.0}
    caution |= {"hold_by": "retry-after", "hold_status": 429}
    assert run(engine, find, HOST).times == replace(theirs.times, **caution)
    for function in (withdraw, let_go, lock_if_owned, owns):
        assert not run(engine, function, HOST, US)
    assert run(engine, find, HOST).times.in_flight_until == theirs.times.in_flight_until
    times = theirs.times.after(Exchange(delay=1.0), BACKOFF, now[0])
    run(engine, end, HOST, THEM, theirs.times, times, 0.0)
    assert run(engine, find, HOST).times.delay == 60.0, "the owner did not know it"


@pytest.mark.empty
def test_former_owner_does_not_shorten_a_delay(engine, now):
    run(engine, take, HOST, US)
    begun = run(engine, begin, HOST, US, ASK).host
    now[0] += TIMEOUT + MARGIN
    exchange(engine, now, THEM, delay=60.0)
    times = begun.times.after(Exchange(delay=1.0), BACKOFF, now[0])
    assert not run(engine, end, HOST, US, begun.times, times, 0.0)
    assert run(engine, find, HOST).times.delay == 60.0


@pytest.mark.empty
def test_only_a_hold_that_the_answer_asks_for_is_written(engine, now):
    exchange(engine, now, status=429, retry_after=600.0, goes_on=True)
    for_list = RequestLimits(1.0, TIMEOUT, max_wait=50.0)
    now[0] += 50.0
    begun = run(engine, begin, HOST, US, for_list).host
    run(engine, release_hold, HOST, "they wrote: go on")
    times = begun.times.after(Exchange(delay=1.0), BACKOFF, now[0])
    run(engine, end, HOST, US, begun.times, times, 0.0)
    assert run(engine, find, HOST).hold == 0.0


@pytest.mark.empty
def test_a_host_that_is_given_up_is_taken_by_a_later_run_only(engine, now):
    exchange(engine, now, goes_on=True)
    assert run(engine, let_go, HOST, US, deferred=True)
    assert run(engine, find, HOST).times.deferred_at == now[0]
    assert run(engine, take, HOST, US).status == "deferred"
    assert run(engine, take, HOST, THEM).status == "deferred"
    assert run(engine, take, HOST, Worker("later", now[0] + 1.0)).status == "ready"


@pytest.mark.empty
def test_caution_grows_whoever_owns_the_host(engine, now):
    run(engine, take, HOST, US)
    run(engine, lengthen_waits, HOST, delay=5.0, hold=Hold(60.0, "visit-time"))
    run(engine, lengthen_waits, HOST, delay=2.0, hold=Hold(30.0))
    times = run(engine, find, HOST).times
    assert (times.owner, times.delay, times.request_ended_at) == ("us", 5.0, None)
    assert (times.hold_until, times.hold_by) == (now[0] + 60.0, "visit-time")


@pytest.mark.empty
def test_workers_live_while_they_beat(engine, now, store):
    assert run(engine, beat, US) == (now[0], 0)
    assert run(engine, beat, THEM) == (now[0], 1)
    run(engine, take, HOST, US)
    assert run(engine, owns, HOST, US)
    now[0] += 45.0
    assert not run(engine, owns, HOST, US)
    assert run(engine, take, HOST, THEM).status == "wait", "a new worker may not take over a host"
    run(engine, leave, US)
    assert run(engine, take, HOST, THEM).status == "ready"
    now[0] += 90_000.0
    run(engine, beat, THEM)
    run(engine, leave, THEM)
    with engine.connect() as connection:
        assert connection.execute(select(workers)).all() == []


@pytest.mark.empty
@pytest.mark.parametrize("back", [3.0, 90_000.0])
def test_row_from_the_future_is_corrected_and_reported(engine, now, back, store):
    exchange(engine, now, delay=5.0, status=429, retry_after=60.0)
    now[0] -= back
    (shown,) = store.waiting().values()
    row = run(engine, take, HOST, US).host
    assert row.ahead == shown.ahead == back
    assert row.times.request_ended_at == now[0]
    assert run(engine, begin, HOST, US, ASK).host.hold == 60.0
    assert run(engine, find, HOST).times == row.times


@pytest.mark.empty
def test_an_operators_delay_is_kept_until_it_is_ended(engine, now, store):
    assert run(engine, set_operator_delay, HOST, 0.0, "nothing changes") == 0.0
    assert run(engine, set_operator_delay, HOST, 60.0, "slower") == 60.0
    assert run(engine, set_operator_delay, HOST, 60.0, "once more") == 60.0
    exchange(engine, now)
    run(engine, take, HOST, US)
    assert run(engine, begin, HOST, US, ASK).host.wait == 60.0
    assert store.delays(above=1.0) == {HOST: 60.0}
    assert run(engine, set_operator_delay, HOST, 0.0, "the relaunch is over") == 1.0
    assert [row[2:4] for row in read_overrides(engine)] == [("delay", 60.0), ("delay", 0.0)]


@pytest.mark.empty
def test_a_hold_is_lifted_once_and_the_reason_is_kept(engine, now, store):
    exchange(engine, now, status=429, retry_after=31536000.0)
    now[0] += 10.0
    assert run(engine, release_hold, HOST, "they wrote: go on") == 31_536_000.0 - 10.0
    assert run(engine, release_hold, HOST, "once more") == 0.0
    assert run(engine, release_hold, "unknown.example", "typo") == 0.0
    last = (now[0], HOST, "release", 31_536_000.0 - 10.0, "they wrote: go on", None, None)
    assert read_overrides(engine) == [last]
    assert run(engine, find, HOST).times.refusals == 1, "the next hold is as long as it would be"


@pytest.mark.empty
def test_hosts_that_wait_are_found(engine, now, store):
    exchange(engine, now, status=0, unreachable=True)
    run(engine, set_operator_delay, "delayed.example", 60.0, "")
    run(engine, take, "held.example", US)
    run(engine, lengthen_waits, "held.example", hold=Hold(500.0))
    run(engine, take, "well.example", US)
    now[0] += 10.0
    waiting = {host: snapshot.reason for host, snapshot in store.waiting().items()}
    assert waiting == {"held.example": "hold"}
    assert store.unreachable() == {HOST}


@pytest.mark.empty
def test_clock_of_the_database_is_used(engine):
    real = engine.execution_options(clock=None)
    assert abs(run(real, find, HOST).now - time.time()) < 3600.0


@pytest.mark.empty
@pytest.mark.postgresql
def test_of_two_that_take_a_host_at_the_same_moment_one_gets_it(postgresql_url, now):
    engine = open_engine(postgresql_url, lambda: now[0])
    exchange(engine, now)
    run(engine, beat, US)
    with ThreadPoolExecutor(1) as other, engine.begin() as connection:
        assert take(connection, HOST, US).status == "ready"
        theirs = other.submit(run, engine, take, HOST, THEM)  # waits for the lock of the row
        connection.commit()
        assert theirs.result().status == "wait"
    engine.dispose()


@pytest.mark.empty
@pytest.mark.parametrize("worker", [US, THEM])
def test_the_answer_of_a_proxy_is_taken_back(engine, now, worker):
    """Whoever owns the host by then."""
    exchange(engine, now)
    before = run(engine, find, HOST).times
    for status in (502, 503, 504):
        exchange(engine, now, seconds=100.0, status=status, from_gateway=True)
    assert run(engine, find, HOST).hold
    run(engine, take, HOST, worker)
    run(engine, take_back, HOST, before)
    snapshot = run(engine, find, HOST)
    kept = {"owner": worker.id, "request_ended_at": now[0]}
    assert snapshot.times == replace(before, **kept)
    assert snapshot.hold == 0.0


@pytest.mark.empty
@pytest.mark.parametrize("answer", [{"status": 429}, {"status": 503, "retry_after": 600.0}])
def test_a_hold_for_another_reason_is_not_taken_back(engine, now, answer):
    exchange(engine, now, status=502, from_gateway=True)
    now[0] += 100.0
    exchange(engine, now, **answer)
    held = run(engine, find, HOST)
    run(engine, take_back, HOST, HostTimes())
    assert held.hold
    assert run(engine, find, HOST) == held


# Hosts as commands and starting crawls read them, and what an operator does (decision 31).

DAY = 86_400.0


def test_request_is_logged_at_its_start_and_completed_at_its_end(state, rows):
    log = select(*requests.c["requested_at", "connect_duration", "duration", "status", "hold"])
    sent = replace(RECORD, status=None, duration=None)
    begun = state.write(lambda connection: log_begin(connection, sent))
    assert rows(log) == [(100.0, 0.0, None, None, 0.0)]
    ended = replace(RECORD, requested_at=101.5, duration=2.5, status=429, hold=30.0)
    state.write(lambda connection: log_end(connection, ended, begun))
    whole = (100.0, 1.5, 2.5, 429, 30.0)
    assert rows(log) == [whole]
    again = state.write(lambda connection: log_begin(connection, replace(sent, requested_at=200.0)))
    assert rows(log) == [whole, (200.0, 0.0, None, None, 0.0)]
    state.write(lambda connection: forget_begin(connection, again))
    assert rows(log) == [whole], "the request was never sent"


def test_an_answer_that_was_the_proxys_leaves_no_hold_in_the_log(state, rows):
    log = select(*requests.c["status", "error", "hold", "duration"])
    sent = replace(RECORD, status=None, duration=None)
    begun = state.write(lambda connection: log_begin(connection, sent))
    ended = replace(RECORD, duration=2.5, status=503, hold=30.0)
    state.write(lambda connection: log_end(connection, ended, begun))
    state.write(lambda connection: log_no_answer(connection, begun, "no host was reached"))
    assert rows(log) == [(None, "no host was reached", 0.0, 2.5)]


def test_outcome_and_end_of_exchange_are_written_together(state, rows):
    begun = records.begin(state).host
    times = replace(begun.times, request_ended_at=begun.now, delay=9.0)

    def written(entries):
        outcome = Stores(state).sources.outcome_writer(None, SOURCE, entries, host="a.example")

        def write(connection):
            end(connection, "a.example", records.US, begun.times, times, 0.0)
            return outcome(connection)

        return state.write(write)

    with pytest.raises(RefusedValues):
        written([entry_of("http://nowhere.example/")])
    assert state.hosts.find("a.example").reason == "in flight"
    assert written([entry_of(SOURCE.url)]).new == {0: "k"}
    assert state.hosts.find("a.example").reason == "delay"


def test_pace_by_may_change_once_no_host_waits(opened, clock):
    state = opened()
    state.hosts.set_pace_by("host")
    state.hosts.set_pace_by("host")
    records.exchange(state, "www.a.example", status=429, retry_after=9.0)
    clock.at += 2.0  # only the hold is left
    opened().hosts.set_pace_by("host")
    refused = r"1 host must not be requested yet.*set WALSH_PACE_BY = 'host'"
    with pytest.raises(StateError, match=refused):
        opened().hosts.set_pace_by("domain")
    state.hosts.set_delay("www.a.example", 5.0, "")
    with pytest.raises(StateError, match=r"www\.a\.example was set by hand"):
        opened().hosts.set_pace_by("domain")
    state.hosts.set_delay("www.a.example", 0.0, "")
    clock.at += 9.0
    opened().hosts.set_pace_by("domain")
    state.hosts.set_pace_by("host")
    with contextlib.closing(State(str(state.database), clock.now)) as again:
        again.hosts.set_pace_by("host")
