"""R4, R5 and decision 28: when a host may be asked again. All times are arguments."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from walsh_scrapy.policy.hosttimes import (
    LEASE_MARGIN,
    QUIET_SECONDS,
    HostTimes,
)

from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.pacing import (
    LONGEST_FOR_BLOCKLIST,
    Exchange,
    GiveBack,
    Lease,
    Release,
    after,
    longest_wait,
    silence_hold,
    spacing,
)
from walsh_scrapy.policy.readyhosts import Rank

seconds = st.floats(min_value=0, max_value=1e6)


def test_the_first_request_to_an_unseen_host_is_never_delayed():
    assert HostTimes().ready_at(spacing=3600.0) <= 0.0


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
    ("min_interval", "crawl_delay", "latency", "wanted"),
    [
        (1.0, None, 0.2, 1.0),
        (1.0, 5.0, 0.2, 5.0),
        (1.0, 0.2, 0.2, 1.0),  # a Crawl-delay below a second does not make us faster
        (1.0, None, 4.0, 4.0),  # a slow answer is a wish for room
        (3.0, 2.0, 1.0, 3.0),
    ],
)
def test_spacing_is_the_largest_of_what_is_asked(min_interval, crawl_delay, latency, wanted):
    assert spacing(min_interval, crawl_delay, latency) == wanted


def test_spacing_counts_from_the_end_of_the_exchange():
    times = HostTimes().with_lease(100.0, 60.0).with_end(107.5, interval=2.0)
    assert times.ready_at(1.0) == 109.5
    assert times.ready_at(10.0) == 117.5, "the next request may want more room than the last"


def test_a_hold_and_the_spacing_are_two_clocks():
    times = HostTimes().with_end(100.0, interval=30.0).with_hold(100.0, 5.0)
    assert times.ready_at(1.0) == 130.0
    assert times.with_hold(101.0, 60.0).ready_at(1.0) == 161.0
    assert times.with_hold(101.0, 60.0).with_hold(102.0, 1.0).hold_until == 161.0, (
        "a hold never shrinks"
    )


def test_a_leased_host_is_not_ready_until_the_lease_is_released_or_ends():
    taken = HostTimes().with_lease(100.0, 60.0)
    assert taken.ready_at(1.0) == 165.0
    assert taken.with_end(101.0, 1.0).ready_at(1.0) == 102.0


def test_a_lease_that_was_never_released_counts_as_an_exchange_of_its_whole_timeout():
    slow = HostTimes().with_end(0.0, interval=100.0).with_lease(100.0, 60.0)
    assert slow.ready_at(1.0) == 260.0, "a Crawl-delay counts from the end that may have been"
    assert slow.recheck_at(110.0, 1.0) == 111.0, "but the holder may be quick"
    assert slow.recheck_at(170.0, 1.0) == 260.0, "and a dead one gives nothing back"


ASKED_AT = 100_000.0


@pytest.mark.parametrize("back", [0.5, 2.0, 3600.0, 90_000.0])
@pytest.mark.parametrize("passed", [0.0, 1.0, 4.0])
@pytest.mark.parametrize(
    ("times", "asked"),
    [
        (HostTimes().with_end(ASKED_AT, interval=5.0), 5.0),
        (HostTimes().with_hold(ASKED_AT, 60.0), 60.0),
        (HostTimes().with_end(ASKED_AT, interval=5.0).with_hold(ASKED_AT, 60.0), 60.0),
        (HostTimes().with_end(ASKED_AT, interval=90.0).with_hold(ASKED_AT, 60.0), 90.0),
        (HostTimes().with_lease(ASKED_AT, timeout=20.0), 20.0 + LEASE_MARGIN),
        (HostTimes(interval=30.0).with_lease(ASKED_AT, timeout=20.0), 50.0),
        (HostTimes().with_hold(ASKED_AT, 60.0).with_lease(ASKED_AT, timeout=20.0), 60.0),
    ],
    ids=["spacing", "hold", "hold longer", "spacing longer", "lease", "wide lease", "hold, lease"],
)
def test_no_jump_back_makes_a_wait_longer_than_asked_nor_a_second_shorter(
    times, asked, passed, back
):
    """Measured by true time; some of the wait has passed when the clock is set back."""
    now = ASKED_AT + passed - back
    wait = times.with_clock_at(now).ready_at(1.0) - now
    assert asked - passed <= wait <= asked


@given(st.builds(HostTimes, ended=seconds, interval=seconds), seconds)
def test_a_clock_that_only_goes_forward_changes_nothing(times, later):
    assert times.with_clock_at(times.ended + later) == times


def test_one_burst_counts_once():
    first = HostTimes().with_strike(100.0, sent_at=99.0).with_hold(100.0, 4.0)
    assert first.strikes == 1
    assert first.with_strike(100.5, sent_at=99.5).strikes == 1, "it was out before the hold began"
    assert first.with_strike(104.5, sent_at=104.2).strikes == 2


def test_after_half_an_hour_of_quiet_the_backoff_starts_small_again():
    times = HostTimes().with_strike(100.0, 99.0).with_hold(100.0, 60.0)
    assert times.with_strike(200.0, 199.0).strikes == 2
    assert times.with_strike(161.0 + QUIET_SECONDS, 161.0 + QUIET_SECONDS).strikes == 1


DAY = 86_400.0
BACKOFF = Backoff(2.0, 300.0, Random(1))


def ended(times, now, **exchange):
    """The times after a leased exchange without a response, or with a `status`."""
    given = {"interval": 1.0, "latency": 10.0, "status": 0} | exchange
    leased = after(times, Lease(1.0, 60.0, "us"), now - given["latency"])
    return after(leased, Release(Exchange(**given), BACKOFF, "us"), now)


@pytest.mark.parametrize(
    ("silences", "days"),
    [(0, 0), (1, 0), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30), (10_000, 30)],
)
def test_a_host_is_tried_rarer_after_each_silence_and_at_least_once_a_month(silences, days):
    assert silence_hold(silences) == days * DAY


def test_silences_in_a_row_are_counted_and_hold_the_host_from_the_second_on():
    times = HostTimes()
    for number, days in enumerate((0, 2, 4, 8), start=1):
        now = max(times.hold_until, times.silent_at) + 100.0
        times = ended(times, now, unreachable=True)
        assert (times.silences, times.silent_at) == (number, now)
        assert max(0.0, times.hold_until - now) == days * DAY
        assert times.ended == now
        assert times.lease_until == 0.0


@pytest.mark.parametrize(
    ("exchange", "silences", "strikes"),
    [
        ({"unreachable": True}, 4, 0),
        ({"unreachable": True, "for_robots": True}, 4, 0),  # no strike, also for robots.txt
        ({"without_tls": True}, 3, 0),
        ({"without_tls": True, "for_robots": True}, 3, 0),
        ({}, 3, 0),  # a connection that broke is neither an answer nor a silence
        ({"for_robots": True}, 3, 1),
        ({"status": 200}, 0, 0),
        ({"status": 404}, 0, 0),
        ({"status": 503}, 0, 1),
        ({"status": 200, "for_robots": True}, 0, 0),
    ],
)
def test_what_each_end_of_an_exchange_counts_as(exchange, silences, strikes):
    times = ended(HostTimes(silences=3, silent_at=5.0), 1000.0, **exchange)
    assert (times.silences, times.strikes) == (silences, strikes)


@pytest.mark.parametrize(
    ("exchange", "by", "refused"),
    [
        ({"status": 429, "retry_after": "120"}, "retry-after", 429),
        ({"status": 503}, "backoff", 503),
        ({"status": 503, "retry_after": "0"}, "backoff", 503),
        ({"status": 404, "retry_after": "120"}, "retry-after", None),
        ({"status": 0, "for_robots": True}, "backoff", None),
        ({"status": 0, "unreachable": True}, "silence", None),
    ],
)
def test_a_hold_knows_what_began_it(exchange, by, refused):
    times = ended(HostTimes(silences=3), 1000.0, **exchange)
    assert (times.hold_by, times.hold_status) == (by, exchange["status"])
    assert times.refused == refused
    assert times.with_hold(1000.0, 1.0, "visit-time") == times, (
        "a longer hold stays, with its cause"
    )
    assert times.with_hold(1000.0, 9 * DAY, "visit-time").hold_by == "visit-time"
    assert (times.without_hold().hold_by, times.without_hold().refused) == ("", None)


def test_a_silence_does_not_shorten_a_hold():
    held = HostTimes(silences=1).with_hold(900.0, 10 * DAY)
    now = held.hold_until + 10.0
    assert ended(held, now, unreachable=True).hold_until == now + 2 * DAY
    longer = held.with_hold(now, 30 * DAY)
    silent = after(longer, Release(Exchange(interval=1.0, unreachable=True), BACKOFF, ""), now)
    assert silent.hold_until == longer.hold_until


def test_what_the_blocklists_own_host_asks_for_holds_the_list_for_a_day_at_most():
    """Opt-outs have to be refreshed (R3); every other request waits in full (R5)."""
    held = HostTimes(ended=900.0, interval=1e10).with_hold(1000.0, 1e10)
    assert held.with_limit(LONGEST_FOR_BLOCKLIST).ready_at(0.0) == 1000.0 + DAY
    ours, late = Lease(1e10, 60.0, "us", LONGEST_FOR_BLOCKLIST), 1000.0 + DAY
    assert after(held, ours, late - 1.0) == held
    leased = after(held, ours, late)
    assert leased.holder == "us"
    assert (leased.interval, leased.hold_until) == (1e10, 1000.0 + 1e10)
    assert after(held, Lease(1.0, 60.0, "us"), late) == held
    paused = HostTimes(ended=900.0, pause=3 * DAY)
    assert paused.with_limit(LONGEST_FOR_BLOCKLIST) == paused
    short = HostTimes(ended=900.0, interval=10.0).with_hold(1000.0, 600.0)
    assert short.with_limit(LONGEST_FOR_BLOCKLIST) == short


def test_a_request_that_was_never_sent_leaves_no_trace_but_for_the_lease_of_another():
    known = HostTimes(ended=50.0, interval=2.0, strikes=1, silences=2)
    leased = after(known, Lease(2.0, 60.0, "us"), 100.0)
    assert leased.lease_until > 100.0
    assert after(leased, GiveBack("them"), 101.0) == leased
    assert after(leased, GiveBack("us"), 101.0) == known


def after_statuses(*statuses, interval=1.0, times=None):
    """The times after these answers, one a day; the cap is 300 s."""
    times = times or HostTimes()
    for number, status in enumerate(statuses):
        exchange = Exchange(interval=interval, latency=0.1, status=status)
        now = (number + 1) * DAY
        leased = after(times, Lease(1.0, 60.0, "us"), now - 0.1)
        times = after(leased, Release(exchange, BACKOFF, "us"), now)
    return times


@pytest.mark.parametrize(
    ("statuses", "interval", "wanted"),
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
        ((500, 0, 500), 1.0, 4.0),  # no answer is no good one
        ((500, 429, 500), 1.0, 4.0),
        ((500, 501, 301, 500), 1.0, 4.0),
        ((501, 505, 301, 0), 1.0, 1.0),
    ],
)
def test_each_server_error_in_a_row_doubles_the_spacing_until_a_good_answer(
    statuses, interval, wanted
):
    times = after_statuses(*statuses, interval=interval)
    assert times.spacing_with() == wanted
    assert times.ready_at(1.0) >= times.ended + wanted
    assert times.strikes == statuses.count(429)
    if not times.strikes:
        assert times.hold_until == 0.0, "nothing is put off for it"


def test_a_server_error_of_robots_txt_slows_its_host_too_and_a_lost_lease_changes_nothing():
    exchange = Exchange(interval=1.0, status=500, for_robots=True)
    assert after(HostTimes(), Release(exchange, BACKOFF, ""), DAY).spacing_with() == 2.0
    slow = after_statuses(500, 500)
    silent = Exchange(interval=1.0, status=0, unreachable=True)
    assert after(slow, Release(silent, BACKOFF, ""), 9 * DAY).spacing_with() == 4.0
