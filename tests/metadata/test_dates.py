"""Dates of feeds become RFC 3339 in UTC; an impossible date is None."""

import os
import re
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import cases
from walsh_scrapy.metadata.dates import date_in_utc

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


@cases("text", "expected")
def test_iso_8601(text, expected):
    assert date_in_utc(text) == expected


@cases("text", "expected")
def test_dates_with_names_of_months(text, expected):
    assert date_in_utc(text) == expected


@cases("text")
def test_impossible_dates_are_none(text):
    assert date_in_utc(text) is None


@pytest.mark.parametrize("value", [None, 5, 5.5, True, [], {}, b"2026-05-23"])
def test_a_value_that_is_no_text_is_no_date(value):
    assert date_in_utc(value) is None


def test_the_time_zone_of_the_machine_does_not_matter(monkeypatch):
    monkeypatch.setitem(os.environ, "TZ", "Asia/Kathmandu")
    time.tzset()
    try:
        assert date_in_utc("2026-05-23T10:00:00+0545") == "2026-05-23T04:15:00Z"
        assert date_in_utc("Wed, 03 Jan 2018 14:11:52 GMT") == "2018-01-03T14:11:52Z"
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.datetimes(min_value=datetime(1000, 1, 2)))  # noqa: DTZ001 - the zone is written below
def test_every_moment_survives(moment):
    seconds = f"{moment:%Y-%m-%dT%H:%M:%S}Z"
    assert date_in_utc(seconds) == seconds
    assert date_in_utc(f"{moment:%Y%m%dT%H%M%S}Z") == seconds


PARTS = st.sampled_from(
    [*"0123 :/-.,+TZ", "Fri", "Jan", "2020", "14:33", "PM", "GMT", "Europe/Paris", "(x)", "0100"]
)


@given(st.lists(PARTS, max_size=12).map("".join) | st.text(max_size=40))
def test_any_text_is_a_time_or_none(text):
    found = date_in_utc(text)
    assert found is None or TIME.fullmatch(found)


FORMATS = [
    "%a, %d %b %Y %H:%M:%S %z", "%A, %B %d, %Y %I:%M:%S %p %z", "%d-%b-%Y %H:%M:%S %z",
    "%a %b %d %H:%M:%S %z %Y", "%Y/%m/%d %I:%M:%S%p %z", "%Y-%m-%d %H:%M:%S%z",
]  # fmt: skip


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2070, 1, 1)),  # noqa: DTZ001
    st.integers(-14 * 60, 14 * 60),
    st.sampled_from(FORMATS),
)
def test_a_moment_survives_every_form_in_every_zone(moment, minutes, form):
    local = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert date_in_utc(local.strftime(form)) == f"{local.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"
