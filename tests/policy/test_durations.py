"""ISO-8601 durations, durations as text for operators, and times as operators write them."""

# ruff: noqa: RUF001 - look-alikes are what is tested
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import cases
from walsh_scrapy.policy.durations import format_duration, parse_duration, parse_since, rfc3339
from walsh_scrapy.policy.wording import format_seconds


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("PT6H", timedelta(hours=6)),
        ("P1D", timedelta(days=1)),
        ("P1W", timedelta(weeks=1)),
        ("P1W2DT3H", timedelta(weeks=1, days=2, hours=3)),
        ("P1DT12H30M5S", timedelta(days=1, hours=12, minutes=30, seconds=5)),
        ("PT0S", timedelta(0)),
        ("PT1M", timedelta(minutes=1)),
        ("PT0.5H", timedelta(minutes=30)),
        ("PT1H1,5M", timedelta(hours=1, seconds=90)),
        ("P0.5D", timedelta(hours=12)),
        ("P0,5W", timedelta(days=3.5)),
        ("PT007S", timedelta(seconds=7)),
    ],
)
def test_durations(text, length):
    assert parse_duration(text) == length


REFUSED = [
    "P", "PT", "P1DT", "1D", "T1H", "PT1", "P1M", "P1Y", "P1Y2D", "P1MT1M", "-PT1H", "PT-1H",
    "+PT1H", "pt6h", "P1d", "PT6h", "PT1.5H30M", "P1.5DT0S", "PT1S1M", "PT.5S", "PT1.S", "PT1H1H",
    "P1H", "PT１H", "PT1_0S", "P1DT1D", "PT1e3S", "P6H", "6h", "", " ", "PT6H ", " PT6H", "PT6H\n",
    "PT 6H", "P99999999999W", "PT" + "9" * 5000 + "S",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_everything_else_is_refused_with_one_line(text):
    with pytest.raises(ValueError, match=r"duration|fraction|longer") as caught:
        parse_duration(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@given(st.integers(0, 10**9))
def test_whole_seconds_are_exact(seconds):
    assert parse_duration(f"PT{seconds}S") == timedelta(seconds=seconds)


@cases("seconds", "text", more=[(float("nan"), "0 s"), (float("inf"), "forever")])
def test_durations_for_operators(seconds, text):
    assert format_seconds(seconds) == text


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=9999)))
def test_what_is_written_is_read_back(length):
    assert parse_duration(format_duration(length)) == length


DAY = 86_400.0
NOW = datetime(2026, 5, 20, 12, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-05-20", NOW - 12 * 3600),
        ("2026-05-20T12:00:00Z", NOW),
        ("2026-05-20t14:00:00.5+02:00", NOW + 0.5),
        ("P7D", NOW - 7 * DAY),
        (" PT0S ", NOW),
        ("today", NOW - 12 * 3600),
        ("Yesterday", NOW - 36 * 3600),
        ("1d", NOW - DAY),
        ("2w", NOW - 14 * DAY),
        ("90min", NOW - 5400),
        ("12h", NOW - 12 * 3600),
    ],
)
def test_parse_since(text, moment):
    assert parse_since(text, NOW) == moment


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "1m", "-1d", "1.5d", "\uff11d", "999999999w", "d",
     "2026-13-01", "2026-05-20T12:00:00", "20260520", "P1M", "-P1D", "2026-W20",
     "2026-02-30", "9" * 400],
)  # fmt: skip
def test_since_what_is_no_time_is_refused_in_one_sentence(text):
    with pytest.raises(ValueError, match="write for example"):
        parse_since(text, NOW)


@pytest.mark.parametrize("beyond", [math.inf, math.nan, 1e30, None])
def test_a_time_after_the_year_9999_has_no_text(beyond):
    assert rfc3339(beyond) is None
