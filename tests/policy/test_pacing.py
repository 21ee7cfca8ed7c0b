"""R4, R5, decisions 3, 5, 7, 15, 28, 46: when a host may be requested. All times are given."""

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import cases
from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import (
    MAX_BLOCKLIST_WAIT_SECONDS,
    MAX_EXCHANGE_SECONDS,
    NO_HOLD,
    QUIET_SECONDS,
    Exchange,
    Hold,
    HostLoads,
    HostTimes,
    PaceBy,
    TakeoverGuard,
    VisitTime,
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
    in_flight_until=st.just(0.0) | moments,
    request_ended_at=st.none() | moments,
    delay=seconds,
    hold_since=moments,
    hold_until=moments,
    deferred_at=st.just(0.0) | moments,
    operator_delay=seconds,
)


def after(times, now, **exchange):
    """The times after an exchange without an answer, or with a `status`."""
    fields = {"delay": 1.0, "latency": 10.0, "status": 0} | exchange
    return times.after(Exchange(**fields), BACKOFF, now)


def lifted(times):
    """The times after an operator has lifted the hold, as the state writes it."""
    return replace(times, hold_until=0.0, hold_by="", hold_status=0)


def test_the_first_request_to_an_unseen_host_is_never_delayed():
    assert HostTimes().ready_at(min_delay=3600.0) == 0.0
    assert HostTimes(operator_delay=3600.0).ready_at(min_delay=3600.0) == 0.0


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
def test_request_for_the_blocklist_waits_at_most_a_day(host, rank, for_blocklist, is_bounded):
    max_wait = longest_wait(host, rank, {"list.example"}, for_blocklist=for_blocklist)
    assert max_wait == (MAX_BLOCKLIST_WAIT_SECONDS if is_bounded else math.inf)


@pytest.mark.parametrize(
    ("least", "crawl_delay", "latency", "wanted"),
    [
        (1.0, None, 0.2, 1.0),
        (1.0, 5.0, 0.2, 5.0),
        (1.0, 0.2, 0.2, 1.0),  # a Crawl-delay below a second does not make us faster
        (1.0, None, 4.0, 4.0),  # a slow answer asks for room
        (3.0, 2.0, 1.0, 3.0),
    ],
)
def test_a_delay_is_the_largest_of_all(least, crawl_delay, latency, wanted):
    assert delay_after(least, crawl_delay, latency) == wanted


def test_delay_starts_at_the_end_of_the_exchange():
    times = HostTimes(request_ended_at=107.5, delay=2.0)
    assert times.ready_at(1.0) == 109.5
    assert times.ready_at(10.0) == 117.5, "the next request may ask for more room than the last"
    assert replace(times, operator_delay=20.0).ready_at(10.0) == 127.5


def test_a_hold_and_the_delay_are_two_clocks():
    times = HostTimes(request_ended_at=100.0, delay=30.0).with_hold(100.0, Hold(5.0))
    assert times.ready_at(1.0) == 130.0
    assert times.with_hold(101.0, Hold(60.0)).ready_at(1.0) == 161.0
    longer = times.with_hold(101.0, Hold(60.0, "visit-time"))
    assert longer.with_hold(102.0, Hold(1.0)) == longer, "a hold never shrinks"
    assert longer.with_hold(102.0, NO_HOLD) == longer


def test_host_in_flight_is_ready_after_the_latest_end():
    busy = HostTimes(request_ended_at=0.0, delay=100.0, in_flight_until=165.0)
    assert busy.ready_at(1.0) == 265.0, "the exchange of a dead worker ends then"
    assert after(busy, 101.0).ready_at(1.0) == 102.0


NOW = 100_000.0


@pytest.mark.parametrize("back", [0.5, 2.0, 3600.0, 90_000.0])
@pytest.mark.parametrize("passed", [0.0, 1.0, 4.0])
@pytest.mark.parametrize(
    ("times", "asked"),
    [
        (HostTimes(request_ended_at=NOW, delay=5.0), 5.0),
        (HostTimes().with_hold(NOW, Hold(60.0)), 60.0),
        (HostTimes(request_ended_at=NOW, delay=5.0).with_hold(NOW, Hold(60.0)), 60.0),
        (HostTimes(request_ended_at=NOW, delay=90.0).with_hold(NOW, Hold(60.0)), 90.0),
        (HostTimes(request_ended_at=NOW, operator_delay=90.0), 90.0),
    ],
    ids=["delay", "hold", "hold longer", "delay longer", "operator"],
)
def test_clock_set_back_neither_lengthens_nor_shortens_a_wait(times, asked, passed, back):
    """Measured by true time; some of the wait has passed when the clock is set back."""
    now = NOW + passed - back
    wait = times.with_clock_at(now).ready_at(1.0) - now
    assert asked - passed <= wait <= asked


def test_request_in_flight_ends_although_the_clock_is_set_back():
    times = HostTimes(in_flight_until=NOW).with_clock_at(50.0)
    assert times.in_flight_until == 50.0 + MAX_EXCHANGE_SECONDS
    assert HostTimes(deferred_at=NOW).with_clock_at(50.0).deferred_at == 50.0
    lifted = HostTimes(hold_since=NOW)
    assert lifted.with_clock_at(50.0).hold_until == 0.0


@given(host_times, moments)
def test_clock_set_back_is_reported_and_corrected_once(times, now):
    corrected = times.with_clock_at(now)
    assert (corrected == times) == (times.ahead_of(now) == 0.0)
    assert corrected.ahead_of(now) == 0.0


@given(host_times, seconds, seconds)
def test_more_that_is_asked_for_never_makes_a_host_ready_sooner(times, asked, most):
    assert times.ready_at() <= times.ready_at(asked)
    assert times.ready_at(asked, most) <= times.ready_at(asked)
    assert times.ready_at(asked) <= times.delayed(asked).ready_at(asked)
    assert lifted(times).ready_at() <= times.ready_at()


def test_one_burst_counts_once():
    first = after(HostTimes(), 100.0, status=429, latency=1.0)
    assert first.refusals == 1
    assert after(first, 100.5, status=429, latency=1.0).refusals == 1, "sent before the hold began"
    assert after(first, 104.5, status=429, latency=0.3).refusals == 2


@pytest.mark.parametrize("is_lifted", [False, True])
def test_backoff_starts_again_after_half_an_hour_of_quiet(is_lifted):
    times = after(HostTimes(), 100.0, status=503, retry_after=60.0)
    times = lifted(times) if is_lifted else times
    assert after(times, 200.0, status=503).refusals == 2
    assert after(times, 170.0 + QUIET_SECONDS, status=503).refusals == 1


@pytest.mark.parametrize(
    ("times", "days"),
    [(0, 0), (1, 0), (2, 2), (3, 4), (4, 8), (5, 16), (6, 30), (7, 30), (10_000, 30)],
)
def test_hold_of_an_unreachable_host_doubles_up_to_a_month(times, days):
    assert unreachable_hold(times) == days * DAY


def test_unreachable_host_is_on_hold_from_the_second_time():
    times = HostTimes()
    for number, days in enumerate((0, 2, 4, 8), start=1):
        now = max(times.hold_until, times.request_ended_at or 0.0) + 100.0
        times = after(replace(times, in_flight_until=now + 60.0), now, unreachable=True)
        assert (times.unreachable, times.request_ended_at, times.in_flight_until) == (
            number,
            now,
            0.0,
        )
        assert max(0.0, times.hold_until - now) == days * DAY


@cases("exchange", "unreachable", "refusals")
def test_each_end_of_an_exchange_is_counted(exchange, unreachable, refusals):
    times = after(HostTimes(unreachable=3), 1000.0, **exchange)
    assert (times.unreachable, times.refusals) == (unreachable, refusals)


@pytest.mark.parametrize(
    ("exchange", "by", "refused"),
    [
        ({"status": 429, "retry_after": 120.0}, "retry-after", 429),
        ({"status": 503}, "backoff", 503),
        ({"status": 503, "retry_after": 0.0}, "backoff", 503),  # that does not cancel our own
        ({"status": 404, "retry_after": 120.0}, "retry-after", None),
        ({"status": 302, "retry_after": 120.0}, "retry-after", None),
        ({"status": 304, "retry_after": 120.0}, "retry-after", None),
        ({"status": 0, "for_robots": True}, "backoff", None),
        ({"status": 0, "unreachable": True}, "unreachable", None),
    ],
)
def test_a_hold_knows_its_cause(exchange, by, refused):
    times = after(HostTimes(unreachable=3), 1000.0, **exchange)
    assert (times.hold_by, times.hold_status) == (by, exchange["status"])
    assert times.refused == refused
    assert times.last_hold == Hold(times.hold_until - 1000.0, by, exchange["status"])
    assert times.with_hold(1000.0, Hold(9 * DAY, "visit-time")).hold_by == "visit-time"
    assert after(lifted(times), 2000.0, status=200).last_hold == NO_HOLD


@pytest.mark.parametrize("status", [301, 404])
def test_a_retry_after_of_zero_is_no_hold_without_a_refusal(status):
    times = HostTimes(request_ended_at=1.0, delay=1.0)
    assert after(times, 1000.0, status=status, retry_after=0.0).last_hold == NO_HOLD


@pytest.mark.parametrize("status", [200, 202, 206])
def test_a_retry_after_with_a_success_is_no_hold(status):
    times = HostTimes(request_ended_at=1.0, delay=1.0)
    assert after(times, 1000.0, status=status, retry_after=120.0).last_hold == NO_HOLD


def test_a_redirect_with_retry_after_is_no_refusal():
    assert after(HostTimes(), 1000.0, status=302, retry_after=120.0).refusals == 0


def test_an_unreachable_host_keeps_a_longer_hold():
    held = HostTimes(unreachable=1).with_hold(900.0, Hold(10 * DAY))
    now = held.hold_until + 10.0
    assert after(held, now, unreachable=True).hold_until == now + 2 * DAY
    longer = held.with_hold(now, Hold(30 * DAY))
    assert after(longer, now, unreachable=True).hold_until == longer.hold_until


def test_unreachable_name_does_not_hold_its_domain():
    exchange = Exchange(delay=1.0, status=0, unreachable=True, for_robots=True)
    times = HostTimes(request_ended_at=1.0).after(exchange.of_domain(), BACKOFF, 1000.0)
    assert times == HostTimes(request_ended_at=1000.0, delay=1.0)
    refused = Exchange(delay=1.0, status=503, for_robots=True)
    assert refused.of_domain() == refused, "every other outcome belongs to the domain"


def test_hold_of_its_host_delays_the_blocklist_at_most_a_day():
    """Opt-outs have to be refreshed (R3); every other request waits in full (R5)."""
    held = HostTimes(request_ended_at=900.0, delay=1e10).with_hold(1000.0, Hold(1e10))
    assert held.ready_at(1e10, MAX_BLOCKLIST_WAIT_SECONDS) == 1000.0 + DAY
    assert held.ready_at(1.0) == 1e10 + 1000.0
    operator = HostTimes(request_ended_at=900.0, operator_delay=3 * DAY)
    assert operator.ready_at(0.0, MAX_BLOCKLIST_WAIT_SECONDS) == 900.0 + 3 * DAY
    short = HostTimes(request_ended_at=900.0, delay=10.0).with_hold(1000.0, Hold(600.0))
    assert short.ready_at(1.0, MAX_BLOCKLIST_WAIT_SECONDS) == short.ready_at(1.0)


@cases("statuses", "delay", "wanted", more=[((502,) * 5000, 1.0, 300.0)])
def test_server_errors_in_a_row_double_the_delay_until_a_success(statuses, delay, wanted):
    times = HostTimes()
    for day, status in enumerate(statuses, start=1):
        times = after(times, day * DAY, status=status, delay=delay, latency=0.1)
    assert times.delay_with() == wanted
    assert times.ready_at(1.0) >= times.request_ended_at + wanted
    assert times.refusals == statuses.count(429)
    if not times.refusals:
        assert times.hold_until == 0.0, "a server error is no hold"


def test_unreachable_host_keeps_its_doubled_delay():
    slow = HostTimes(server_errors=2)
    assert after(slow, 1000.0, unreachable=True).delay_with() == 4.0
    assert after(slow, 1000.0, status=500, for_robots=True).delay_with() == 8.0


def test_hosts_or_their_domains_are_paced_together():
    assert PaceBy.HOST.unit("http://Blog.a.example./feed") == "blog.a.example"
    assert PaceBy.DOMAIN.unit("http://blog.example.co.uk:81/feed") == "example.co.uk"


class TestWatch:
    """Which process may take hosts from owners that no longer beat."""

    def watch(self, *beats):
        """TakeoverGuard with beats at these true times, or pairs of database's and true time."""
        watch = TakeoverGuard()
        for beat in beats:
            now, moment = beat if isinstance(beat, tuple) else (beat, beat)
            watch.see(1e9 + now, moment)
        return watch

    def test_takeover_is_allowed_after_45_seconds_of_beats(self):
        assert self.watch().may_take_over_until == 0.0
        assert self.watch(*range(0, 45, 5)).may_take_over_until == 0.0
        assert self.watch(*range(0, 50, 5)).may_take_over_until == 1e9 + 55.0

    @pytest.mark.parametrize(
        "gap",
        [
            [55, 60],  # an outage of the database, or a process that stood still
            [(3645, 50), (3650, 55)],  # the database's clock was set
            [(-3555, 50), (-3550, 55)],
            [(105, 105), (110, 110)],  # a suspended machine
        ],
    )
    def test_a_gap_begins_its_45_seconds_anew(self, gap):
        beats = range(0, 45 if gap[0] == 55 else 50, 5)
        assert self.watch(*beats, *gap).may_take_over_until == 0.0


@cases("exchange", "is_plain_answer")
def test_urgent_outcome_is_no_plain_answer(exchange, is_plain_answer):
    assert Exchange(delay=1.0, **exchange).is_plain_answer is is_plain_answer


@pytest.mark.parametrize(
    ("seconds", "remaining"), [(0.0, 60.0), (58.0, 2.0), (59.0, 1.0), (59.1, 0.0), (80.0, 0.0)]
)
def test_less_than_a_second_is_too_little_for_a_request(seconds, remaining):
    assert VisitTime(seconds).remaining == pytest.approx(remaining)


def deferrals(*seconds):
    """Whether the host is deferred after each of its exchanges."""
    loads = HostLoads()
    return [loads.add("slow.example", taken) is not None for taken in seconds]


def test_a_host_is_deferred_after_more_than_60_seconds():
    assert deferrals(30.0, 30.0, 0.1) == [False, False, True]


def test_many_quick_exchanges_do_not_defer_a_host():
    assert not any(deferrals(*[0.4] * 300))
    assert not any(deferrals(*[3.0] * 50))


def test_each_host_is_counted_by_itself():
    loads = HostLoads()
    assert not any(loads.add(f"h{number}.example", 30.0) for number in range(10))


@given(st.lists(st.integers(0, 60), max_size=60))
def test_a_deferred_host_took_over_60_s_and_3_s_on_average(seconds):
    totals = [(sum(seconds[:count]), count) for count in range(1, len(seconds) + 1)]
    assert deferrals(*seconds) == [total > 60 and total > 3 * count for total, count in totals]
