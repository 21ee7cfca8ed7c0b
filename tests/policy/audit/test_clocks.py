"""Where the clock of a record was set (decision 37), with rows as crawls write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.policy.audit.clocks import SetClocks, Timed

#: The time of day when the machine began to run.
BOOT = 1_000_000.0


def run_of(number, *begun, ahead=0.0):
    """Requests of a run, of a second each, by a clock that is ahead."""
    return [Timed(number, BOOT + at + ahead, 1.0, at + 1.0) for at in begun]


def found(*requests):
    return SetClocks(requests)


def test_nothing_is_uncertain_while_no_clock_is_set():
    clocks = found(*run_of(1, 0, 2, 4), *run_of(2, 10, 12), *run_of(1, 14))
    assert clocks.are_certain(BOOT, BOOT + 14)
    assert not clocks.set_back


@pytest.mark.parametrize("seconds", [-7200.0, -61.0, -2.0, 5.0, 86400.0])
def test_a_clock_that_is_set_during_a_run(seconds):
    clocks = found(*run_of(1, 0, 2, 4), *run_of(1, 6, 8, 10, ahead=seconds))
    assert not clocks.are_certain(BOOT + 5, BOOT + 6 + seconds), "the gap meanwhile"
    assert clocks.are_certain(BOOT - 9e9, BOOT - 8e9)
    assert clocks.set_back == (seconds < 0)


@pytest.mark.parametrize("seconds", [-2.0, 3.0, 7200.0, -7200.0])
def test_a_row_that_alone_was_changed_is_no_clock(seconds):
    forged = run_of(1, 4, ahead=seconds)
    clocks = found(*run_of(1, 0, 2), *forged, *run_of(1, 6, 8), *run_of(2, 10, 12))
    assert clocks.are_certain(BOOT - 9e9, BOOT + 9e9)
    assert not clocks.set_back


def test_a_clock_that_is_set_back_between_two_runs():
    first, second = run_of(1, 0, 2, 3600), run_of(2, 3700, 3702, ahead=-3500.0)
    clocks = found(*first, *second)
    assert not clocks.are_certain(BOOT + 200, BOOT + 201), "this time was twice"
    assert clocks.are_certain(BOOT + 1, BOOT + 2)
    assert clocks.are_certain(BOOT + 3602, BOOT + 3700)
    assert clocks.set_back == 1


def test_a_row_that_waited_for_the_database_is_no_clock():
    """Another process wrote meanwhile."""
    clocks = found(*run_of(1, 0, 2), *run_of(2, 1.5, 3.5), *run_of(1, 3, 5), *run_of(2, 5))
    assert clocks.are_certain(BOOT, BOOT + 9)


def test_a_slow_exchange_that_another_run_overtakes_is_no_clock():
    """Rows are numbered in the order of the requests."""
    slow = Timed(1, BOOT + 1.0, 100.0, 105.0, waited=4.0)
    clocks = found(*run_of(1, 0), slow, *run_of(2, 2, 4, 6), *run_of(1, 106))
    assert clocks.are_certain(BOOT, BOOT + 106)
    assert not clocks.set_back


def test_a_request_without_an_end_says_nothing():
    unknown = Timed(1, BOOT + 4.0, None, 0.0)
    clocks = found(*run_of(1, 0, 2), unknown, unknown, *run_of(1, 6))
    assert clocks.are_certain(BOOT, BOOT + 6)


def test_what_names_no_run_says_nothing():
    clocks = found(*run_of(None, 0, 2), *run_of(None, 4, 6, ahead=-99.0))
    assert clocks.are_certain(BOOT - 99, BOOT + 9)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.floats(0, 9e9), st.floats(0, 9e3), st.floats(0, 9e9)).map(
            lambda row: Timed(*row)
        )
    ),
    st.floats(0, 9e9),
    st.floats(0, 9e9),
)
def test_any_record_has_certain_times_and_others(requests, one, other):
    clocks = found(*requests)
    assert clocks.are_certain(one, other) == clocks.are_certain(other, one)
    if clocks.are_certain(one, other):
        assert clocks.are_certain(one, one)
        assert clocks.are_certain(other, other)


def test_requests_are_read_when_clocks_are_first_asked_about():
    sent = iter(run_of(1, 0, 2, 4))
    clocks = SetClocks(sent)
    assert next(sent).sent_at == BOOT
    assert clocks.are_certain(BOOT, BOOT + 4)
    assert not list(sent)
