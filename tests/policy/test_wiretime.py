"""Decision 46: for how long one visit, and one host, may keep a crawl busy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.policy.wiretime import HostLoads, VisitTime


@pytest.mark.parametrize(
    ("seconds", "remaining"), [(0.0, 60.0), (58.0, 2.0), (59.0, 1.0), (59.1, 0.0), (80.0, 0.0)]
)
def test_less_than_a_second_is_too_little_for_a_request(seconds, remaining):
    assert VisitTime(seconds).remaining == pytest.approx(remaining)


def reasons(*seconds):
    """Whether the host is deferred after each of its exchanges."""
    loads = HostLoads()
    return [loads.add("slow.example", each) is not None for each in seconds]


def test_a_host_is_deferred_after_more_than_60_seconds():
    assert reasons(30.0, 30.0, 0.1) == [False, False, True]


def test_many_quick_exchanges_do_not_defer_a_host():
    assert not any(reasons(*[0.4] * 300))
    assert not any(reasons(*[3.0] * 50))


def test_each_host_is_counted_by_itself():
    loads = HostLoads()
    assert not any(loads.add(f"h{number}.example", 30.0) for number in range(10))


@given(st.lists(st.integers(0, 60), max_size=60))
def test_a_deferred_host_took_over_60_s_and_3_s_on_average(seconds):
    totals = [(sum(seconds[:count]), count) for count in range(1, len(seconds) + 1)]
    assert reasons(*seconds) == [total > 60 and total > 3 * count for total, count in totals]
