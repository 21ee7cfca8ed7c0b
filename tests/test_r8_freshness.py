"""When a source is due again: the longest that anybody asks for, at most 30 days (decision 20)."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from walsh_scrapy.metadata.entries import Feed
from walsh_scrapy.policy.backoff import LONGEST_SECONDS
from walsh_scrapy.policy.freshness import (
    LONGEST_REVISIT,
    NEVER,
    Due,
    Freshness,
    LastVisit,
    Wishes,
    due,
)

HOUR, DAY = 3600.0, 86_400.0
#: A Thursday at noon.
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC).timestamp()
LATER = "Thu, 01 Jan 2026 14:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"cache_control": "max-age=3600"}, HOUR),
        ({"cache_control": "public, MAX-AGE=60 , must-revalidate"}, 60.0),
        ({"cache_control": 'max-age="120"'}, 120.0),
        ({"cache_control": "max-age=60, max-age=600"}, 600.0),
        ({"cache_control": "s-maxage=600"}, 0.0),
        ({"cache_control": "no-cache"}, 0.0),
        ({"cache_control": "max-age=-5"}, 0.0),
        ({"cache_control": "max-age=x"}, 0.0),
        ({"cache_control": "max-age=\uff11\uff12"}, 0.0),
        ({"cache_control": "max-age=" + "9" * 400, "age": "9" * 400}, 0.0),
        ({"cache_control": "max-age=3600", "age": "600"}, 3000.0),
        ({"cache_control": "max-age=600", "age": "3600"}, 0.0),
        ({"cache_control": "max-age=600", "age": "-1"}, 600.0),
        ({"expires": LATER}, 2 * HOUR),
        ({"expires": LATER, "date": "Thu, 01 Jan 2026 13:00:00 GMT"}, HOUR),
        ({"expires": LATER, "date": "no date"}, 2 * HOUR),
        ({"expires": LATER, "cache_control": "max-age=60"}, 60.0),
        ({"expires": LATER, "cache_control": "public"}, 2 * HOUR),
        ({"expires": "0"}, 0.0),
        ({"expires": "-1"}, 0.0),
        ({"expires": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry_after": "120"}, 120.0),
        ({"retry_after": LATER, "cache_control": "max-age=60"}, 2 * HOUR),
        ({"retry_after": "soon"}, 0.0),
    ],
)
def test_headers_say_how_long_an_answer_will_do(headers, seconds):
    assert Freshness(**headers).lifetime(NOW) == pytest.approx(seconds)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(Freshness.__slots__, st.text())))
def test_whatever_headers_hold_they_ask_for_a_length_of_time(headers):
    assert 0.0 <= Freshness(**headers).lifetime(NOW) < float("inf")


@pytest.mark.parametrize(
    ("feed", "seconds"),
    [
        ({}, 0.0),
        ({"ttl": 60.0}, HOUR),
        ({"update_period": "hourly"}, HOUR),
        ({"update_period": "daily", "update_frequency": 2}, DAY / 2),
        ({"update_frequency": 4}, DAY / 4),
        ({"update_period": "weekly", "ttl": 60.0}, 7 * DAY),
        ({"update_period": "hourly", "ttl": 1440.0}, DAY),
        ({"expired": True}, LONGEST_REVISIT),
    ],
)
def test_feeds_say_how_often_they_change(feed, seconds):
    assert Wishes.of(Feed(title=None, language=None, entries=(), **feed)).interval == seconds


@pytest.mark.parametrize(
    ("least", "asked", "failures", "wished", "seconds"),
    [
        (DAY, 0.0, 0, 0.0, DAY),
        (DAY, 3 * DAY, 0, 0.0, 3 * DAY),
        (DAY, 3 * DAY, 0, 5 * DAY, 5 * DAY),
        (DAY, 365 * DAY, 0, 0.0, LONGEST_REVISIT),
        (DAY, 0.0, 0, 365 * DAY, LONGEST_REVISIT),
        (60 * DAY, 0.0, 0, 0.0, 60 * DAY),  # the operator may come less often still
        (9e12, 0.0, 0, 0.0, LONGEST_SECONDS),  # `every = "P100000000D"`, beyond all calendars
        (DAY, 0.0, 1, 0.0, DAY),
        (DAY, 0.0, 2, 0.0, 2 * DAY),
        (DAY, 0.0, 5, 0.0, 16 * DAY),
        (DAY, 0.0, 6, 0.0, LONGEST_REVISIT),
        (DAY, 0.0, 10_000, 0.0, LONGEST_REVISIT),
        (0.0, 0.0, 9, 0.0, 0.0),
        (0.0, HOUR, 0, 0.0, HOUR),
    ],
)
def test_the_longest_wins_and_failures_double(least, asked, failures, wished, seconds):
    last = LastVisit(NOW, asked, failures, Wishes(wished))
    assert due(last, least, NOW).at == NOW + seconds


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("hours", "days", "moment", "opens"),
    [
        ((), (), "2026-01-01T12:30", "2026-01-01T12:30"),
        ((11, 13), (), "2026-01-01T12:30", "2026-01-01T12:30"),
        ((12,), (), "2026-01-01T12:30", "2026-01-01T13:00"),
        ((12, 13, 14), (), "2026-01-01T12:00", "2026-01-01T15:00"),
        ((22, 23, 0), (), "2026-01-01T22:59:59", "2026-01-02T01:00"),
        ((), ("Thursday",), "2026-01-01T12:30", "2026-01-02T00:00"),
        ((0,), ("Thursday", "Friday"), "2026-01-01T12:30", "2026-01-03T01:00"),
        # Whoever skips all of them asks for nothing that can be done.
        (range(24), (), "2026-01-01T12:30", "2026-01-01T12:30"),
    ],
)
def test_hours_and_days_to_skip_are_waited_out(hours, days, moment, opens):
    wishes = Wishes(skip_hours=frozenset(hours), skip_days=frozenset(days))
    assert wishes.opens(at(moment)) == at(opens)
    yesterday = at(moment) - DAY
    assert due(LastVisit(yesterday, wishes=wishes), DAY, yesterday).at == at(opens)
    late = due(LastVisit(at(moment) - 9 * DAY, wishes=wishes), DAY, at(moment)).at
    assert max(late, at(moment)) == at(opens)


SKIPPING = Wishes(2 * DAY, frozenset({12}))


@pytest.mark.parametrize(
    ("last", "decided"),
    [
        (None, Due(0.0, "new")),
        (LastVisit(NOW), Due(NOW + DAY, "operator")),
        (LastVisit(NOW, asked=DAY, wishes=Wishes(DAY)), Due(NOW + DAY, "operator")),
        (LastVisit(NOW, asked=2 * DAY), Due(NOW + 2 * DAY, "server")),
        (LastVisit(NOW, asked=2 * DAY, wishes=Wishes(2 * DAY)), Due(NOW + 2 * DAY, "feed")),
        (LastVisit(NOW, failures=1), Due(NOW + DAY, "failing")),
        (LastVisit(NOW, failures=3), Due(NOW + 4 * DAY, "failing")),
        (LastVisit(NOW, asked=5 * DAY, failures=3), Due(NOW + 5 * DAY, "server")),
        (LastVisit(NOW, wishes=SKIPPING), Due(NOW + 2 * DAY + HOUR, "skip")),
        (LastVisit(NOW - 9 * DAY, wishes=SKIPPING), Due(NOW + HOUR, "skip")),
        (LastVisit(NOW - 40 * DAY, wishes=SKIPPING), Due(NOW - 38 * DAY, "feed")),
        (LastVisit(NOW, DAY, 9, is_resumed=True), Due(0.0, "resumed")),
        (LastVisit(NOW, wishes=SKIPPING, is_resumed=True), Due(NOW + HOUR, "skip")),
        (LastVisit(NOW, is_gone=True), Due(NEVER, "gone")),
        # Noted by a clock that is a little ahead, or was wrong.
        (LastVisit(NOW + 60.0), Due(NOW + 60.0 + DAY, "operator")),
        (LastVisit(NOW + 2 * HOUR, asked=DAY), Due(0.0, "new")),
        (LastVisit(NOW + 900 * DAY, is_gone=True), Due(NEVER, "gone")),
    ],
)
def test_what_decides_has_a_name(last, decided):
    assert due(last, DAY, NOW) == decided


@pytest.mark.parametrize(
    ("least", "asked", "seconds"),
    [(7 * DAY, 0.0, 7 * DAY), (DAY, 0.0, DAY), (DAY, 3 * DAY, 3 * DAY), (0.0, HOUR, HOUR)],
)
def test_the_operators_time_counts_as_it_is_now_and_never_under_what_was_asked(
    least, asked, seconds
):
    """Nothing of the time that was in force at the visit is left in what it left."""
    assert due(LastVisit(NOW, asked), least, NOW + HOUR / 2).at == NOW + seconds


SECONDS = st.floats(0.0, 400 * DAY) | st.floats(0.0, 1e13)
SKIPS = st.builds(
    Wishes,
    SECONDS,
    st.frozensets(st.integers(0, 23)),
    st.frozensets(st.sampled_from(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"])),
)
VISITS = st.builds(LastVisit, st.just(NOW), SECONDS, st.integers(0, 60), SKIPS)


@given(VISITS, SECONDS, st.floats(0.0, 500 * DAY))
@example(LastVisit(NOW, wishes=Wishes(skip_days=frozenset({"Thursday"}))), 0.0, DAY / 2)
def test_the_next_visit_is_never_too_early_and_comes_in_the_end(last, least, waited):
    """Whatever is to be skipped: not before all the time that was asked for, and by 30 days."""
    now = NOW + waited
    latest = NOW + max(LONGEST_REVISIT, min(least, LONGEST_SECONDS))
    found = due(last, least, now)
    assert min(NOW + max(least, last.asked, last.wishes.interval), latest) <= found.at
    assert found.at <= max(now, latest)
    if found.at <= now < latest:
        assert last.wishes.opens(now) == now
    said = max(now, found.at)  # one in the past means now; an hour to skip may have been there
    assert due(last, least, said).at <= said, "it is due when it was said to be"
