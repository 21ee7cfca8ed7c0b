"""Text from servers and files is safe to print on a terminal, and reasons are grouped."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import cases
from walsh_scrapy.policy.wording import (
    ReasonGroups,
    count_of,
    for_others,
    kind_of,
    printable,
    shorten,
)
from walsh_scrapy.tools.output import columns, json_array


def test_cells_are_aligned_by_their_width_on_a_terminal():
    assert list(columns([["a", "日本"], ["bbb", "c"]])) == ["a    日本", "bbb  c"]


def test_printable_text_is_unchanged():
    text = "na\u00efve \U0001f469\u200d\U0001f52c"
    assert printable(text) == text


def test_a_json_array_has_an_object_a_line():
    assert list(json_array([])) == ["[]"]
    assert json.loads("".join(json_array([{"a": "\x7f"}, {}]))) == [{"a": "\x7f"}, {}]


def test_nouns_follow_their_number():
    assert [count_of(number, "domain") for number in (0, 1, 2)] == [
        "0 domains",
        "1 domain",
        "2 domains",
    ]
    assert count_of(1, "entry", "entries") == "1 entry"
    assert count_of(2, "entry", "entries") == "2 entries"


@cases("text", "shown")
def test_a_text_for_others_has_no_address_and_no_credential(text, shown):
    assert for_others(text) == shown
    assert for_others(shown) == shown


@given(st.text("aT@%40:/?&;=#. tokenkey", max_size=60))
def test_a_text_for_others_is_the_same_the_second_time(text):
    once = for_others(text)
    assert for_others(once) == once


@cases("reason", "kind")
def test_a_kind_of_failure_names_no_host(reason, kind):
    assert kind_of(reason, "a.example") == kind


def test_hosts_of_one_reason_are_one_line():
    groups = ReasonGroups()
    for number in range(12):
        groups.add(f"h{number}.example", f"h{number}.example timed out: after {number} s")
    for name in ("x", "y", "x"):
        groups.add(f"{name}.example", f"{name}.example answered 404")
    slow, lost = groups.largest_first()
    assert slow.line() == "12 timed out: h0.example, h1.example and 10 more hosts"
    assert lost.line() == "3 answered 404: x.example, y.example"


def test_a_list_of_one_more_than_is_shown():
    assert shorten(("a", "b", "c"), 2) == "a, b and 1 more host"
    assert shorten((), 2) == ""
