"""R6: names, tags and notes hold no e-mail address."""

from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.items import EntryItem
from walsh_scrapy.metadata.llmstxt import parse_llms
from walsh_scrapy.metadata.text import (
    distinct_tags,
    one_line,
    person_name,
    title_of,
    web_url,
    without_addresses,
)

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
    assert without_addresses(f"Write to {address}, or call") == "Write to …, or call"
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
def test_what_may_be_something_else_stays(text):
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
        item = EntryItem.of_feed(
            replace(feed.entries[0], title=title), feed=replace(feed, title=title), source=url
        )
        assert (item.title, item.source_title) == (kept, kept)
        assert item.key == feed.entries[0].key


@pytest.mark.parametrize(
    "mark", "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
def test_no_text_has_a_mark_of_direction(mark):
    assert title_of(f"a{mark}b {mark}") == "ab"
    assert distinct_tags(map(one_line, [f"{mark}tag"])) == ("tag",)
    assert person_name(one_line(f"Jo{mark} Doe")) == "Jo Doe"
    url = web_url(f"/{mark}cod.exe", "https://blog.example/")
    assert url == f"https://blog.example/{quote(mark)}cod.exe"
