"""R4, R5, decisions 28 and 41: when a host may be requested again. All times are arguments."""

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import (
    LONGEST_EXCHANGE,
    LONGEST_FOR_BLOCKLIST,
    NO_HOLD,
    QUIET_SECONDS,
    WORKER_SECONDS,
    Exchange,
    Hold,
    HostTimes,
    Watch,
    delay_after,
    longest_wait,
    unreachable_hold,
)

DAY = 86_400.0
BACKOFF = Backoff(2.0, 300.0, Random(1))
seconds = st.floats(min_value=0, max_value=1e6)
moments = st.floats(min_value=1e6, max_value=2e6)
host_times = st.builds(
    HostTimes,
    busy_until=st.just(0.0) | moments,
    ended=st.none() | moments,
    delay=seconds,
    hold_since=moments,
    hold_until=moments,
    deferred_at=st.just(0.0) | moments,
    operator_delay=seconds,
)


def after(times, now, **exchange):
    """The times after an exchange of 10 s without an answer, or with a `status`."""
    given = {"delay": 1.0, "latency": 10.0, "status": 0} | exchange
    return times.after(Exchange(**given), BACKOFF, now)


def test_the_first_request_to_an_unseen_host_is_never_delayed():
    assert HostTimes().ready_at(asked_delay=3600.0) <= 0.0


@pytest.mark.parametrize(
    ("host", "rank", "for_blocklist", "is_bounded"),
    [
        ("x.example", Rank.OPERATOR, False, True),  # a redirect of the list
        ("x.example", Rank.ROBOTS, True, True),
        ("list.example", Rank.ROBOTS, False, True),  # whichever request it is for
        ("list.example", Rank.TARGET, False, False),
        ("x.example", Rank.ROBOTS, False, False),
    ],
)
def test_what_the_blocklist_needs_waits_for_a_day_at_most(host, rank, for_blocklist, is_bounded):
    most = longest_wait(host, rank, {"list.example"}, for_blocklist=for_blocklist)
    assert most == (LONGEST_FOR_BLOCKLIST if is_bounded else math.inf)


@pytest.mark.parametrize(
    ("least", "robots_delay", "latency", "wanted"),
    [
        (1.0, None, 0.2, 1.0),
        (1.0, 5.0, 0.2, 5.0),
        (1.0, 0.2, 0.2, 1.0),  # a Crawl-delay below a second does not make us faster
        (1.0, None, 4.0, 4.0),  # a slow answer is a wish for room
        (3.0, 2.0, 1.0, 3.0),
    ],
)
def test_the_delay_is_the_largest_of_what_is_asked(least, robots_delay, latency, wanted):
    assert delay_after(least, robots_delay, latency) == wanted


@pytest.mark.parametrize(
    ("times", "asked_delay", "ready_at"),
    [
        # It counts from the end, and the next request may want more room than the last.
        (HostTimes(ended=107.5, delay=2.0), 1.0, 109.5),
        (HostTimes(ended=107.5, delay=2.0), 10.0, 117.5),
        (HostTimes(ended=107.5, delay=2.0, operator_delay=30.0), 10.0, 137.5),
        # The hold is another clock.
        (HostTimes(ended=100.0, delay=30.0, hold_since=100.0, hold_until=105.0), 1.0, 130.0),
        (HostTimes(ended=100.0, delay=30.0, hold_since=101.0, hold_until=161.0), 1.0, 161.0),
        # A request in flight may end as late as that, and the delay counts from then.
        (HostTimes(busy_until=165.0), 1.0, 166.0),
        (HostTimes(ended=0.0, delay=100.0, busy_until=165.0), 1.0, 265.0),
        (HostTimes(ended=170.0, delay=1.0, busy_until=165.0), 1.0, 171.0),
    ],
)
def test_a_host_is_ready_when_delay_hold_and_exchange_have_ended(times, asked_delay, ready_at):
    assert times.ready_at(asked_delay) == ready_at


def test_what_the_blocklists_own_host_asks_for_holds_the_list_for_a_day_at_most():
    """Opt-outs have to be refreshed (R3); every other request waits in full (R5)."""
    most = LONGEST_FOR_BLOCKLIST
    held = HostTimes(ended=900.0, delay=1e10).held(1000.0, Hold(1e10))
    assert held.ready_at() == 1000.0 + 1e10
    assert held.ready_at(1e10, most) == 1000.0 + DAY
    slowed = HostTimes(ended=900.0, operator_delay=3 * DAY)
    assert slowed.ready_at(0.0, most) == 900.0 + 3 * DAY, "the operator is obeyed"
    short = HostTimes(ended=900.0, delay=10.0).held(1000.0, Hold(600.0))
    assert short.ready_at(0.0, most) == short.ready_at()
    assert HostTimes(busy_until=1e6).ready_at(0.0, most) == 1e6


@pytest.mark.parametrize(
    ("exchange", "counts"),  # unreachable, refusals, server errors
    [
        ({"unreachable": True}, (4, 0, 5)),
        ({"unreachable": True, "for_robots": True}, (4, 0, 5)),  # not a refusal
        ({"without_tls": True}, (3, 0, 5)),
        ({"without_tls": True, "for_robots": True}, (3, 0, 5)),
        ({}, (3, 0, 5)),  # a connection that broke is not an answer
        ({"for_robots": True}, (3, 1, 5)),
        ({"status": 200}, (0, 0, 0)),
        ({"status": 404}, (0, 0, 0)),
        ({"status": 429}, (0, 1, 5)),
        ({"status": 503}, (0, 1, 5)),
        ({"status": 500}, (0, 0, 6)),
        ({"status": 500, "retry_after": "9"}, (0, 1, 6)),
        ({"status": 404, "retry_after": "9"}, (0, 0, 0)),
        ({"status": 200, "for_robots": True}, (0, 0, 0)),
    ],
)
def test_what_each_end_of_an_exchange_counts_as(exchange, counts):
    times = after(HostTimes(unreachable=3, server_errors=5, busy_until=9e9), 1000.0, **exchange)
    assert (times.unreachable, times.refusals, times.server_errors) == counts
    assert (times.ended, times.busy_until) == (1000.0, 0.0)
    if times.hold_until:
        assert times.last_hold.seconds > 0.0
    else:
        assert times.last_hold == NO_HOLD


@pytest.mark.parametrize(
    ("exchange", "by", "refused"),
    [
        ({"status": 429, "retry_after": "120"}, "retry-after", 429),
        ({"status": 503}, "backoff", 503),
        ({"status": 503, "retry_after": "0"}, "backoff", 503),
        ({"status": 404, "retry_after": "120"}, "retry-after", None),
        ({"status": 0, "for_robots": True}, "backoff", None),
        ({"status": 0, "unreachable": True}, "unreachable", None),
    ],
)
def test_a_hold_knows_what_began_it(exchange, by, refused):
    times = after(HostTimes(unreachable=3), 1000.0, **exchange)
    assert (times.hold_by, times.hold_status) == (by, exchange["status"])
    assert times.refused == refused
    assert times.held(1000.0, Hold(1.0, "visit-time")) == times, "a longer hold stays, as it began"
    assert times.held(1000.0, Hold(9 * DAY, "visit-time")).hold_by == "visit-time"
    lifted = times.lifted()
    assert (lifted.hold_by, lifted.refused, lifted.ready_at()) == ("", None, 1001.0)
    assert (lifted.refusals, lifted.unreachable) == (times.refusals, times.unreachable)


def test_a_hold_that_goes_on_is_not_the_last_exchanges():
    held = HostTimes().held(900.0, Hold(10 * DAY, "retry-after", 429))
    assert after(held, 1000.0, status=503).last_hold == NO_HOLD, "its own is shorter"
    assert after(held, 1000.0, status=503, retry_after="2000000").last_hold.seconds == 2e6


def refused(times, now, sent_at):
    return after(times, now, status=429, latency=now - sent_at, retry_after="4")


def test_one_burst_counts_once():
    first = refused(HostTimes(), 100.0, 99.0)
    assert first.refusals == 1
    assert refused(first, 100.5, 99.5).refusals == 1, "it was out before the hold began"
    assert refused(first, 104.5, 104.2).refusals == 2


def test_after_half_an_hour_of_quiet_the_backoff_starts_small_again():
    times = refused(HostTimes(), 100.0, 99.0)  # on hold until 104
    assert refused(times, 104.0 + QUIET_SECONDS, 104.0 + QUIET_SECONDS).refusals == 2
    assert refused(times, 105.0 + QUIET_SECONDS, 105.0 + QUIET_SECONDS).refusals == 1


def test_each_refusal_in_a_row_holds_twice_as_long_up_to_the_most():
    times, longest = HostTimes(), 0.0
    for number in range(12):
        times = after(times, times.hold_until + 1.0, status=503, latency=0.0)
        assert 2.0 * 2**number <= times.last_hold.seconds or times.last_hold.seconds >= 200.0
        longest = max(longest, times.last_hold.seconds)
    assert times.refusals == 12
    assert 200.0 <= longest <= 300.0


@pytest.mark.parametrize(
    ("times", "days"),
    [(0, 0), (1, 0), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30), (10_000, 30)],
)
def test_an_unreachable_host_is_tried_ever_less_often_and_once_a_month(times, days):
    assert unreachable_hold(times) == days * DAY


def test_an_unreachable_host_is_on_hold_from_the_second_time_in_a_row_on():
    times = HostTimes()
    for number, days in enumerate((0, 2, 4, 8), start=1):
        now = max(times.hold_until, times.ended or 0.0) + 100.0
        times = after(times, now, unreachable=True)
        assert times.unreachable == number
        assert max(0.0, times.hold_until - now) == days * DAY
        assert times.ended == now


def test_an_unreachable_host_keeps_a_longer_hold():
    held = HostTimes(unreachable=1).held(900.0, Hold(10 * DAY))
    now = held.hold_until + 10.0
    assert after(held, now, unreachable=True).hold_until == now + 2 * DAY
    longer = held.held(now, Hold(30 * DAY))
    assert after(longer, now, unreachable=True).hold_until == longer.hold_until


def test_an_unreachable_name_counts_for_nothing_for_its_domain():
    gone = Exchange(delay=1.0, status=0, unreachable=True, for_robots=True)
    times = HostTimes(unreachable=0).after(gone.of_domain(), BACKOFF, 1000.0)
    assert (times.unreachable, times.refusals, times.hold_until) == (0, 0, 0.0)
    assert times.ended == 1000.0
    refusal = Exchange(delay=1.0, status=503)
    assert refusal.of_domain() == refusal


@pytest.mark.parametrize(
    ("statuses", "delay", "wanted"),
    [
        ((500,), 1.0, 2.0),
        ((500, 502, 504), 1.0, 8.0),
        ((504, 504), 10.0, 40.0),
        ((500,) * 9, 1.0, 300.0),
        ((502,) * 5000, 1.0, 300.0),
        ((500,) * 9, 3600.0, 3600.0),  # a longer Crawl-delay is never shortened
        ((500, 500, 200), 1.0, 1.0),
        ((500, 500, 404), 5.0, 5.0),  # a healthy host answers that
        ((500, 500, 304, 500), 1.0, 2.0),
        ((500, 0, 500), 1.0, 4.0),  # no answer is not a good one
        ((500, 429, 500), 1.0, 4.0),
        ((500, 501, 301, 500), 1.0, 4.0),
        ((501, 505, 301, 0), 1.0, 1.0),
    ],
)
def test_each_server_error_in_a_row_doubles_the_delay_until_a_good_answer(statuses, delay, wanted):
    times = HostTimes()
    for number, status in enumerate(statuses):  # one a day; the most are 300 s
        times = after(times, (number + 1) * DAY, status=status, delay=delay)
    assert times.delay_with() == wanted
    assert times.ready_at(1.0) >= times.ended + wanted
    assert times.refusals == statuses.count(429)
    if not times.refusals:
        assert times.hold_until == 0.0, "nothing is deferred for it"


def test_a_server_error_of_robots_txt_slows_its_host_and_no_answer_leaves_that():
    slow = after(HostTimes(), DAY, status=500, for_robots=True)
    assert slow.delay_with() == 2.0
    assert after(slow, 9 * DAY, unreachable=True).delay_with() == 2.0


ASKED_AT = 100_000.0
ENDED, WITH_HOLD = HostTimes(ended=ASKED_AT, delay=5.0), Hold(60.0)


@pytest.mark.parametrize("back", [0.5, 2.0, 3600.0, 90_000.0])
@pytest.mark.parametrize("passed", [0.0, 1.0, 4.0])
@pytest.mark.parametrize(
    ("times", "asked"),
    [
        (ENDED, 5.0),
        (HostTimes().held(ASKED_AT, WITH_HOLD), 60.0),
        (ENDED.held(ASKED_AT, WITH_HOLD), 60.0),
        (replace(ENDED, delay=90.0).held(ASKED_AT, WITH_HOLD), 90.0),
    ],
    ids=["delay", "hold", "hold longer", "delay longer"],
)
def test_no_jump_back_makes_a_wait_longer_than_asked_nor_a_second_shorter(
    times, asked, passed, back
):
    """Measured by true time; some of the wait has passed when the clock is set back."""
    now = ASKED_AT + passed - back
    right = times.with_clock_at(now)
    wait = right.ready_at(1.0) - now
    assert asked - passed <= wait <= asked
    assert (right != times) == (times.ahead_of(now) > 0.0)


def test_a_request_in_flight_ends_in_an_hour_by_any_clock():
    now = 100.0
    times = HostTimes(busy_until=1e6, deferred_at=2e6)
    assert times.ahead_of(now) > 0.0
    right = times.with_clock_at(now)
    assert (right.busy_until, right.deferred_at) == (now + LONGEST_EXCHANGE, now)
    assert right.ahead_of(now) == 0.0


@given(st.builds(HostTimes, ended=seconds, delay=seconds, hold_since=seconds), seconds)
def test_a_clock_that_only_goes_forward_changes_nothing(times, later):
    now = max(times.ended, times.hold_since) + later
    assert times.with_clock_at(now) == times
    assert times.ahead_of(now) == 0.0


@pytest.mark.parametrize(
    ("seen", "judges"),  # database's clock and moment
    [
        ([], False),
        ([(0, 0)], False),  # it has just begun
        ([(5 * n, 5 * n) for n in range(5)], True),
        ([(5 * n, 5 * n) for n in range(4)], False),  # not long enough
        ([(0, 0), (5, 5), (30, 30)], False),  # an outage, or a suspended machine
        ([(0, 0), (5, 5), (30, 30), (35, 35), (40, 40), (45, 45), (50, 50)], True),
        ([(0, 0), (5, 5), (10, 10), (3615, 15), (3620, 20)], False),  # a clock was set
        ([(0, 0), (5, 5), (10, 10), (-3585, 15), (-3580, 20)], False),
    ],
)
def test_whether_others_live_is_judged_only_after_20_s_without_a_gap(seen, judges):
    watch = Watch()
    for now, moment in seen:
        watch.see(1000.0 + now, float(moment))
    if judges:
        assert 0.0 < watch.judges_until - (1000.0 + seen[-1][0]) < WORKER_SECONDS
    else:
        assert watch.judges_until == 0.0


@given(host_times, seconds, seconds)
def test_more_that_is_asked_for_never_makes_a_host_ready_sooner(times, asked, most):
    assert times.ready_at() <= times.ready_at(asked)
    assert times.ready_at(asked, most) <= times.ready_at(asked)
    assert times.ready_at(asked) <= times.delayed(asked).ready_at(asked)
    assert times.lifted().ready_at() <= times.ready_at()


@given(host_times, moments)
def test_a_clock_that_was_set_back_is_told_and_corrected_once(times, now):
    corrected = times.with_clock_at(now)
    assert (corrected == times) == (times.ahead_of(now) == 0.0)
    assert corrected.ahead_of(now) == 0.0
