"""Text from servers and files is safe to print on a terminal, and is not cut."""

import json

from walsh_scrapy.policy.wording import counted
from walsh_scrapy.tools.printable import columns, json_array, printable


def test_cells_are_aligned_by_their_width_on_a_terminal():
    assert list(columns([["a", "日本"], ["bbb", "c"]])) == ["a    日本", "bbb  c"]


def test_printable_text_is_unchanged():
    text = "na\u00efve \U0001f469\u200d\U0001f52c"
    assert printable(text) == text


def test_a_json_array_has_an_object_a_line():
    assert list(json_array([])) == ["[]"]
    assert json.loads("".join(json_array([{"a": "\x7f"}, {}]))) == [{"a": "\x7f"}, {}]


def test_nouns_follow_their_number():
    assert [counted(number, "domain") for number in (0, 1, 2)] == [
        "0 domains",
        "1 domain",
        "2 domains",
    ]
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(2, "entry", "entries") == "2 entries"
