"""Dates of feeds become RFC 3339 in UTC; an impossible date is None."""

# ruff: noqa: RUF001 - look-alikes are what is tested
import os
import re
import time
from datetime import datetime

import pytest
from feedparser.datetimes import _parse_date
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.metadata.feeds.dates import date_in_utc

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


def read(text):
    return date_in_utc(text, _parse_date(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-23", "2026-05-23T00:00:00Z"),
        ("2026-05", "2026-05-01T00:00:00Z"),
        ("2026", "2026-01-01T00:00:00Z"),
        ("2026-05-23T10:00:00Z", "2026-05-23T10:00:00Z"),
        (" 2026-05-23t10:00:00z ", "2026-05-23T10:00:00Z"),
        ("2026-05-23T10:00Z", "2026-05-23T10:00:00Z"),
        ("2026-05-23T10:00:00.999999999Z", "2026-05-23T10:00:00Z"),
        ("2026-05-23T10:00:00+05:30", "2026-05-23T04:30:00Z"),
        ("2026-05-23T10:00:00+0530", "2026-05-23T04:30:00Z"),
        ("2026-05-23T10:00:00-05", "2026-05-23T15:00:00Z"),
        ("2026-05-23 10:00:00 +0200", "2026-05-23T08:00:00Z"),
        ("2026-05-23 10:00:00 UTC", "2026-05-23T10:00:00Z"),
        ("2026-05-23 10:00:00", "2026-05-23T10:00:00Z"),
        ("20260523T101112Z", "2026-05-23T10:11:12Z"),
        ("20260523T101112+0200", "2026-05-23T08:11:12Z"),
        ("20260523", "2026-05-23T00:00:00Z"),
        ("2026-12-31T23:30:00-01:00", "2027-01-01T00:30:00Z"),
    ],
)
def test_iso_8601(text, expected):
    assert date_in_utc(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Wed, 03 Jan 2018 14:11:52 GMT", "2018-01-03T14:11:52Z"),
        ("Wed,03 Jan 2018 14:11:52 GMT", "2018-01-03T14:11:52Z"),
        ("Wed, 3 Jan 2018 14:11 +0100", "2018-01-03T13:11:00Z"),
        ("3 Jan 18 14:11:52 -0300", "2018-01-03T17:11:52Z"),
        ("Wed, 03 Jan 2018 14:11:52 EST", "2018-01-03T19:11:52Z"),
        ("Wednesday, 03 January 2018 14:11:52 Z", "2018-01-03T14:11:52Z"),
        ("Wed, 03 Jan 2018", "2018-01-03T00:00:00Z"),
        ("Sun Jan  4 16:29:06 2004", "2004-01-04T16:29:06Z"),
        ("Sun Jan  4 16:29:06 PST 2004", "2004-01-05T00:29:06Z"),
        ("Seg, 24 Set 2018 19:42:40 -0300", "2018-09-24T22:42:40Z"),
        ("lun., 24 sept. 2018 19:42:40 +0200", "2018-09-24T17:42:40Z"),
        ("Mi, 24 Okt 2018 19:42 +0200", "2018-10-24T17:42:00Z"),
        ("dim. 2 août 2018 19:42:40 GMT", "2018-08-02T19:42:40Z"),
        ("24 juillet 2018 19:42:40", "2018-07-24T19:42:40Z"),
    ],
)
def test_dates_with_names_of_months(text, expected):
    assert read(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "yesterday",
        "0000-00-00",
        "0000-00-00T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "2026-13-01",
        "2026-00-10",
        "2026-02-30",
        "2026-05-23T25:00:00Z",
        "2026-05-23T10:61:00Z",
        "2026-05-23T10:00:00+99:00",
        "9999-12-31T23:59:59-01:00",
        "32 Jan 2026 00:00:00 GMT",
        "Mon, 30 Feb 2026 00:00:00 GMT",
        "Seg, 31 Set 2018 19:42:40 -0300",
        "Wed, 03 Foo 2018 14:11:52 GMT",
        "1516900000",
        "2026/05/23",
        "12:00",
        "T10:00",
        "-26",
        "２０２６-05-23",
        "2026-05-23T10:00:00Z" + " " * 100 + "x",
    ],
)
def test_impossible_dates_are_none(text):
    assert read(text) is None


@pytest.mark.parametrize("value", [None, 5, 5.5, True, [], {}, b"2026-05-23"])
def test_a_value_that_is_no_text_is_no_date(value):
    assert date_in_utc(value) is None


def test_the_time_zone_of_the_machine_does_not_matter(monkeypatch):
    monkeypatch.setitem(os.environ, "TZ", "Asia/Kathmandu")
    time.tzset()
    try:
        assert read("2026-05-23T10:00:00+0545") == "2026-05-23T04:15:00Z"
        assert read("Wed, 03 Jan 2018 14:11:52 GMT") == "2018-01-03T14:11:52Z"
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.text(max_size=40) | st.from_regex(r"[0-9TZ:+. -]{4,30}", fullmatch=True))
def test_any_text_is_a_time_or_none(text):
    found = read(text)
    assert found is None or TIME.fullmatch(found)


@given(st.datetimes(min_value=datetime(1000, 1, 2)))  # noqa: DTZ001 - the zone is written below
def test_every_moment_survives(moment):
    seconds = f"{moment:%Y-%m-%dT%H:%M:%S}Z"
    assert date_in_utc(seconds) == seconds
    assert date_in_utc(f"{moment:%Y%m%dT%H%M%S}Z") == seconds
