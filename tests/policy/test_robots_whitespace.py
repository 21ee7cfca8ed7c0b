"""R2 and decision 11: white space in a robots.txt that some readers strip, and others do not."""

import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walsh_scrapy.policy.robots import RobotsTxt
from walsh_scrapy.policy.robots.robotslint import lint
from walsh_scrapy.policy.robots.robotstxt import Reading, decode, user_agent_lines
from walsh_scrapy.policy.robots.rules import RuleIndex
from walsh_scrapy.policy.robots.whitespace import MAX_LINES

AT = datetime(2026, 5, 23, 3, 8, tzinfo=UTC)
SPACES = [
    character.encode()
    for character in map(chr, range(sys.maxunicode + 1))
    if character.isspace() and character not in " \t\n\r\v\f"
]
#: The last two are no UTF-8; in Latin-1 they are white space.
ALL = [*SPACES, b"\xa0", b"\x85"]


def rules_of(*lines):
    return RobotsTxt.parse(b"\n".join([b"User-agent: *", *lines])).rules_for("any")


def allows(url, *lines):
    return rules_of(*lines).verdict(url).allowed


def each_space(function):
    ids = [space.hex() for space in ALL]
    return pytest.mark.parametrize("space", ALL, ids=ids)(function)


@each_space
def test_white_space_around_a_rule_is_stripped(space):
    for line in (
        b"Disallow: /x" + space,
        b"Disallow: /x" + space + b" " + space + b"# why",
        space + b"Disallow: /x",
        b" " + space + b" Disallow" + space + b": /x",
        b"Disallow:" + space + b" /x",
        b"Disallow" + space + b"/x",
    ):
        assert not allows("/x/1", line), line
        assert allows("/y", line), line


@each_space
def test_a_stripped_allow_opens_nothing(space):
    for line in (b"Allow: /public/" + space, space + b"Allow: /public/", b"Allow" + space + b"/p"):
        assert not allows("/public/1", b"Disallow: /", line), line


@each_space
def test_white_space_inside_of_a_path_is_part_of_it(space):
    assert allows("/public/1", b"Disallow: /", b"Allow: /public", b"Disallow: /a" + space + b"b")
    path = "/a" + "".join(f"%{octet:02X}" for octet in space) + "b"
    assert not allows(path, b"Disallow: /a" + space + b"b")
    assert allows(path, b"Disallow: /", b"Allow: /a" + space + b"b")


@each_space
def test_white_space_around_a_user_agent_is_stripped(space):
    for line in (b"User-agent: *" + space, space + b"User-agent: *", b"User-agent" + space + b":*"):
        body = line + b"\nDisallow: /x\nAllow: /x/y\n"
        rules = RobotsTxt.parse(body).rules_for("any")
        assert [rules.verdict(url).allowed for url in ("/x", "/x/y", "/z")] == [False, True, True]
        assert (rules.group, rules.lines) == ("*", (1,))


@each_space
def test_the_group_of_either_reading_is_obeyed(space):
    body = b"User-agent: *\nDisallow: /a\n" + space + b"User-agent: us\nDisallow: /b\n"
    rules = RobotsTxt.parse(body).rules_for("us")
    assert [rules.verdict(url).allowed for url in ("/a", "/b", "/c")] == [False, False, True]


@each_space
def test_white_space_around_other_values_is_stripped(space):
    assert rules_of(b"Crawl-delay: 3" + space).crawl_delay == 3
    assert rules_of(space + b"Crawl-delay" + space + b": 3").crawl_delay == 3
    assert rules_of(b"Request-rate: 1/7" + space).interval(AT) == 7
    assert rules_of(b"Request-rate: 1/7" + space + b"0000-2359").interval(AT) == 7
    for line in (b"Visit-time: 0600-0845" + space, b"Visit-time: 0600" + space + b"0845"):
        assert rules_of(line).opens(AT) == AT.replace(hour=6, minute=0)
    version_2 = rules_of(space + b"Robot-version: 2.0", b"Disallow: /x*y$", b"Disallow: /[ab]")
    assert not version_2.verdict("/a").allowed


def test_the_longer_delay_of_both_readings_counts():
    for lines in ((b"Crawl-delay: 3\xa0", b"Crawl-delay: 2"), (b"Crawl-delay: 3", b"\xa0x")):
        assert rules_of(*lines).crawl_delay == 3


def test_both_readings_must_be_open():
    rules = rules_of(b"Visit-time: 0600-0845", b"Visit-time: 0300-0400\xc2\xa0")
    assert rules.opens(AT) == AT.replace(hour=6, minute=0)


def test_readings_that_are_never_open_together_deny_everything():
    body = b"User-agent: *\nVisit-time: 0600-0700\nUser-agent: x\n\xa0User-agent: us\n"
    rules = RobotsTxt.parse(body + b"Visit-time: 0800-0900\n").rules_for("us")
    assert not rules.verdict("/").allowed
    assert rules.opens(AT) == AT


def test_white_space_in_a_comment_changes_nothing():
    rules = rules_of(b"Disallow: /x # a\xc2\xa0", b"#\xc2\xa0Disallow: /y", b"Disallow: /z#\xa0")
    assert [rules.verdict(url).allowed for url in ("/x", "/y", "/z")] == [False, True, False]
    assert rules.warnings == ()


def test_the_record_is_named_as_the_site_wrote_it():
    verdict = rules_of(b"Allow: /", b"Disallow: /private/\xe2\x80\x83 # no").verdict("/private/1")
    assert (verdict.rule, verdict.line) == ("Disallow: /private/", 3)


def test_a_line_that_can_be_read_in_two_ways_is_named_once():
    lines = (b"Disallow: /a\xc2\xa0", b"Disallow: /b\xa0", b"\x1cDisallow: /c")
    ((number, sentence),) = rules_of(*lines).warnings
    assert number == 2
    assert "2 more" in sentence


def test_each_such_rule_is_one_finding():
    lines = (b"Disallow: /a\xc2\xa0 # x", b"Disallow: /b\xa0", b"Comment: a\xc2\xa0", b"Allow: /")
    findings = [finding for finding in lint(b"\n".join([b"User-agent: *", *lines])) if finding.line]
    assert {finding.line for finding in findings if "white space" in finding.text} == {2, 3}


def test_a_hard_space_in_a_comment_record_is_no_warning():
    assert rules_of(b"Comment: Bonjour\xc2\xa0! \xc2\xa0").warnings == ()


def test_more_lines_than_are_read_twice_deny_everything():
    lines = [b"Disallow: /x\xc2\xa0"] * (MAX_LINES + 1)
    verdict = rules_of(*lines).verdict("/")
    assert (verdict.allowed, verdict.undecided) == (False, True)
    assert not allows("/x", *lines[1:])
    assert allows("/y", *lines[1:])
    assert any("every URL" in finding.text for finding in lint(b"\n".join(lines)))


LARGE = [f"Disallow: /{number:07}".encode() for number in range(25_000)]  # 480 KiB


def test_a_large_file_is_read_in_all_ways():
    for body in (
        b"User-agent: *\n" + b"\n".join([*LARGE[1:], b"Disallow: /x\xa0"]),
        b"User-agent: *\xa0\n" + b"\n".join([*LARGE[1:], b"Disallow: /x"]),
    ):
        rules = RobotsTxt.parse(body).rules_for("any")
        verdicts = [rules.verdict(url) for url in ("/x", "/0000007", "/y")]
        assert [verdict.allowed for verdict in verdicts] == [False, False, True]
        assert [verdict.line for verdict in verdicts] == [25_001, 8, None]


@pytest.mark.parametrize(("size", "is_undecided"), [(12_000, False), (25_000, True)])
def test_very_large_groups_that_differ_deny_everything(size, is_undecided):
    rules = [*LARGE[:100], b"\xa0User-agent: *", *LARGE[100:size]]
    verdict = rules_of(*rules).verdict("/")
    assert (verdict.allowed, verdict.undecided) == (not is_undecided, is_undecided)
    assert not allows("/0000007", *rules)


@pytest.mark.parametrize(
    ("line", "added"),
    [(b"# \xc2\xa0", 0), (b"Disallow: /x\xc2\xa0", 2), (b"Sitemap: /s\xc2\xa0", 0), (b"\xa0", 0)],
)
def test_most_of_a_file_is_read_once(line, added, monkeypatch):
    read = RuleIndex.from_records
    sizes = []
    monkeypatch.setattr(
        RuleIndex, "from_records", lambda *call: sizes.append(len(call[1])) or read(*call)
    )
    lines = [f"Disallow: /{number}".encode() for number in range(1_000)]
    assert rules_of(*lines, line, *lines).verdict("/y").allowed
    assert sum(sizes) == 2_000 + added


# Nothing opens: whatever the file is, no URL is fetched that one of the two readings denies.


def single(body):
    """Return the rules of a file that is not stripped."""
    text = decode(body)
    return RobotsTxt((Reading(text, user_agent_lines(text)),)).rules_for("us")


def stripped(line):
    """Strip a line as Protego and other readers do, which know `str.strip` only."""
    text = line.decode("utf-8", "surrogateescape").translate({0xDCA0: "\xa0", 0xDC85: "\x85"})
    content = text.partition("#")[0]
    name, colon, value = content.partition(":")
    return (name.strip() + colon + value.strip()).encode("utf-8", "surrogateescape")


pieces = st.sampled_from([b"/", b"a", b"b", b"*", b"$", b"/x", b" ", b"\xe9", b"\xc3\xa9", *ALL])
values = st.lists(pieces, max_size=5).map(b"".join)
gaps = st.sampled_from([b"", b" ", b"\xc2\xa0", b"\xa0", b"\x1c", b"\xe3\x80\x80 "])
names = st.sampled_from([b"Allow", b"Disallow", b"Disallow", b"Comment", b"Sitemap"])
delays = st.sampled_from([b"1", b"2", b"30", b"4 "])
records = st.one_of(
    st.tuples(names, values),
    st.tuples(st.just(b"User-agent"), st.sampled_from([b"*", b"us", b"other"])),
    st.tuples(st.just(b"Crawl-delay"), delays),
    st.tuples(st.just(b"Request-rate"), delays.map(b"1/".__add__)),
    st.tuples(st.just(b"Visit-time"), st.sampled_from([b"0000-0310", b"0600-0800", b"0300-0700"])),
    st.tuples(st.just(b"Robot-version"), st.sampled_from([b"1.0", b"2.0"])),
)
lines = st.builds(
    lambda gap, record, middle, after, end: (
        gap + record[0] + middle + b":" + after + record[1] + end
    ),
    gaps,
    records,
    gaps,
    gaps,
    gaps,
)
files = st.lists(lines | lines.map(lambda line: line.replace(b":", b"")), max_size=8)
urls = st.lists(st.sampled_from([*"/abx", "%C3%A9", "%E9", "%C2%A0", "%A0"]), max_size=4).map(
    lambda parts: "/" + "".join(parts)
)
bodies = files.map(lambda lines: b"\n".join([b"User-agent: *", *lines]))


@given(bodies, st.lists(urls, min_size=1, max_size=5))
def test_no_reading_is_more_permissive_than_a_single_one(body, urls):
    both = RobotsTxt.parse(body).rules_for("us")
    for rules in (single(body), single(b"\n".join(map(stripped, body.split(b"\n"))))):
        for url in urls:
            assert both.verdict(url).allowed <= rules.verdict(url).allowed
        assert (both.crawl_delay or 0) >= (rules.crawl_delay or 0)
        assert (both.interval(AT) or 0) >= (rules.interval(AT) or 0)
        if both.verdict("/").allowed:
            assert rules.opens(both.opens(AT)) == both.opens(AT)


@given(bodies, urls)
def test_a_file_without_such_white_space_is_read_as_before(body, url):
    for space in ALL:
        body = body.replace(space, b"")
    verdict = RobotsTxt.parse(body).rules_for("us").verdict(url)
    expected = single(body).verdict(url)
    assert (verdict, verdict.line) == (expected, expected.line)
