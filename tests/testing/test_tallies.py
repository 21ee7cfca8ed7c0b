"""The rules of the witness over requests as they come."""

from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.testing.tallies import Hold, Retries, Spacing


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


@given(st.lists(st.floats(0, 9), min_size=1, max_size=40), st.floats(0.1, 9))
def test_nobody_who_kept_a_pause_is_found(requests, pause):
    """Each request comes a pause and some seconds after the last, and is read in whole seconds."""
    began, moments = 0.0, []
    for more in requests:
        began += pause + more
        moments.append(int(began))
    assert not any(shorts(moments, pause, resolution=1.0))


def test_a_hold_is_broken_after_the_refusal_and_before_its_end():
    hold = Hold()
    assert not hold.is_broken(0.0)
    assert hold.begin(5.0, 9.0)
    assert [hold.is_broken(at) for at in (4.9, 5.0, 8.9, 9.0)] == [False, True, True, False]
    assert [hold.is_broken(at, 1.0) for at in (8, 8.1)] == [True, False]
    assert not hold.begin(6.0, 8.0)


def test_an_answer_ends_the_row():
    retries = Retries()
    for at, is_refusal in enumerate((True, False, True)):
        retries.answered(at, is_refusal=is_refusal)
    assert [retries.add(at) for at in (1.5, 3, 9)] == [0, 1, 2]
