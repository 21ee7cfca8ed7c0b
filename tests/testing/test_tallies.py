"""The rules of the witness over requests as they come."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.testing.tallies import MOST_A_SECOND, PERIOD, Hold, Rate, Retries, Spacing


def shorts(moments, pause, **open_):
    spacing = Spacing()
    return [spacing.add(moment, pause, **open_) for moment in moments]


def test_a_pause_counts_from_the_start_or_from_the_end():
    assert shorts([0, 4, 9], 5) == [False, True, False]
    spacing = Spacing()
    assert not spacing.add(0, 5, ended=3)
    assert spacing.add(7, 5, ended=7)
    assert not spacing.add(12, 5, ended=13)


def test_a_pause_that_may_have_been_kept_was():
    """5.5 s from second to second: 5 may be, and twice by a tenth, but three times may not."""
    assert shorts([0, 5, 10, 15], 5.5, resolution=1.0) == [False, False, False, True]
    assert shorts([0, 5, 11, 16], 5.5, resolution=1.0) == [False] * 4
    assert not any(shorts([4.91 * n for n in range(99)], 5, resolution=0.1))


def test_slack_is_used_up():
    """Requests that end every second, and took 60 s at most: 16 of them were 5 s apart."""
    found = shorts(range(30), 5, resolution=1.0, slack=60)
    assert found.index(True) == 16
    assert found.count(True) == 11


@given(
    st.lists(st.tuples(st.floats(0, 9), st.floats(0, 60)), min_size=1, max_size=40),
    st.floats(0.1, 9),
)
def test_nobody_who_kept_a_pause_is_found(requests, pause):
    """Each request comes a pause and some seconds after the last, and is read when it ended."""
    began, ends = 0.0, []
    for more, took in requests:
        began += pause + more
        ends.append(began + took)
    spacing = Spacing()
    assert not any(spacing.add(int(end), pause, 1.0, 60.0) for end in sorted(ends))


def rate_of(moments, **open_):
    rate = Rate()
    return sum(rate.add(moment, **open_) for moment in moments)


def test_more_than_ten_a_second_for_ten_seconds_is_too_fast():
    most = MOST_A_SECOND * PERIOD
    assert rate_of([5] * most) == 0
    assert rate_of([5] * (most + 7)) == 7
    assert rate_of([n / 9 for n in range(1000)], resolution=1.0) == 0
    assert rate_of([n // 50 for n in range(1000)], resolution=1.0) > 700
    assert rate_of([n // 50 for n in range(2500)], resolution=1.0, slack=60.0) == 1190
    assert rate_of([*[15] * most, *[5] * 50, 15]) == 1  # those of an earlier period do not count


def test_a_hold_is_broken_after_the_refusal_and_before_its_end():
    hold = Hold()
    assert not hold.is_broken(0.0)
    assert hold.begin(5.0, 9.0)
    assert [hold.is_broken(at) for at in (4.9, 5.0, 8.9, 9.0)] == [False, True, True, False]
    assert [hold.is_broken(at, 1.0) for at in (8, 8.1)] == [True, False]
    assert not hold.is_broken(6.0, slack=2.0)
    assert not hold.begin(6.0, 8.0)


@pytest.mark.parametrize(
    ("pauses", "count"), [([2] * 3, 3), ([2, 6, 2], 1), ([6] * 9, 0), ([2, 2, 5, 2], 4)]
)
def test_retries_in_a_row_come_soon_after_each_refusal(pauses, count):
    retries, at, found = Retries(), 0, 0
    for pause in pauses:
        retries.answered(at, is_refusal=True)
        at += pause
        found = retries.add(at, within=5)
    assert found == count


def test_an_answer_ends_the_row():
    retries = Retries()
    for at, is_refusal in enumerate((True, False, True)):
        retries.answered(at, is_refusal=is_refusal)
    assert [retries.add(2.5, slack=1), retries.add(3), retries.add(math.inf)] == [0, 1, 2]
