"""The operator's own blocklist: it adds to the published one, and takes nothing away."""

import pytest

from walsh_scrapy.crawl.blocklist import load_local_list
from walsh_scrapy.options import BadSetting
from walsh_scrapy.policy.blocklist import Blocklist, InvalidBlocklist
from walsh_scrapy.policy.localblocklist import parse_local

TEXT = b"""\xef\xbb\xbf# our own
optedout.example
  Shop.Example.  # mail of 3 May\r
b\xc3\xbccher.example
192.0.2.1
shop.example # again
"""


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://www.optedout.example/feed", "optedout.example is in line 2 of own.txt"),
        ("http://SHOP.example:8080/", "shop.example is in line 3 of own.txt: mail of 3 May"),
        ("http://xn--bcher-kva.example/", "xn--bcher-kva.example is in line 4 of own.txt"),
        ("http://192.0.2.1/", "192.0.2.1 is in line 5 of own.txt"),
    ],
)
def test_a_text_has_a_domain_a_line_and_each_says_which(url, why):
    assert parse_local(TEXT, "own.txt").blocks(url).why == why


def test_a_text_blocks_nothing_else():
    found = parse_local(TEXT, "own.txt")
    assert len(found) == 4
    assert found.blocks("http://notshop.example/") is None
    assert len(parse_local(b"# nothing\n\n", "own.txt")) == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"a.example\nhttps://b.example/\n", "own.txt: line 2: 'https://b.example/' is"),
        (b"a.example b.example\n", "line 1"),
        (b"*.example\n", "line 1"),
        (b"a.example/private\n", "line 1"),
        (b"mail@a.example\n", "line 1"),
        (b"a.example:80\n", "line 1"),
        (b"a.example\n\xff.example\n", "line 2: it is not UTF-8"),
        (b"\xef\xbb\xbfa\xbf", "line 1: it is not UTF-8"),
        (b"# \x1c\xc2\x85\ra.example\r\n\xff.example\n", "line 3: it is not UTF-8"),
        (b'{"blocked": []}', "line 1"),
    ],
)
def test_a_wrong_file_is_refused_as_a_whole_with_its_place(body, words):
    with pytest.raises(InvalidBlocklist) as refused:
        parse_local(body, "own.txt")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_named_with_its_setting(tmp_path):
    assert load_local_list("") is Blocklist.EMPTY
    for name, reason in ((tmp_path / "none.txt", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(BadSetting) as refused:
            load_local_list(str(name))
        assert str(refused.value).startswith(f"WALSH_BLOCKLIST_FILE: {name}: {reason}")
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("a b\n")
    with pytest.raises(BadSetting) as refused:
        load_local_list(str(wrong))
    assert str(refused.value).startswith(f"WALSH_BLOCKLIST_FILE: {wrong}: line 1: 'a b'")
