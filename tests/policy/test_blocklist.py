"""R3 and decision 14: which documents are adopted, and which hosts they block."""

import json
import os
import re
import socket
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.helpers import cases
from tests.helpers.documents import json_values
from tests.helpers.sites import BLOCKLIST
from walsh_scrapy.crawl.documents.publishedlist import load_local_list
from walsh_scrapy.options import BadSetting
from walsh_scrapy.policy.blocklist import (
    Blocklist,
    Entry,
    InvalidBlocklist,
    bundled_schema,
    parse_local,
    schema_error,
    sound_schema,
)
from walsh_scrapy.policy.urls import host_of

CONTRACT = BLOCKLIST | {
    "blocked": [{"domain": "example.com", "added": "2026-05-23", "reason": "email opt-out"}]
}
BUNDLED = bundled_schema()


def document(**changes):
    changed = {key: value for key, value in (CONTRACT | changes).items() if value is not ...}
    return json.dumps(changed).encode()


def listing(*domains):
    return Blocklist.parse(document(blocked=[{"domain": domain} for domain in domains]))


def test_the_sample_of_the_contract():
    blocklist = Blocklist.parse(document())
    assert blocklist.refresh == timedelta(hours=6)
    assert blocklist.blocks("https://www.example.com/feed.xml") == Entry(
        "example.com", "2026-05-23", "email opt-out"
    )
    assert blocklist.blocks("https://example.org/") is None
    assert len(blocklist) == 1


LISTED = [
    "example.com",
    "Bücher.example",
    "XN--FA-HIA.de",
    "UPPER.Example.",
    "192.0.2.7",
    "a_b.test",
]
LISTED += ["2001:DB8::1", "[2001:db8::2]", "deep.sub.example.net", "::ffff:192.0.2.9"]


@cases("url", "domain")
def test_a_listed_host_and_its_subdomains_are_blocked(url, domain):
    entry = listing(*LISTED).blocks(url)
    assert entry is not None
    assert entry.domain == domain


@cases("url")
def test_other_hosts_are_not_blocked(url):
    assert listing(*LISTED).blocks(url) is None


def test_empty_list_blocks_no_host():
    assert Blocklist.EMPTY.blocks("http://example.com/") is None
    assert Blocklist.EMPTY.refresh > timedelta(0)
    assert Blocklist.EMPTY  # also without entries
    assert Blocklist.parse(document(blocked=[])).blocks("http://example.com/") is None


def test_a_domain_listed_twice_keeps_its_first_entry():
    twice = [{"domain": "a.example", "reason": "one"}, {"domain": "A.example.", "reason": "two"}]
    entry = Blocklist.parse(document(blocked=twice)).blocks("http://a.example/")
    assert entry == Entry("a.example", "", "one")


def test_unknown_members_are_ignored():
    later = [{"domain": "a.example", "paths": ["/x"], "until": None}]
    assert Blocklist.parse(document(blocked=later, signature={"alg": "x"})).blocks(
        "http://a.example"
    )


@pytest.mark.parametrize("name", ["updated", "operator", "contact", "policy"])
def test_optional_members(name):
    assert len(Blocklist.parse(document(**{name: ...}))) == 1
    with pytest.raises(InvalidBlocklist, match=rf"\$\.{name}: "):
        Blocklist.parse(document(**{name: 7}))


@pytest.mark.parametrize(
    ("said", "used"),
    [
        ("PT6H", timedelta(hours=6)),
        ("PT0S", timedelta(minutes=1)),
        ("PT0.001S", timedelta(minutes=1)),
        ("P10W", timedelta(days=7)),
    ],
)
def test_refresh_of_the_document_is_used_within_limits(said, used):
    assert Blocklist.parse(document(refresh=said)).refresh == used


@pytest.mark.parametrize("said", ["P1M", "6 hours", "", 6, None, {}, "x" * 999, ...])
def test_a_list_is_adopted_whose_refresh_alone_makes_no_sense(said):
    blocklist = Blocklist.parse(document(refresh=said), {"required": ["refresh"]})
    assert blocklist.blocks("http://example.com/")
    assert blocklist.refresh == timedelta(hours=6)
    assert blocklist.problem.startswith("$.refresh is ")
    assert len(blocklist.problem) < 120
    assert not Blocklist.parse(document()).problem


def test_a_byte_order_mark_is_stripped():
    assert Blocklist.parse(b"\xef\xbb\xbf" + document()) == Blocklist.parse(document())
    assert sound_schema(b"\xef\xbb\xbf" + json.dumps(BUNDLED).encode()) == BUNDLED


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("by\0mail", "by\ufffdmail"),  # no database refuses it
        ("\ud800ü", "?ü"),
        (
            "jo@a.example asked, see https://mail.example/?token=x",
            "… asked, see https://mail.example/?token=…",
        ),
    ],
)
def test_stored_reason_has_no_address_and_no_credential(reason, kept):
    blocked = [{"domain": "a.b", "added": "\0", "reason": reason}]
    entry = Blocklist.parse(document(blocked=blocked)).blocks("http://a.b/")
    assert entry == Entry("a.b", "\ufffd", kept)


def test_a_list_that_was_adopted_is_kept_as_sorted_entries():
    blocked = [{"domain": "Ex.ample.", "added": "2026-05-23"}, {"domain": "a.b", "reason": "a\tb"}]
    blocklist = Blocklist.parse(document(blocked=blocked, refresh="P1M"))
    head, *entries = blocklist.text().split("\n")
    assert entries == ["a.b\t\ta\\tb", "ex.ample\t2026-05-23\t"]
    assert head.startswith("[21600.0, \"$.refresh is 'P1M'")
    assert Blocklist.of_text(blocklist.text()) == blocklist
    assert Blocklist.of_text(Blocklist.EMPTY.text()) == Blocklist.EMPTY


@cases("domain", more=["\ud800.example", "a." * 130 + "example", None])
def test_a_document_with_one_wrong_domain_is_refused(domain):
    blocked = [{"domain": "fine.example"}, {"domain": "also.fine", "x": 1}, {"domain": domain}]
    with pytest.raises(InvalidBlocklist, match=r"\$\.blocked\[2\]\.domain: ") as caught:
        Blocklist.parse(document(blocked=blocked))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (document().decode().encode("utf-16"), "UTF-8"),
        (document().replace(b"Jason", b"Jas\xf6n"), "byte 95 is not UTF-8"),
        (document(x=float("nan")), "NaN is not a JSON value"),
        (document().replace(b'"updated"', b'"refresh"'), "'refresh' occurs twice"),
        (b"[" * 200_000, "nested too deeply"),
        (document(x=0).replace(b'"x": 0', b'"x": ' + b"9" * 5000), "not JSON"),
        (b"null", r"at \$: "),
        (document(contract="walsh-research-blocklist/v2"), r"\$\.contract: .*v1"),
        (document(contract=...), "'contract' is a required property"),
        (document(blocked=...), "'blocked' is a required property"),
        (document(blocked={}), r"\$\.blocked: "),
        (document(blocked=["example.com"]), r"\$\.blocked\[0\]: "),
        (document(blocked=[{"reason": "x"}]), r"\$\.blocked\[0\]: 'domain' is a required"),
        (document(blocked=[{"domain": "a.b", "reason": 1}]), r"\$\.blocked\[0\]\.reason: "),
    ],
)
def test_an_error_says_where_and_why(body, why):
    with pytest.raises(InvalidBlocklist, match=why) as caught:
        Blocklist.parse(body)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("the blocklist is ")


DOMAINS = st.text() | st.from_regex(r"[a-zü.:*\[\]-]{0,9}")


JSON = json_values()
ENTRIES = st.fixed_dictionaries(
    {"domain": DOMAINS | JSON}, optional={"added": JSON, "reason": JSON, "x": JSON}
)


HEADS = st.fixed_dictionaries(
    {}, optional={name: st.text() | JSON for name in [*CONTRACT, "contract ", "x"]}
)


@given(HEADS, st.lists(ENTRIES | JSON, max_size=4) | JSON, st.sets(st.sampled_from([*CONTRACT])))
@example({}, CONTRACT["blocked"], set())
def test_the_compiled_schema_agrees_with_jsonschema(changes, blocked, left_out):
    value = CONTRACT | changes | {"blocked": blocked}
    value = {name: value[name] for name in value.keys() - left_out}
    exact = Draft202012Validator(BUNDLED).is_valid(value)
    assert (schema_error(value, None) is None) is exact


@given(DOMAINS, st.sampled_from(["http://{}/", "https://x.{}:8443/y", "http://u@{}"]))
def test_each_adopted_domain_is_blocked(domain, spelled):
    with suppress(InvalidBlocklist):
        blocklist = listing(domain)
        host = next(iter(blocklist.entries))
        assert re.fullmatch(r"[a-z0-9_:.-]+", host)
        assert blocklist.blocks(f"http://[{host}]" if ":" in host else f"http://{host}")
        if ":" not in domain and not host.replace(".", "").isdigit():
            assert blocklist.blocks(spelled.format(domain))


# The published schema

STRICTER = {"$schema": BUNDLED["$schema"], "type": "object", "required": ["signature"]}


def test_bundled_schema_is_sound_and_accepts_the_sample():
    Draft202012Validator.check_schema(BUNDLED)
    assert sound_schema(json.dumps(BUNDLED).encode()) == BUNDLED
    assert len(Blocklist.parse(document(), BUNDLED)) == 1


def test_document_must_be_valid_under_the_published_schema_too():
    with pytest.raises(InvalidBlocklist, match=r"\$: 'signature' is a required property"):
        Blocklist.parse(document(), STRICTER)
    assert len(Blocklist.parse(document(signature="x"), STRICTER)) == 1


def test_a_published_schema_does_not_replace_the_bundled_one():
    with pytest.raises(InvalidBlocklist, match=r"\$\.blocked\[0\]\.domain"):
        Blocklist.parse(document(blocked=[{"domain": "*"}]), {"type": "object"})


@cases("schema")
def test_sound_schemas(schema):
    assert sound_schema(json.dumps(schema).encode()) == schema


@cases("schema", more=[None, {"$schema": None}])
def test_unsound_schemas_are_ignored_and_nothing_is_fetched(schema, monkeypatch):
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("fetched"))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("resolved"))
    assert sound_schema(json.dumps(schema).encode()) is None
    if isinstance(schema, dict):
        assert len(Blocklist.parse(document(), schema)) == 1


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"\xff", b"{" * 200_000, b'{"a":1,"a":2}', b"{}x"]
)
def test_a_schema_that_is_not_json_is_unsound(body):
    assert sound_schema(body) is None


def test_an_entry_that_covers_a_public_suffix_is_obeyed():
    everything = Blocklist.parse(document(blocked=[{"domain": "com"}]))
    assert everything.blocks("https://www.example.com/feed")


def test_a_plain_domain_is_read_as_any_other():
    """There is a shorter way for most domains: it has to lead to the same."""
    labels = ("a", "A", "a-b", "-a", "a_b", "1", "xn--bcher-kva", "xn--", "b\u00fccher", "a" * 63)
    ends = ("com", "c0m", "0x7f", "127", "xn--p1ai", "\u0440\u0444", "com.", "a-b", "co.uk")
    for domain in (f"{label}.{end}" for label in labels for end in ends):
        try:
            entries = Blocklist.parse(document(blocked=[{"domain": domain}])).entries
        except InvalidBlocklist:
            continue
        assert list(entries) == [host_of(f"http://{domain}/") or domain.lower()]


@pytest.mark.parametrize("name", ["a.123", "256.256.256.256", "a.0x7F."])
def test_unresolvable_name_does_not_invalidate_a_list(name):
    entries = [{"domain": name}, {"domain": "b.example"}]
    assert Blocklist.parse(document(blocked=entries)).blocks("http://b.example/")


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


def test_text_list_blocks_no_other_hosts():
    blocklist = parse_local(TEXT, "own.txt")
    assert len(blocklist) == 4
    assert blocklist.blocks("http://notshop.example/") is None
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
    os.mkfifo(pipe := tmp_path / "pipe.txt")
    (long := tmp_path / "long.txt").write_bytes(b"#" * (2**24 + 1))
    for name, reason in (
        (tmp_path / "none.txt", "No such file"),
        (tmp_path, "Is a directory"),
        (pipe, "this is a pipe"),
        (long, "16777217 bytes"),
    ):
        with pytest.raises(BadSetting) as refused:
            load_local_list(str(name))
        assert f"WALSH_BLOCKLIST_FILE: {name}: " in str(refused.value)
        assert reason in str(refused.value)
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("a b\n")
    with pytest.raises(BadSetting) as refused:
        load_local_list(str(wrong))
    assert f"{wrong}: line 1: 'a b'" in str(refused.value)
