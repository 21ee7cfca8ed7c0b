"""R5 and decision 15: Retry-After in every form, our own backoff, and which of them counts."""

import calendar
import locale
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import cases
from walsh_scrapy.policy.backoff import (
    MAX_WAIT_SECONDS,
    Backoff,
    NextStep,
    backoff_delay,
    max_retries_after_silence,
    next_step,
    parse_retry_after,
    requested_wait,
)

NOW = datetime(2026, 5, 23, 12, 0, 0, tzinfo=UTC)
MOMENTS = st.datetimes(
    min_value=datetime(1990, 1, 1),  # noqa: DTZ001
    max_value=datetime(2090, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)


@cases(
    "value",
    "seconds",
    more=[
        ("9" * 5000, MAX_WAIT_SECONDS),
        ("9" * 5000 + ".5 h", MAX_WAIT_SECONDS),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_WAIT_SECONDS),
    ],
)
def test_retry_after(value, seconds):
    assert parse_retry_after(value, NOW) == seconds


@cases("value")
def test_values_that_are_no_retry_after(value):
    assert parse_retry_after(value, NOW) is None


@cases("now", "digits", "year")
def test_two_digit_years_are_never_more_than_50_years_ahead(now, digits, year):
    present = datetime(now, 1, 1, tzinfo=UTC)
    seconds = parse_retry_after(f"Monday, 02-Feb-{digits} 00:00:00 GMT", present)
    ahead = (datetime(year, 2, 2, tzinfo=UTC) - present).total_seconds()
    assert seconds == max(0.0, ahead)


def test_exactly_50_years_is_still_the_future():
    assert parse_retry_after("Saturday, 23-May-76 12:00:00 GMT", NOW) == 18263 * 86400.0
    assert parse_retry_after("Saturday, 23-May-76 12:00:01 GMT", NOW) == 0.0


def test_now_may_be_in_any_time_zone():
    there = NOW.astimezone(timezone(timedelta(hours=9)))
    assert parse_retry_after("Sat, 23 May 2026 12:01:30 GMT", there) == 90.0


def test_month_names_do_not_depend_on_the_locale(monkeypatch):
    monkeypatch.setattr(calendar, "month_abbr", ["", *"abcdefghijkl"])
    monkeypatch.setattr(locale, "getlocale", lambda *_: ("de_DE", "UTF-8"))
    assert parse_retry_after("Sat, 23 May 2026 12:01:30 GMT", NOW) == 90.0


@given(MOMENTS, MOMENTS)
def test_every_date_in_every_form_is_its_distance(now, when):
    when = when.replace(microsecond=0)
    ahead = max(0.0, (when - now).total_seconds())
    day, month, clock = format_datetime(when)[:3], format_datetime(when)[8:11], f"{when:%H:%M:%S}"
    assert parse_retry_after(format_datetime(when, usegmt=True), now) == ahead
    assert parse_retry_after(f"{day} {month} {when.day:2} {clock} {when.year}", now) == ahead
    if abs(when - now) < timedelta(days=49 * 365):
        rfc850 = f"Monday, {when.day:02}-{month}-{when.year % 100:02} {clock} GMT"
        assert parse_retry_after(rfc850, now) == ahead


@given(st.integers(0, 10**9) | st.integers(10**14, 10**40))
def test_any_number_of_seconds_is_kept(seconds):
    assert parse_retry_after(str(seconds), NOW) == min(float(seconds), MAX_WAIT_SECONDS)


YEAR = 366 * 86_400
UNITS = {"": 1, "s": 1, " sec": 1, " Seconds": 1, "m": 60, " min": 60, "H": 3600, " hours": 3600}


@given(st.decimals(0, 10**5, places=4), st.sampled_from(sorted(UNITS)))
def test_any_number_with_a_unit_is_rounded_up(number, unit):
    exact = number * UNITS[unit]
    seconds = parse_retry_after(f"{number:f}{unit}", NOW)
    assert seconds.is_integer()
    assert exact <= seconds < exact + 1


@given(MOMENTS, st.integers(-YEAR + 1, YEAR - 1), st.sampled_from([1, 1000]))
def test_any_number_near_now_is_a_moment(now, ahead, scale):
    moment = int(now.timestamp()) + ahead
    seconds = parse_retry_after(str(moment * scale), now)
    assert seconds == pytest.approx(max(0.0, moment - now.timestamp()), abs=1e-3)


ITEMS = st.one_of(
    st.integers(0, 10**6).map(str),
    st.sampled_from(["2 min", '"7"', "0.5", "soon", "", "-3"]),
    MOMENTS.map(lambda moment: format_datetime(moment, usegmt=True)),
)


@given(st.lists(ITEMS, min_size=1), st.sampled_from([",", ", ", "\n"]))
def test_longest_item_of_a_list_is_used(items, separator):
    waits = [parse_retry_after(item, NOW) for item in items]
    longest = max((seconds for seconds in waits if seconds is not None), default=None)
    assert parse_retry_after(separator.join(items), NOW) == longest


@cases("value", "date", "seconds")
def test_slower_clock_is_used(value, date, seconds):
    assert requested_wait(value, date, NOW) == seconds


def test_unreadable_value_asks_for_no_wait():
    assert requested_wait("soon", "Sat, 23 May 2026 12:00:00 GMT", NOW) is None
    assert requested_wait("", None, NOW) is None


@pytest.mark.parametrize(("attempt", "least"), [(0, 2), (1, 4), (2, 8), (3, 16), (6, 128)])
def test_delays_double_and_jitter_goes_upward_only(attempt, least):
    delays = [backoff_delay(attempt, 2.0, 300.0, Random(seed)) for seed in range(200)]
    assert min(delays) >= least
    assert max(delays) <= min(300.0, least * 1.5)
    assert len(set(delays)) > 50


@given(
    st.integers(-5, 10**6),
    st.floats(0, 1e300, allow_subnormal=False),
    st.floats(0, 1e300),
    st.integers(),
)
def test_delays_stay_within_their_bounds(attempt, base, cap, seed):
    delay = backoff_delay(attempt, base, cap, Random(seed))
    assert min(base, cap) <= delay <= cap


@pytest.mark.parametrize("cap", [3 * 2.0, 100.0, 300.0])
def test_a_delay_at_the_cap_has_jitter_too(cap):
    delays = [backoff_delay(10**6, 2.0, cap, Random(seed)) for seed in range(200)]
    assert min(delays) >= cap / 1.5
    assert max(delays) <= cap
    assert len(set(delays)) > 190


def test_smallest_cap_leaves_room_for_one_doubling_and_jitter():
    delays = [[backoff_delay(n, 2.0, 6.0, Random(seed)) for n in (0, 1)] for seed in range(200)]
    assert max(first for first, _ in delays) <= 3.0
    assert min(second for _, second in delays) >= 4.0


def hold(status, retry_after, attempt=1):
    return Backoff(2.0, 300.0, Random(7)).hold(status, retry_after, attempt)


OURS = backoff_delay(1, 2.0, 300.0, Random(7))


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (None, OURS),
        (120.0, 120.0),
        (1.0, 1.0),  # instead of the computed delay, shorter ones too
        (90000.0, 90000.0),  # never capped downward
        (0.0, OURS),  # does not cancel our own backoff
    ],
)
def test_the_hold_after_a_response(status, retry_after, seconds):
    assert hold(status, retry_after) == seconds


@pytest.mark.parametrize(
    ("status", "retry_after", "seconds"),
    [
        (200, None, 0.0),
        (404, None, 0.0),
        (301, 60.0, 60.0),
        (200, 60.0, 60.0),
        (200, 0.0, 0.0),
        (500, None, OURS),
        (502, 60.0, 60.0),
        (0, None, OURS),  # no answer at all
    ],
)
def test_other_statuses(status, retry_after, seconds):
    assert hold(status, retry_after) == seconds


@pytest.mark.parametrize(
    ("max_retries", "timed_out", "is_slow", "retries"),
    [(4, False, False, 4), (4, True, False, 1), (0, True, False, 0), (4, True, True, 0)],
    ids=["no answer", "a timeout", "a timeout, without retries", "too slow"],
)
def test_retries_of_a_robots_txt_without_answer(max_retries, timed_out, is_slow, retries):
    allowed_retries = max_retries_after_silence(max_retries, timed_out=timed_out, is_slow=is_slow)
    assert allowed_retries == retries


@pytest.mark.parametrize(
    ("attempt", "chosen", "refusals", "of_rank", "for_robots", "step"),
    [
        (1, None, 1, 1, False, NextStep.RETRY),
        (4, None, 4, 4, False, NextStep.RETRY),
        (5, None, 5, 5, False, NextStep.GIVE_UP),
        # Other requests of the host were refused before this one.
        (1, None, 5, 5, False, NextStep.DEFER),
        (1, None, 5, 5, True, NextStep.GIVE_UP),
        (1, None, 5, 1, False, NextStep.GIVE_UP),
        # A project may choose fewer retries, or more.
        (1, 0, 1, 1, False, NextStep.STOP),
        (1, 0, 5, 5, False, NextStep.GIVE_UP),
        (6, 6, 6, 6, False, NextStep.RETRY),
        (7, 6, 7, 7, False, NextStep.GIVE_UP),
    ],
)
def test_next_step_after_a_failed_attempt(attempt, chosen, refusals, of_rank, for_robots, step):
    counts = {"refusals": refusals, "refusals_of_rank": of_rank, "for_robots": for_robots}
    assert next_step(attempt, 4, chosen, **counts) is step
