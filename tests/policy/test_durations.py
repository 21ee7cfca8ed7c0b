"""ISO-8601 durations, durations as text for operators, and times as operators write them."""

import math
import os
import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import cases
from walsh_scrapy.policy.durations import format_duration, parse_duration, parse_since, rfc3339
from walsh_scrapy.policy.wording import (
    ReasonGroups,
    count_of,
    for_others,
    format_relative,
    format_seconds,
    kind_of,
    printable,
    shorten,
)
from walsh_scrapy.tools.show import align


@cases("text", "seconds")
def test_durations(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@cases("text", more=["PT" + "9" * 5000 + "S"])
def test_everything_else_is_refused_with_one_line(text):
    with pytest.raises(ValueError, match=r"duration|fraction|too long") as caught:
        parse_duration(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@cases("seconds", "text", more=[(float("nan"), "0 s"), (float("inf"), "forever")])
def test_durations_for_operators(seconds, text):
    assert format_seconds(seconds) == text


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=9999)))
def test_written_duration_is_read_back(length):
    assert parse_duration(format_duration(length)) == length


NOW = datetime(2026, 5, 20, 12, 0, tzinfo=UTC).timestamp()


@cases("text", "seconds_ago")
def test_parse_since(text, seconds_ago):
    assert parse_since(text, NOW) == NOW - seconds_ago


@pytest.mark.parametrize(("text", "days"), [("today", 0), ("yesterday", 1)])
def test_a_day_begins_at_midnight_in_utc(monkeypatch, text, days):
    """Also where another day has begun."""
    evening = datetime(2026, 5, 20, 23, 30, tzinfo=UTC).timestamp()
    monkeypatch.setitem(os.environ, "TZ", "Asia/Tokyo")
    time.tzset()
    try:
        midnight = parse_since(text, evening)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert midnight == datetime(2026, 5, 20 - days, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "1m", "-1d", "1.5d", "\uff11d", "999999999w", "d",
     "2026-13-01", "2026-05-20T12:00:00", "20260520", "P1M", "-P1D", "2026-W20",
     "2026-02-30", "9" * 400],
)  # fmt: skip
def test_invalid_time_for_since_is_refused(text):
    with pytest.raises(ValueError, match="write for example"):
        parse_since(text, NOW)


@pytest.mark.parametrize("beyond", [math.inf, math.nan, 1e30, None])
def test_a_time_after_the_year_9999_has_no_text(beyond):
    assert rfc3339(beyond) is None


# Text from servers and files is safe to print on a terminal, and reasons are grouped.


def test_cells_are_aligned_by_their_width_on_a_terminal():
    assert list(align([["a", "日本"], ["bbb", "c"]])) == ["a    日本", "bbb  c"]


def test_printable_text_is_unchanged():
    text = "na\u00efve \U0001f469\u200d\U0001f52c"
    assert printable(text) == text


def test_nouns_follow_their_number():
    assert [count_of(number, "domain") for number in (0, 1, 2)] == [
        "0 domains",
        "1 domain",
        "2 domains",
    ]
    assert count_of(1, "entry", "entries") == "1 entry"
    assert count_of(2, "entry", "entries") == "2 entries"


@cases("text", "shown")
def test_published_text_has_no_address_and_no_credential(text, shown):
    assert for_others(text) == shown
    assert for_others(shown) == shown


@given(st.text("aT@%40:/?&;=#. tokenkey", max_size=60))
def test_removing_addresses_twice_changes_no_more(text):
    once = for_others(text)
    assert for_others(once) == once


@cases("reason", "kind")
def test_a_kind_of_failure_names_no_host(reason, kind):
    assert kind_of(reason, "a.example") == kind


def test_hosts_of_one_reason_are_one_group():
    groups = ReasonGroups()
    for number in range(12):
        groups.add(f"h{number}.example", f"h{number}.example timed out: after {number} s")
    for name in ("x", "y", "x"):
        groups.add(f"{name}.example", f"{name}.example answered 404")
    slow, lost = groups.largest_first()
    assert (slow.reason, slow.sources, len(slow.hosts)) == ("timed out", 12, 12)
    assert lost == ("answered 404", 3, ("x.example", "y.example"))


def test_a_list_of_one_more_than_is_shown():
    assert shorten(("a", "b", "c"), 2) == "a, b and 1 more host"
    assert shorten((), 2) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "now"),
        (59.6, "in 1 min"),
        (82_900.0, "in 23 h"),
        (-86_399.6, "1 d ago"),
        (-3 * 86_400.0 - 7200.0, "3 d ago"),
        (-40 * 86_400.0, "40 d ago"),
    ],
)
def test_a_moment_is_shown_by_its_distance(seconds, text):
    assert format_relative(seconds) == text
