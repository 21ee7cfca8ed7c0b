"""When a source is due again: after the longest interval, at most 30 days (R8, decision 20)."""

import os
import time
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy.http import Response

from tests.helpers import cases
from walsh_scrapy.feeds.freshness import Freshness, UpdateHints, not_before, update_hints
from walsh_scrapy.feeds.metadata.entries import Feed
from walsh_scrapy.feeds.sourcevisit import freshness_of
from walsh_scrapy.policy.backoff import MAX_WAIT_SECONDS
from walsh_scrapy.policy.durations import MAX_REVISIT_SECONDS

HOUR, DAY = 3600.0, 86_400.0
#: A Thursday at noon.
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC).timestamp()
LATER = "Thu, 01 Jan 2026 14:00:00 GMT"


@cases(
    "headers", "seconds", more=[({"cache_control": "max-age=" + "9" * 400, "age": "9" * 400}, 0.0)]
)
def test_the_freshness_lifetime_of_a_response(headers, seconds):
    assert Freshness(**headers).lifetime(NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("headers", "is_unspecified"),
    [({}, True), ({"cache_control": ""}, True), ({"cache_control": "public"}, False),
     ({"expires": ""}, False), ({"expires": "0"}, False)],
)  # fmt: skip
def test_304_without_lifetime_keeps_the_stored_one(headers, is_unspecified):
    assert Freshness(**headers).is_unspecified is is_unspecified


def test_repeated_header_uses_the_longest_or_the_first_value():
    def lifetime(status=200, **headers):
        lines = {name.replace("_", "-"): list(values) for name, values in headers.items()}
        response = Response("http://a.example/", status, lines)
        return freshness_of(response).lifetime(NOW)

    assert lifetime(retry_after=("120", "60")) == lifetime(retry_after=("60", "120")) == 120.0
    assert lifetime(cache_control=("max-age=600", "public"), age=("60", "500")) == 540.0
    assert lifetime(cache_control=("max-age=600", "no-store")) == 0.0
    assert lifetime(expires=(LATER, "0")) == 2 * HOUR
    assert lifetime(expires=("0", LATER)) == 0.0


@cases("feed", "seconds")
def test_the_update_interval_of_a_feed(feed, seconds):
    hints = update_hints(Feed(title=None, language=None, entries=(), **feed))
    assert hints.interval == seconds


@cases("operator_interval", "server_interval", "feed_interval", "seconds")
@pytest.mark.parametrize("failures", [0, 9])
def test_longer_interval_of_server_and_feed_is_used(
    operator_interval, server_interval, feed_interval, seconds, failures
):
    hints = UpdateHints(feed_interval)
    next_visit = not_before(NOW, server_interval, hints, operator_interval, failures)
    assert next_visit == NOW + seconds


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@cases(
    "hours",
    "days",
    "moment",
    "opens",
    more=[(range(24), (), "2026-01-01T12:30", "2026-01-01T12:30")],
)
def test_no_visit_in_hours_and_on_days_to_skip(hours, days, moment, opens):
    hints = UpdateHints(skip_hours=frozenset(hours), skip_days=frozenset(days))
    assert hints.opens(at(moment)) == at(opens)
    yesterday = at(moment) - DAY
    next_visit = not_before(yesterday, 0.0, hints, DAY)
    assert next_visit == (at(opens) if opens != moment else yesterday), (
        "outside these hours and days nothing delays a visit"
    )


def test_hours_to_skip_are_not_those_of_the_machine(monkeypatch):
    hints = UpdateHints(skip_hours=frozenset({12}), skip_days=frozenset({"Friday"}))
    monkeypatch.setitem(os.environ, "TZ", "Asia/Tokyo")
    time.tzset()
    try:
        opens = [hints.opens(at(f"2026-01-{moment}")) for moment in ("01T12:30", "01T21:30")]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert opens == [at("2026-01-01T13:00"), at("2026-01-01T21:30")]


def test_failures_delay_the_hour_in_which_a_source_would_be_due():
    hints = UpdateHints(skip_hours=frozenset({12}))
    opens = [not_before(NOW, 0.0, hints, DAY, failures) - NOW for failures in (0, 1, 2, 4, 99)]
    assert opens == [DAY + HOUR, DAY + HOUR, 2 * DAY + HOUR, 8 * DAY + HOUR, 0.0]


SECONDS = st.floats(0.0, 400 * DAY) | st.floats(0.0, 1e13)
SKIPS = st.builds(
    UpdateHints,
    SECONDS,
    st.frozensets(st.integers(0, 23)),
    st.frozensets(st.sampled_from(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"])),
)


@given(SECONDS, SKIPS, SECONDS, st.integers(0, 60))
@example(0.0, UpdateHints(skip_days=frozenset({"Thursday"})), 0.0, 0)
def test_next_visit_is_neither_too_early_nor_too_late(
    server_interval, hints, operator_interval, failures
):
    """With any hours and days to skip: not before the longest interval, and within 30 days."""
    longest = max(MAX_REVISIT_SECONDS, min(operator_interval, MAX_WAIT_SECONDS))
    next_visit = not_before(NOW, server_interval, hints, operator_interval, failures)
    assert NOW + min(max(server_interval, hints.interval), longest) <= next_visit <= NOW + longest
    doubled = min(operator_interval, MAX_WAIT_SECONDS) * 2.0 ** max(failures - 1, 0)
    due = max(next_visit, NOW + min(doubled, longest))
    if due < NOW + longest:
        assert hints.opens(due) == due
