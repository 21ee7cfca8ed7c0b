"""`lint`: what of a robots.txt means nothing, for any bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.policy.robots import RobotsTxt
from walsh_scrapy.policy.robots.copy import quote
from walsh_scrapy.policy.robots.lint import lint
from walsh_scrapy.policy.robots.robotstxt import MAX_OCTETS

#: Lines of a group, and what is said of the third line; "" for nothing.
LINES = [
    ("Disallow: /private # ours", ""),
    ("Allow:", ""),
    ("Sitemap: https://a.example/map.xml", ""),
    ("Comment: hello", ""),
    ("Crawl-delay: .5", ""),
    ("Disalow: /x", "'disalow' is read as 'disallow' by us and by Google"),
    ("Disallow /x", "the colon after 'disallow' is missing"),
    ("Disallow /x or so", "has no colon, so it is not a record; did you mean 'disallow:'?"),
    ("Noindex: /x", "'Noindex' is not of RFC 9309"),
    ("Clean-param: a", "only Yandex"),
    ("Disllaow: /x", "a crawler may ignore it; did you mean 'disallow:'?"),
    ("Disallow: private/", "'private/' does not begin with '/' or '*', so it matches nothing"),
    ("Disallow: https://a.example/x", "is a URL; a rule takes a path"),
    ("Crawl-delay: soon", "the value 'soon' is ignored; crawl-delay takes a number of seconds"),
    ("Request-rate: 1/0", "the value '1/0' is ignored; request-rate takes documents per time"),
    ("Visit-time: noon", "the value 'noon' is ignored; visit-time takes two times of day in UTC"),
    ("Robot-version: 3.0", "the value '3.0' is ignored"),
    ("Robot-version: 2.0.0", ""),
    ("Sitemap: /map.xml", "'/map.xml' is not a full URL"),
    ("Disallow: \x1c/x", r"'\x1c/x' does not begin with '/' or '*', so it matches nothing"),
    ("\x1fDisallow: /x", r"'\x1fDisallow' is not of RFC 9309; a crawler may ignore it; did you"),
    ("\x1c", r"'\x1c' has no colon, so it is not a record"),
    ("\x1e \x1d", r"'\x1e \x1d' has no colon, so it is not a record"),
    ("\x85", r"'\x85' has no colon, so it is not a record"),
    ("\u2028", r"'\u2028' has no colon, so it is not a record"),
    ("Comment: a\x85b\u2028c\x1cd", ""),
    ("User-agent: Some Bot", "'Some Bot' is read as 'Some'"),
    ("User-agent: MJ12bot", "'MJ12bot' is read as 'MJ' by RFC 9309, where"),
    ("User-agent: MJ12bot", "the bot itself may read all of it"),
    ("User-agent: bot/1.0", ""),
    ("User-agent: 008", "'008' names no bot"),
    ("User-agent: **", "'**' names no bot"),
    ("Useragent: x", "'useragent' is read as 'user-agent'"),
]


@pytest.mark.parametrize(("line", "said"), LINES, ids=[line for line, _ in LINES])
def test_each_line_that_means_nothing_is_named_and_no_other(line, said):
    body = f"User-agent: *\nDisallow: /open\n{line}\nDisallow: /last\n".encode()
    errors = [finding for finding in lint(body) if finding.level == "error"]
    if said:
        assert [error.line for error in errors] == [3]
        assert said in errors[0].text
    else:
        assert errors == []


@pytest.mark.parametrize(
    "body",
    [b"User-agent: *\n", b"User-agent: *", b"User-agent: a\nDisallow: /x\n\nUser-agent: *\n"],
)
def test_a_group_of_all_without_rules_is_no_error(body):
    """RFC 9309 2.2: a group may have no rules. So do generators write that all is allowed."""
    assert [finding.level for finding in lint(body)] == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<!DOCTYPE html><p>Disallow: /x", "a page of HTML"),
        (b"\xef\xbb\xbf \n<html>", "a page of HTML"),
        ("User-agent: *\n".encode("utf-16"), "is UTF-16"),
        (b"", "the file is empty"),
        (b" \t\v\f\r\n\n", "the file is empty"),
        (b"\x1c", r"line 1: '\x1c' has no colon, so it is not a record"),
        (b"User-agent: *\nDisallow: /\n" + b"#\n" * MAX_OCTETS, "only 500 KiB are read"),
        (b"User-agent: *\nDisallow: /caf\xe9\n", "line 2: this is not UTF-8"),
        (b"Disallow: /\n", "'Disallow: /' stands before any User-agent line"),
        (b"Crawl-delay: 2\nUser-agent: *\nDisallow: /\n", "line 1: 'Crawl-delay: 2' stands before"),
        (b"User-agent: a\nDisallow: /\n\nUser-agent: b\n", "line 4: no rule follows, so 'b' may"),
    ],
)
def test_each_thing_about_the_file_and_its_groups_is_said_alone(body, said):
    (finding,) = lint(body)
    assert said in f"line {finding.line}: {finding.text}"


def test_a_key_that_only_others_read_is_a_note():
    (finding,) = lint(b"User-agent: *\nDisallow: /\ncolour: red\n")
    said = "'colour' is not of RFC 9309; a crawler may ignore it"
    assert finding == (3, "note", said)


def test_nothing_is_said_of_a_sound_file():
    assert lint(b"User-agent: *\nUser-agent: a\nDisallow: /x\n\nUser-agent: b\nDisallow: /\n") == ()


KEYS = ["User-agent", "Disallow", "Disalow", "allow ", "Crawl-delay", "x", "Sitemap"]
BYTES = b":*/#\n\r \0\x1c\x85\xff"
PIECES = st.sampled_from(
    [*(f"{key}:".encode() for key in KEYS), *BYTES, b"\xef\xbb\xbf", b"/a", b"bot"]
).map(lambda piece: piece if isinstance(piece, bytes) else bytes([piece]))


@given(st.one_of(st.binary(), st.lists(PIECES).map(b"".join)))
def test_any_bytes_are_linted_and_quoted_in_order(body):
    found = lint(body)
    assert list(found) == sorted(found, key=lambda finding: finding.line or 0)
    lines = 1 + body.count(b"\n") + body.count(b"\r")
    assert all(finding.line is None or 1 <= finding.line <= lines for finding in found)
    assert all(finding.text.isprintable() for finding in found)
    assert len(quote(body, "bot")) <= lines


@given(st.lists(PIECES).map(b"".join))
def test_a_file_without_errors_reads_the_same_in_its_strict_spelling(body):
    """What lint does not name is a record in the spelling of the RFC, or no record at all."""
    if any(finding.level == "error" for finding in lint(body)):
        return
    lines = body.replace(b"\r", b"\n").split(b"\n")
    strict = b"\n".join(
        line
        for line in lines
        if not line.strip()
        or line.strip(b" \xef\xbb\xbf")
        .lower()
        .startswith(
            tuple(f"{key.strip()}".lower().encode() for key in KEYS if key not in ("Disalow", "x"))
        )
    )
    for name in ("bot", "other"):
        first, second = (RobotsTxt.parse(each).rules_for(name) for each in (body, strict))
        assert first.verdict("http://h/a").allowed == second.verdict("http://h/a").allowed
        assert first.crawl_delay == second.crawl_delay
