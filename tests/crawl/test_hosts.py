"""The hosts that a crawl owns (decision 41)."""

from contextlib import closing

import pytest
from scrapy import Request
from sqlalchemy.exc import IntegrityError

from walsh_scrapy.crawl.context import Context
from walsh_scrapy.crawl.hosts import HostLost, Hosts
from walsh_scrapy.crawl.ticket import Visit, set_visit
from walsh_scrapy.options import Options
from walsh_scrapy.policy.pacing import RECHECK_SECONDS, WORKER_SECONDS
from walsh_scrapy.sources.source import Source
from walsh_scrapy.state import State
from walsh_scrapy.state.hosts import Ask, beat
from walsh_scrapy.state.log import RequestRecord
from walsh_scrapy.testing.simulation import FakeClock

HOST = "a.example"
FIRST, SECOND = (Source(f"http://{HOST}/{number}") for number in range(2))


class Clock(FakeClock):
    def moment(self):
        return self.monotonic()


@pytest.fixture
def clock():
    return Clock(1_000_000.0)


@pytest.fixture
def worker(tmp_path, clock):
    """Return a function that makes another worker of one state."""
    with closing(State(f"sqlite:///{tmp_path}/state.sqlite3", clock.now)) as state:
        options = Options.from_settings({"WALSH_STATE_URL": f"sqlite:///{tmp_path}/state.sqlite3"})
        yield lambda: Hosts(Context(options, state, clock))


def begin(hosts, source):
    request = Request(source.url)
    set_visit(request, Visit(source, bool))
    record = RequestRecord(0.0, HOST, source.url, "")
    return hosts.begin(request, HOST, Ask(0.0, 10.0), record)


def test_the_visits_of_a_host_that_was_lost_are_over_although_it_is_owned_again(worker):
    """Another worker may have visited their sources in between."""
    ours, other = worker(), worker()
    assert ours.take(HOST, ours) == "ours"
    for source in (FIRST, SECOND):
        ours.begin_visit(HOST, source)
    assert other.take(HOST, other) == "ours", "ours does not beat"
    assert begin(ours, FIRST) is None
    other.let_go(HOST, other)
    assert ours.take(HOST, ours) == "ours"
    assert begin(ours, SECOND) is None
    with pytest.raises(HostLost):
        ours.commit(SECOND, lambda _: None, lambda _: False, ends=True)


def test_who_only_waits_for_the_host_of_a_dead_worker_gets_it(worker, clock):
    """Such a wait is all that a crawl without sources may see of the database."""
    dead, ours = worker(), worker()
    assert dead.take(HOST, dead) == "ours"
    dead._state.write(lambda connection: beat(connection, dead._worker))
    clock.advance(2 * WORKER_SECONDS)
    answers = []
    while "ours" not in answers and len(answers) < 90:
        answers.append(ours.take(HOST, ours))
        clock.advance(RECHECK_SECONDS)
    assert WORKER_SECONDS <= len(answers) * RECHECK_SECONDS < WORKER_SECONDS + 3


def test_a_coroutine_that_is_cancelled_after_the_end_writes_nothing(worker):
    ours = worker()
    assert ours.take(HOST, ours) == "ours"
    ours.close()
    ours._state.close()
    ours.let_go(HOST, ours)


def test_a_row_that_is_refused_costs_that_outcome_and_no_host(worker):
    def refused(_connection):
        raise IntegrityError("INSERT", None, ValueError())

    ours, other = worker(), worker()
    ours._state.write(lambda connection: beat(connection, ours._worker))
    assert ours.take(HOST, ours) == "ours"
    ours.begin_visit(HOST, FIRST)
    ours.let_go(HOST, ours)
    with pytest.raises(IntegrityError):
        ours.commit(FIRST, refused, lambda _: False, ends=True)
    assert other.take(HOST, other) == "ours"


def test_a_clock_that_was_set_back_is_named(worker, clock, caplog):
    ours, other = worker(), worker()
    ours.take(HOST, ours)
    assert begin(ours, FIRST) == 0.0
    clock.at -= 7200.0
    assert other.take(HOST, other) == "busy", "no exchange lasts longer than an hour"
    clock.advance(3600.0)
    assert other.take(HOST, other) == "ours"
    assert caplog.messages == []
    other.let_go(HOST, other)
    clock.at -= 3600.0
    assert worker().take(HOST, None) == "ours"
    assert caplog.messages == [f"the clock was set back: what is known of {HOST} was 1 h ahead"]
