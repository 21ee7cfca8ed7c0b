"""Row 2 by the second reader: a faulty parser cannot hide its own faults (decision 35)."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.records import sent
from walsh_scrapy.policy.audit.checklist import Findings
from walsh_scrapy.policy.audit.pace import PauseJudge
from walsh_scrapy.policy.audit.permission import RobotsOfRequests
from walsh_scrapy.policy.audit.record import (
    Basis,
    Documents,
    LoggedRequest,
    RunFacts,
    RunTerms,
)
from walsh_scrapy.policy.robots import RobotsTxt, matching
from walsh_scrapy.policy.robots.secondreader import SecondReader

US = "Walsh-Research"


def row(kind, url, **columns):
    given = {"id": 1, "url": url, "run": 1, "robots": "copy", "robots_at": 0.0}
    return kind(**dict.fromkeys(kind._fields) | given | columns)


def audited(body, *urls):
    """Return the findings of an audit of requests under one robots.txt."""
    facts = RunFacts(**dict.fromkeys(RunFacts._fields, "") | {"ua_token": US})
    runs, findings = {1: RunTerms(0.0, None, facts)}, Findings()
    basis = Basis(runs, (), frozenset(), Documents({"copy": body}.get), since=1.0)
    audit = RobotsOfRequests(findings, basis)
    for url in urls:
        audit.see(row(LoggedRequest, url, sent_at=1.0, purpose="target"))
    return findings


def kinds(body, url):
    return {kind.label for kind in audited(body, url).found}


def stop_at_slashes(monkeypatch):
    """`*` crosses no "/"."""

    def found(tail, path, start):
        pattern = "[^/]*".join(map(re.escape, tail.removesuffix("$").split("*")))
        return bool(re.match(f"[^/]*{pattern}", path[start:]))

    monkeypatch.setattr(matching, "_found", found)


def forget_case(monkeypatch):
    """Rules are compared in lower case."""
    right = matching.patterns_of
    monkeypatch.setattr(
        matching, "patterns_of", lambda rules: [(t.lower(), rank) for t, rank in right(rules)]
    )


def match_whole_paths(monkeypatch):
    """A rule matches its own path alone."""
    right = matching.PathRules.rank

    def rank(self, target):
        lengths = [n for n in self.prefix_lengths if n == len(target.path)]
        rules = matching.PathRules(
            self.prefixes, self.exact, self.wildcards, lengths, self.head_lengths
        )
        return right(rules, target)

    monkeypatch.setattr(matching.PathRules, "rank", rank)


def prefer_allow(monkeypatch):
    """Any Allow beats any Disallow, whatever their lengths are."""
    right = matching.patterns_of
    monkeypatch.setattr(
        matching,
        "patterns_of",
        lambda rules: [(t, rank + 10_000 * (rank % 2)) for t, rank in right(rules)],
    )


@pytest.mark.parametrize(
    ("mutant", "body", "url"),
    [
        (stop_at_slashes, b"Disallow: /*/draft", "http://a.example/1/2/draft"),
        (stop_at_slashes, b"Disallow: /x*.xml$", "http://a.example/x/1/feed.xml"),
        (forget_case, b"Disallow: /\nAllow: /Feed", "http://a.example/feed"),
        (match_whole_paths, b"Disallow: /private", "http://a.example/private/feed"),
        (prefer_allow, b"Allow: /a\nDisallow: /a/b", "http://a.example/a/b"),
    ],
)
def test_a_faulty_matcher_shows(monkeypatch, mutant, body, url):
    body = b"User-agent: *\n" + body
    assert kinds(body, url) == {"denied"}
    mutant(monkeypatch)
    assert RobotsTxt.parse(body).rules_for(US).verdict(url).allowed, "the mutant lets it go"
    assert kinds(body, url) == {"denied-by-protego"}


def test_a_faulty_choice_of_groups_shows(monkeypatch):
    """A request is sent by the rules for all, though a group names us."""
    body = b"User-agent: *\nAllow: /\n\nUser-agent: walsh-research\nDisallow: /private\n"
    assert kinds(body, "http://a.example/private/1") == {"denied-by-name"}
    monkeypatch.setattr(
        "walsh_scrapy.policy.robots.robotstxt.most_specific_name", lambda _names, _token: None
    )
    assert kinds(body, "http://a.example/private/1") == {"denied-by-protego"}


def test_what_protego_reads_more_freely_is_compared_and_no_breach():
    body = b"User-agent: *\nDisallow: /\nAllow: /x/index.html\n"
    findings = audited(body, "http://a.example/x/index.html")
    assert findings.found == {}
    assert findings.figures("2")["compared_with_protego"] == 1


@pytest.mark.parametrize(
    ("body", "url"),
    [
        # Protego takes `W` for our name, and closes a group at a line that it does not know.
        (b"User-agent: W\nDisallow: /\n", "/feed"),
        (b"User-agent: *\nDisallow: /\n\nUser-agent: *\nSeen: x\nUser-agent: q\nAllow: /f", "/f"),
        # It counts `&` as three octets, so the rule with it is the longer one.
        (b"User-agent: *\nAllow: /so?a=1&b=2345\nDisallow: /*?*&b=*&&*&\n", "/so?a=1&b=2345&&c&"),
        (b"User-agent: *\nDisallow: /a%3Fb\n", "/a?b"),
        (b"\xef\xbb\xbfUser-agent: walsh-research\nAllow: /\nUser-agent: *\nDisallow: /\n", "/x"),
        (b"User-agent: Walsh-Research/1.0\nAllow: /\n\nUser-agent: *\nDisallow: /\n", "/x"),
        (b"User-agent: *\xc2\x85Disallow: /\n", "/x"),
        (b"User-agent: *\nDisallow: /" + b"x" * 200_000, "/x"),
        (b"User-agent: a\n" * 300 + b"Disallow: /x\n" * 300, "/y"),
    ],
)  # fmt: skip
def test_what_leaves_two_readings_accuses_nobody(body, url):
    url = f"http://a.example{url}"
    assert RobotsTxt.parse(body).rules_for(US).verdict(url).allowed
    assert not SecondReader(body).can_compare(url, US)
    findings = audited(body, url)
    assert (findings.found, findings.shown["2"]) == ({}, 1)


PIECES = ["a", "b", "A", "/", "//", "*", "**", "$", ".", "-", "=", "?", "&", "%", "%61", "%2F",
          "%3f", "%24", "~", " ", "ü", "index.html", "a/b"]  # fmt: skip
NAMES = ["*", US, "walsh", "Walsh-", "WALSH-RESEARCH", "W", "walsh-r", "Walsh-Research/1.0", "bot",
         "*bot", "walsh*", "", "Mozilla/5.0 (x; y)"]  # fmt: skip
KEYS = ["Crawl-delay: 1", "Sitemap: http://a/", "Host: a", "Noindex: /a", "Robot-version: 2.0",
        "", "# x", "prose", "Disalow: /a", "Allow /a", "allowed: /a"]  # fmt: skip
paths = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
records = st.one_of(
    st.sampled_from(NAMES).map("User-agent: {}".format),
    paths.map("Disallow: /{}".format),
    paths.map("Allow: /{}".format),
    paths.map("disallow:{} # x".format),
    st.sampled_from(KEYS),
)
files = st.lists(records, max_size=12).map("\n".join)
plain = st.lists(st.sampled_from(["a", "b", "A", "/", "=", ".", "-"]), max_size=6).map("".join)
urls = st.one_of(paths, plain, st.tuples(plain, plain).map("?".join)).map("http://h/{}".format)


@given(files, urls)
def test_where_the_readings_can_be_compared_ours_is_never_more_permissive(text, url):
    reader = SecondReader(f"User-agent: *\n{text}".encode())
    if reader.can_compare(url, US) and not reader.allows(url, US):
        body = f"User-agent: *\n{text}".encode()
        assert not RobotsTxt.parse(body).rules_for(US).verdict(url).allowed


def test_a_file_as_most_sites_have_it_can_be_compared():
    body = b"""\
# A comment
User-agent: GPTBot
User-agent: CCBot/2.0
Disallow: /

User-agent: *
Crawl-delay: 10
Disallow: /wp-admin/
Allow: /wp-admin/admin-ajax.php
Content-Signal: search=yes, ai-train=no
Sitemap: https://a.example/sitemap.xml
"""
    reader = SecondReader(body)
    for url in ("https://a.example/feed/", "https://a.example/?feed=rss2", "https://a.example"):
        assert reader.can_compare(url, US)
        assert reader.allows(url, US)
    assert not reader.can_compare("https://a.example/%C3%BC", US)
    assert SecondReader(b"User-agent: *\nDisallow: /*?replytocom").can_compare("http://a/?x=1", US)


AT = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
DELAYS = ["Crawl-delay: 2", "crawl-delay:10 # x", "Crawl-delay: 0.5", "Crawl-delay: 1_000",
          "Crawl-delay: -1", "Crawl-delay: 1e9", "Request-rate: 1/10s", "Request-rate: 2/1m",
          "Request-rate: 1/1h 0600-0845", "Request-rate: 0/5", "Request-rate: 1/20"]  # fmt: skip
paced = st.lists(st.one_of(records, st.sampled_from(DELAYS)), max_size=12).map("\n".join)


@given(paced)
def test_the_second_reading_of_a_delay_never_asks_for_more(text):
    body = f"User-agent: *\n{text}".encode()
    rules = RobotsTxt.parse(body).rules_for(US)
    longest = max(rules.crawl_delay or 0.0, rules.interval(AT) or 0.0)
    assert SecondReader(body).delay(US) <= longest


ALL = "User-agent: *\nCrawl-delay: 10\nAllow: /x\n\n"


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ("User-agent: *\nCrawl-delay: 7\nDisallow: /x\nRequest-rate: 2/1m\n", 30.0),
        (ALL + "User-agent: *\nCrawl-delay: 2\n", 10.0),
        (ALL + "User-agent: Walsh-Research\nCrawl-delay: 2\n", 2.0),
        (ALL + "User-agent: Walsh-Research\nAllow: /\n", 0.0),
        ("User-agent: a\nUser-agent: walsh-research\nDisallow: /x\nCrawl-delay: 3\n", 3.0),
        ("User-agent: W\nCrawl-delay: 3\n", 0.0),
        ("User-agent: *\nRequest-rate: 1/60 0600-0845\n", 0.0),
    ],
)
def test_what_a_delay_is_by_plain_lines(body, seconds):
    assert SecondReader(body.encode()).delay(US) == seconds


def test_a_faulty_reader_of_delays_shows(monkeypatch):
    """The crawl read no delay, and recorded none: the copy says more (decision 35)."""
    body = b"User-agent: *\nRequest-rate: 1/9\n"
    facts = RunFacts(**dict.fromkeys(RunFacts._fields, "") | {"ua_token": US})
    basis = Basis({1: RunTerms(0.0, None, facts)}, (), frozenset(), Documents({"c": body}.get))
    judge = PauseJudge(basis)
    pauses = [judge.judge(sent(at, run=1, robots="c", pause=1.0)) for at in (0.0, 5.0, 15.0)]
    assert [(each.is_short, each.delay) for each in pauses] == [
        (False, 9.0),
        (True, 9.0),
        (False, 9.0),
    ]
