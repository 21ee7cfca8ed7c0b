"""R6: names, tags and notes hold no e-mail address."""

import os
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import cases
from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.feeds.metadata.llmstxt import parse_llms
from walsh_scrapy.feeds.metadata.text import (
    date_in_utc,
    distinct_tags,
    person_name,
    title_of,
    web_url,
    without_addresses,
)
from walsh_scrapy.policy.wording import one_line

AT = st.sampled_from(["@", "%40"])
WORDS = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)
LOCALS = st.from_regex(r"[a-z0-9][a-z0-9._+-]{0,8}[0-9]", fullmatch=True)
LAST = st.sampled_from(["org", "example", "xn--p1ai", "ORG"])
HOSTS = st.lists(WORDS, min_size=1, max_size=3).flatmap(
    lambda labels: LAST.map(lambda last: ".".join([*labels, last]))
)
AROUND = [("", ""), ("Jo Doe (", ")"), ("Jo Doe <", ">"), ("", " (Jo Doe)"), ('"Jo Doe" ', "")]


@given(LOCALS, AT, HOSTS | WORDS, st.sampled_from(AROUND))
def test_the_name_of_a_person_is_kept_and_no_part_of_the_address(local, at, host, around):
    name = person_name(around[0] + local + at + host + around[1])
    assert name == ("Jo Doe" if "Jo" in "".join(around) else None)


@given(LOCALS, AT, HOSTS)
def test_other_text_has_a_mark_where_an_address_was(local, at, host):
    address = local + at + host
    assert without_addresses(f"Write {address}, or call") == "Write …, or call"
    assert distinct_tags([address, "news"]) == ("news",)


@given(st.text(max_size=60))
def test_text_without_an_at_sign_and_a_parameter_stays_as_it_is(text):
    if not any(mark in text for mark in ("@", "%40", "=")):
        assert person_name(text) == without_addresses(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("react@19.0.0", "@scope/package@9.0.0", "user@host", "@handle", "100%40"),
        *("Read the docs at blog.example", "At the drive-in", "a @ b", "jo [at] blog.example"),
    ],
)
def test_text_that_is_no_address_stays(text):
    assert without_addresses(text) == text


def test_notes_and_sections_of_a_page_hold_no_address():
    page = b"# Site\n## Contact jo@blog.example\n- [About](/about): by Jo, jo@blog.example\n"
    url = "https://blog.example/llms.txt"
    (entry,) = parse_llms(page, url=url, content_type="text/plain", source=url).entries
    assert (entry.section, entry.note) == ("Contact …", "by Jo, …")


def test_an_item_has_no_address_and_no_credential_in_its_titles():
    url = "https://blog.example/llms.txt"
    page = b"# x\n- [x](/1)\n"
    feed = parse_llms(page, url=url, content_type="text/plain", source=url)
    for title, kept in (
        ("Write to jo@blog.example now", "Write to … now"),
        ("jo@blog.example", None),
        ("At https://blog.example/@jo.example/1?token=x&a=b",
         "At https://blog.example/@jo.example/1?token=…&a=b"),
        ("React 19 @ home, 1 = 1", "React 19 @ home, 1 = 1"),
    ):  # fmt: skip
        item = EntryItem.from_entry(
            feed.entries[0]._replace(title=title), feed=replace(feed, title=title), source=url
        )
        assert (item.title, item.source_title) == (kept, kept)
        assert item.keys is feed.entries[0].keys


@pytest.mark.parametrize(
    "mark", "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
def test_no_text_has_a_mark_of_direction(mark):
    assert title_of(f"a{mark}b {mark}") == "ab"
    assert distinct_tags(map(one_line, [f"{mark}tag"])) == ("tag",)
    assert person_name(one_line(f"Jo{mark} Doe")) == "Jo Doe"
    url = web_url(f"/{mark}cod.exe", "https://blog.example/")
    assert url == f"https://blog.example/{quote(mark)}cod.exe"


# Dates of feeds become RFC 3339 in UTC; an impossible date is None.

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
    date = date_in_utc(text)
    assert date is None or TIME.fullmatch(date)


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
