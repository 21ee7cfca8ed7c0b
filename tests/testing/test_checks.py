"""An exchange, its Retry-After, and how exactly its times are known."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import cases
from walsh_scrapy.testing.checks import (
    PRECISIONS,
    SERVER,
    TRIAL,
    AtOnce,
    Delay,
    Exchange,
    FirstRequests,
    Hold,
    Precision,
    Retries,
    Revisit,
)

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
NOW = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC


def refused(*values, status=429):
    headers = tuple(("Retry-After", value) for value in values)
    return Exchange(4.0, 5.0, "a.example", "http://a.example/", status, headers)


@cases("values", "until")
def test_a_retry_after_in_each_form(values, until):
    assert refused(*values).held_until(offset=NOW) == until


def test_an_endless_number_is_for_ever():
    assert refused("9" * 5000).held_until() == float("inf")


def test_only_a_refusal_holds_its_host():
    assert refused("120", status=503).held_until() == 125.0
    assert refused("120", status=301).held_until() is None


def test_a_moment_is_certain_beyond_the_tolerance():
    for precision in PRECISIONS:
        assert precision.is_before(1.0, 1.001 + precision.tolerance)
        assert not precision.is_before(1.0, 1.0 + precision.tolerance)


def test_the_docs_have_a_table_of_these():
    """It is made from the code: print it, where this fails."""
    rows = [
        f"| {precision.evidence} | {precision.tolerance:g} s | {precision.slack:g} s |"
        for precision in PRECISIONS
    ]
    assert "\n".join(["|---|---|---|", *rows, ""]) in PAGE.read_text(encoding="utf-8")


# The checks of a host, over requests as they come.

SECONDS = Precision("a log in whole seconds", 1.0, 0.02)


def at(start, end=None):
    end = start if end is None else end
    return Exchange(start, end, "a.example", "http://a.example/", 200)


def early(check, *exchanges, **terms):
    found = [check.see(exchange, **terms) for exchange in exchanges]
    return [gap is not None and gap.is_early for gap in found]


def starts_too_early(starts, delay, precision):
    return early(Delay(precision, from_start=True), *map(at, starts), delay=delay)


class TestAtOnce:
    def test_a_request_within_another_one(self):
        two = at(0, 9), at(1, 2)
        assert early(AtOnce(SERVER), *two, at(8), at(9)) == [False, True, True, False]

    def test_the_gap_is_negative(self):
        check = AtOnce(SERVER)
        check.see(at(0, 9))
        gap = check.see(at(7))
        assert (gap.seconds, gap.before.end) == (-2, 9)

    def test_what_never_ends_is_under_way(self):
        assert early(AtOnce(SERVER), at(0, math.inf), at(1e9)) == [False, True]


class TestDelay:
    def test_a_delay_counts_from_the_start_or_from_the_end(self):
        assert starts_too_early([0, 4, 9], 5, SERVER) == [False, True, False]
        assert early(Delay(SERVER), at(0, 3), at(7), at(12, 13), delay=5) == [False, True, False]

    def test_the_gap_counts_from_what_ended_last(self):
        check = Delay(SERVER)
        check.see(at(0, 3), 5)
        gap = check.see(at(7), 5)
        assert (gap.seconds, gap.required, gap.missing) == (4, 5, 1)

    def test_each_delay_may_be_short_by_the_tolerance_once(self):
        """5.5 s in whole seconds: 5 may be, and again by a little, but three times may not."""
        assert starts_too_early([0, 5, 10, 15], 5.5, SECONDS) == [False, False, False, True]
        assert starts_too_early([0, 5, 11, 16], 5.5, SECONDS) == [False] * 4

    @pytest.mark.parametrize(("pace", "is_found"), [(0.89, True), (0.95, True), (0.985, False)])
    def test_a_little_early_each_time_is_found_in_a_trial(self, pace, is_found):
        starts = [pace * n for n in range(30)]
        assert any(starts_too_early(starts, 1.0, TRIAL)) is is_found

    @given(st.lists(st.floats(0, 9), min_size=1, max_size=40), st.floats(0.1, 9))
    def test_starts_that_keep_the_delay_are_not_reported(self, requests, delay):
        """Each request comes a delay and some seconds after the last, read in whole seconds."""
        began, starts = 0.0, []
        for more in requests:
            began += delay + more
            starts.append(int(began))
        assert not any(starts_too_early(starts, delay, SECONDS))


class TestFirstRequests:
    def judge(self, *requests, **terms):
        check = FirstRequests(min_number=2)
        for start, is_first in requests:
            check.see(at(start), is_first=is_first, **terms)
        return check.are_held_back

    def test_all_are_held_back_and_others_go(self):
        assert self.judge((0, True), (2, True), (2.1, False), (5, True), (7, True))

    def test_one_that_goes_at_once_is_enough(self):
        assert not self.judge((0, True), (2, True), (2.1, False), (3, True))

    def test_who_is_slow_by_itself_is_right(self):
        assert not self.judge((0, True), (2, True), (4, False), (6, True))

    def test_what_another_reason_explains_does_not_count(self):
        requests = (0, True), (2, True), (2.1, False), (5, True)
        assert not self.judge(*requests, counts=False)


class TestHold:
    def test_it_counts_after_the_refusal_and_to_its_end(self):
        hold = Hold(SERVER)
        assert hold.see(at(0)) is None
        hold.begin(at(3, 5), 9)
        assert early(hold, at(4.9), at(5), at(8.9), at(9)) == [False, True, True, False]

    def test_the_longest_counts(self):
        hold = Hold(SERVER)
        hold.begin(at(3, 5), 9)
        hold.begin(at(6), 8)
        assert hold.see(at(8.5)).missing == 0.5

    def test_a_moment_before_its_end_may_be_in_doubt(self):
        hold = Hold(TRIAL)
        hold.begin(at(0), 4)
        assert early(hold, at(3.89), at(3.91)) == [True, False]


class TestRetries:
    def test_refusals_in_a_row_are_counted(self):
        row = Retries()
        assert [row.see(at(n), is_refused=True) for n in range(3)] == [1, 2, 3]
        assert row.before(at(9)) == 3

    def test_an_answer_ends_the_row(self):
        row = Retries()
        row.see(at(0), is_refused=True)
        assert row.see(at(1), is_refused=False) == 0
        assert row.before(at(9)) == 0

    def test_what_was_under_way_at_once_counts_as_one(self):
        row = Retries()
        assert row.see(at(0, 4), is_refused=True) == 1
        assert row.before(at(3)) == row.see(at(3), is_refused=True) == 0
        assert row.before(at(4)) == 1

    def test_the_least_wait_doubles_and_then_stays(self):
        waits = [Retries.min_wait(number, 2, 30) for number in (1, 2, 4, 5, 5000)]
        assert waits == [2, 4, 16, 30, 30]


class TestRevisit:
    def test_what_was_answered_is_good_for_a_while(self):
        check = Revisit(SERVER)
        assert check.see(at(0, 1), 5, is_answered=True) is None
        assert check.see(at(5), 5, is_answered=False).is_early
        assert check.see(at(6), 5, is_answered=True) is None
        assert not check.see(at(11), 5, is_answered=True).is_early
