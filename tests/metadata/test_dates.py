"""Dates of feeds become RFC 3339 in UTC; an impossible date is None."""

# ruff: noqa: RUF001 - look-alikes are what is tested
import os
import re
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.metadata.dates import date_in_utc

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


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
        ("2026-05-23T10:00:00+14:00", "2026-05-22T20:00:00Z"),
        ("2026-05-23T10:00:00 +00:00", "2026-05-23T10:00:00Z"),
        ("2026-05-23 10:00:00.123456+00", "2026-05-23T10:00:00Z"),
        ("2026-05-23T23:59:60Z", "2026-05-23T23:59:59Z"),
        ("2026-05-23Z", "2026-05-23T00:00:00Z"),
        ("2026-05-23 10:00:00 PM", "2026-05-23T22:00:00Z"),
        ("2020/1/10 14:33:00", "2020-01-10T14:33:00Z"),
        ("2026.05.23", "2026-05-23T00:00:00Z"),
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
        ("lun., 24 sept. 2018 19:42:40 +0200", "2018-09-24T17:42:40Z"),
        ("Mi, 24. SEP 2018 19:42 +0200", "2018-09-24T17:42:00Z"),
        ("Sun Jan  4 16:29:06 2004", "2004-01-04T16:29:06Z"),
        ("Sun Jan  4 16:29:06 PST 2004", "2004-01-05T00:29:06Z"),
        ("Sun, 17 Dec 2017 1:55 PM EST", "2017-12-17T18:55:00Z"),
        ("Sat, Oct 28 2023 08:28:28 PM", "2023-10-28T20:28:28Z"),
        ("March 30 2020 07:02:38 PM", "2020-03-30T19:02:38Z"),
        ("Nov. 16, 2020, 12:57 a.m.", "2020-11-16T00:57:00Z"),
        ("Friday, December 22, 2017 - 12:09pm", "2017-12-22T12:09:00Z"),
        ("Thu, June 22, 2023 at 01:11 PM EDT", "2023-06-22T17:11:00Z"),
        ("Mon, 16th Nov 2020 13:16:28 GMT", "2020-11-16T13:16:28Z"),
        ("Tue 16 Feb 2016, 23:16:00 EDT", "2016-02-17T03:16:00Z"),
        ("Mon, Jan 02,2006 15:04:05", "2006-01-02T15:04:05Z"),
        ("10-Jan-2020", "2020-01-10T00:00:00Z"),
        ("2020 Jan 10", "2020-01-10T00:00:00Z"),
        ("10 Jan 99 14:33", "1999-01-10T14:33:00Z"),
        ("5 August, 2019", "2019-08-05T00:00:00Z"),
        ("Nov. 2020", "2020-11-01T00:00:00Z"),
        ("26 Sep 2022 GMT", "2022-09-26T00:00:00Z"),
        ("Fri Jan 10 14:33:00 +0000 2020", "2020-01-10T14:33:00Z"),
        ("Thu Nov 12 2020 17:00:00 GMT+0100 (Central European Time)", "2020-11-12T16:00:00Z"),
        ("Thu, 29 Oct 2020 07:36:03 GMT-07:00", "2020-10-29T14:36:03Z"),
        ("Thu, 25 Feb 2016 00:00:00 CEST", "2016-02-24T22:00:00Z"),
        # places of the tz database, in winter and in summer
        ("Thu, 25 Feb 2016 00:00:00 America/Los_Angeles", "2016-02-25T08:00:00Z"),
        ("Fri, 31 Mar 2023 20:19:00 America/Los_Angeles", "2023-04-01T03:19:00Z"),
        ("2016-07-25 00:00 Europe/Brussels", "2016-07-24T22:00:00Z"),
        ("25 Feb 2016 00:00 America/Argentina/Buenos_Aires", "2016-02-25T03:00:00Z"),
    ],
)
def test_dates_with_names_of_months(text, expected):
    assert date_in_utc(text) == expected


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
        "Wed, 03 Foo 2018 14:11:52 GMT",
        "1516900000",
        # months of other languages, the first of which is November
        "11. marraskuu 2018",
        "Seg, 24 Set 2018 19:42:40 -0300",
        "Mi, 24 Okt 2018 19:42 +0200",
        "Lundi, 16. Novembre 2020 - 15:54",
        "Κυρ, 11 Ιούλ 2004 12:00:00 EST",
        # numbers without the year in front
        "1/13/2020",
        "13/1/2020 14:33",
        "Mon, 03/30/2020 - 19:19",
        "5/5/2020",
        "10/30/23 21:55:58",
        "1/2/2020",
        "01.02.2020",
        "30.10.23",
        "1/2/3",
        "1-01-01",
        "2020-1/13",
        "2020/1/013",
        # no zone, or one of several
        "Fri, 10 Jan 2020 14:33:00 -700",
        "Fri, 10 Jan 2020 14:33:00 -07",
        "Fri, 10 Jan 2020 14:33:00 -07000",
        "Fri, 10 Jan 2020 14:33:00 +1401",
        "Fri, 10 Jan 2020 14:33:00 -1500",
        "Fri, 10 Jan 2020 14:33:00 +0060",
        "Fri, 10 Jan 2020 14:33:00 IST",
        "Fri, 10 Jan 2020 14:33:00 BST",
        "Fri, 10 Jan 2020 14:33:00 A",
        "Fri, 10 Jan 2020 14:33:00 America/Nowhere",
        "Fri, 10 Jan 2020 14:33:00 ../../etc/passwd",
        "Fri, 10 Jan 2020 14:33:00 Etc/Unknown",
        "2026-05-23 10:00:00 +15:00",
        "20260523T101112+1500",
        "20260523T101112-0760",
        "20260523T101112+023015",
        "2020-11-08T16:20:00-05:00Z",
        # never, and twice
        "2020-03-08 02:30:00 America/New_York",
        "2020-11-01 01:30:00 America/New_York",
        # no hour of a clock with AM and PM
        "Fri, 10 Jan 2020 13:55 PM",
        "Fri, 10 Jan 2020 0:55 AM",
        "1:55 PM",
        "10 Jan 2020 1:55 XM",
        "10 Jan 20:30",
        "12:00",
        "T10:00",
        "-26",
        "２０２６-05-23",
        "2026-05-23T10:00:00Z" + " " * 100 + "x",
    ],
)
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
