"""Row 3: which list was in force, and when it was looked for: within its refresh (R3)."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.records import sent
from tests.helpers.sites import blocklist
from walsh_scrapy.policy.audit.checklist import Findings
from walsh_scrapy.policy.audit.pace import GapCheck
from walsh_scrapy.policy.audit.permission import ListOfRequests, RobotsOfRequests
from walsh_scrapy.policy.audit.record import (
    DAY,
    Basis,
    Documents,
    LoggedRequest,
    RunFacts,
    RunTerms,
)
from walsh_scrapy.policy.blocklist import Blocklist
from walsh_scrapy.policy.robots import RobotsTxt, matching
from walsh_scrapy.policy.robots.secondreader import SecondReader
from walsh_scrapy.state.documents import hash_of

HOUR = 3600.0
ROOT = "https://operator.example"
LIST = f"{ROOT}/list.json"
URLS = {"blocklist_url": LIST, "blocklist_schema_url": f"{ROOT}/schema.json"}
FACTS = RunFacts(**dict.fromkeys(RunFacts._fields, "") | URLS)


def a_list(*domains, refresh="PT6H"):
    return blocklist(*domains, refresh=refresh).content()


EARLIER, LATER = a_list("out.example"), a_list("out.example", "a.example")
COPIES = {hash_of(body): body for body in (EARLIER, LATER)}
OLD, NEW = COPIES


def row(at, run, looked, **columns):
    """A request by a list that was looked for at a moment, as the record says."""
    given = {"gates": "blocklist: not listed; robots: allowed", "delay": 1.0, "blocklist": OLD}
    return sent(at, run=run, blocklist_at=looked, **given | columns)


def the_list(at, run, status=200, **columns):
    """A request for the list; its answer comes a second later."""
    asked = {"host": "operator.example", "url": LIST, "purpose": "blocklist", "gates": ""}
    return row(at, run, None, status=status, blocklist=None, **asked | columns)


def audited(*rows, begun=None, facts=FACTS):
    """Return the findings; runs begin a second before their first row, or as ``begun`` says."""
    first = {}
    for each in sorted(rows, key=lambda row: row.requested_at):
        first.setdefault(each.run, each.requested_at - 1.0)
    runs = {run: RunTerms(at, None, facts) for run, at in (first | (begun or {})).items()}
    since = min(each.requested_at for each in rows)
    hosts = frozenset({"operator.example"})
    basis = Basis(runs, (), hosts, Documents(COPIES.get), since=since)
    findings = Findings()
    audit = ListOfRequests(findings, basis)
    for each in sorted(rows, key=lambda row: row.requested_at):
        audit.see(each)
    audit.end()
    return findings


def kinds(*rows, **options):
    return {kind.label: count for kind, count in audited(*rows, **options).broken.items()}


FIRST = [the_list(0.0, 1), row(2.0, 1, 1.0)]
NEXT = DAY + 1.0


def test_a_list_that_is_never_refreshed_is_a_breach_of_each_run_that_did_not_look():
    second = [row(DAY, 2, 1.0), row(DAY + 9.0, 2, 1.0)]
    third = [the_list(2 * DAY, 3, 304), row(2 * DAY + 2.0, 3, 2 * DAY + 1.0)]
    assert kinds(*FIRST) == {}
    assert kinds(*FIRST, *second) == {"stale-list": 2}
    assert kinds(*FIRST, *second, *third) == {"stale-list": 2}
    found = audited(*FIRST, *second)
    (worst,) = [each.what for each in found.found.values()]
    assert worst == "run 2 should have requested its list 16 h 59 min before"
    assert found.shown["3"] == 1


def test_a_run_that_only_says_that_it_looked_is_a_breach():
    """A moment counts if a request for the list is recorded that may have brought it."""
    assert kinds(*FIRST, row(DAY, 2, DAY - 1.0)) == {"stale-list": 1}
    assert kinds(*FIRST, row(DAY, 2, None)) == {"stale-list": 1}
    assert kinds(*FIRST, row(4000.0, 2, 4000.0)) == {"stale-list": 1}, "an hour after the answer"
    assert kinds(*FIRST, row(3500.0, 2, 3500.0)) == {}, "its check may have taken so long"


def test_a_long_run_has_to_look_again():
    run = [the_list(0.0, 1), *(row(hour * HOUR, 1, 1.0) for hour in range(1, 14))]
    assert kinds(*run) == {"stale-list": 5}, "from the second request after seven hours on"
    again = [row(hour * HOUR, 1, 6.5 * HOUR + 1.0) for hour in range(7, 14)]
    assert kinds(*run[:7], the_list(6.5 * HOUR, 1, 304), *again) == {}
    other = [the_list(6.5 * HOUR, 2, 304), row(6.6 * HOUR, 2, 6.5 * HOUR + 1.0)]
    assert kinds(*run, *other) == {"stale-list": 5}, "what another run fetched is not in its memory"


def test_a_host_that_was_opted_out_before_a_run_that_did_not_look_is_a_breach():
    newer = [the_list(DAY, 2), row(DAY + 2, 2, NEXT, **new())]
    long = [row(hour * HOUR, 1, 1.0) for hour in range(6, 26, 6)]
    late = row(25 * HOUR, 1, 1.0)
    assert kinds(*FIRST, *newer, *long, late) == {"stale-list": 3, "listed": 1}
    other = late._replace(url="http://b.example/", host="b.example")
    below = late._replace(url="http://x.a.example/", host="x.a.example")
    assert kinds(*FIRST, *newer, *long, other) == {"stale-list": 3}
    assert kinds(*FIRST, *newer, *long, below) == {"stale-list": 3, "listed-above": 1}


def new():
    return {"blocklist": NEW, "url": "http://b.example/feed", "host": "b.example"}


def test_a_faulty_reader_of_the_list_cannot_hide_its_fault(monkeypatch):
    """Decision 35: `json` and a few plain lines read it too."""
    listed = [the_list(0.0, 1), row(2.0, 1, 1.0, blocklist=NEW)]
    below = row(4.0, 1, 1.0, blocklist=NEW, url="http://x.a.example/", host="x.a.example")
    found = {"listed": 1, "listed-above": 1}
    assert kinds(*listed, below) == found
    monkeypatch.setattr(Blocklist, "blocks", lambda _list, _url: None)
    assert kinds(*listed, below) == found


def test_a_run_that_has_no_list_and_never_asked_for_one_is_a_breach():
    first = [the_list(0.0, 1, 404), row(2.0, 1, 1.0, blocklist=None)]
    assert kinds(*first) == {}
    for looked in (None, 1.0):
        late = row(3 * DAY, 2, looked, blocklist=None)
        assert kinds(*first, late) == {"stale-list": 1}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([row(5 * HOUR, 2, 1.0), row(5.5 * HOUR, 2, 1.0)], id="within-the-refresh"),
        pytest.param([the_list(DAY, 2, 304), row(DAY + 2.0, 2, NEXT)], id="revalidated"),
        pytest.param(
            [
                the_list(DAY, 2, 301),
                the_list(DAY + 1.0, 2, 200, host="m.example", url="https://m.example/list"),
                row(DAY + 3.0, 2, DAY + 2.0),
            ],
            id="redirected",
        ),
        pytest.param(
            [
                the_list(DAY, 2, None, hold=60.0),
                *(row(DAY + n * HOUR + 1.0, 2, DAY + n * HOUR) for n in range(1, 72)),
            ],
            id="its-server-is-down-and-put-off-for-the-rest-of-the-run",
        ),
        pytest.param(
            [
                the_list(DAY, 2, 503, hold=1e6),
                row(DAY + 2.0, 2, NEXT),
                row(1.9 * DAY, 3, 1.9 * DAY - 1.0),
            ],
            id="its-server-is-on-hold-for-a-day-at-most",
        ),
        pytest.param(
            [
                row(DAY, 2, 1.0, status=503, purpose="robots", url=f"{ROOT}/robots.txt"),
                row(DAY + 2.0, 2, NEXT),
            ],
            id="its-robots-txt-does-not-answer",
        ),
        pytest.param(
            [
                the_list(DAY, 2, 304, delay=20 * HOUR),
                row(DAY + 3.0, 2, NEXT),
                row(DAY + 19 * HOUR, 3, DAY + 18.9 * HOUR),
            ],
            id="its-crawl-delay-is-longer-than-its-refresh",
        ),
        pytest.param(
            [the_list(DAY, 2), row(DAY + 2.0, 2, NEXT), row(DAY + 30 * HOUR, 2, NEXT)],
            id="one-request-was-out-while-the-machine-was-suspended",
        ),
    ],
)
def test_a_list_that_was_tried_is_no_breach(rows):
    assert kinds(*FIRST, *rows) == {}


def test_a_server_that_is_down_has_to_be_tried_again_by_later_runs():
    first = [*FIRST, the_list(DAY, 2, None), row(DAY + 2.0, 2, NEXT)]
    assert kinds(*first, row(3 * DAY, 3, 3 * DAY - 1.0)) == {"stale-list": 1}
    again = [the_list(3 * DAY, 3, None), row(3 * DAY + 2.0, 3, 3 * DAY + 1.0)]
    assert kinds(*first, *again) == {}


def test_a_bot_without_a_published_list_needs_none():
    """The list that an operator keeps in a file is read at each start."""
    facts = FACTS._replace(blocklist_url="", blocklist_schema_url="")
    rows = [row(day * DAY, day, None, blocklist=None) for day in range(1, 5)]
    assert kinds(*rows, facts=facts) == {}


def test_what_was_fetched_before_the_record_begins_is_not_known():
    """Older rows were deleted. A request that is later than the refresh since then is a breach."""
    rows = [row(0.0, 1, -99.0), row(HOUR, 1, -99.0)]
    findings = audited(*rows, begun={1: -9.0})
    assert findings.found == {}
    assert findings.numbers["3"]["list_of_before_the_record"] == 2
    assert kinds(*rows, row(3 * DAY, 2, -99.0)) == {"stale-list": 1}


def test_the_schema_alone_is_no_look():
    rows = [*FIRST, the_list(DAY, 2, url=FACTS.blocklist_schema_url)]
    assert kinds(*rows, row(DAY + 2.0, 2, NEXT)) == {"stale-list": 1}


# Row 2 by the second reader: a faulty parser cannot hide its own faults (decision 35).

US = "Walsh-Research"


def row_of_robots(kind, url, **columns):
    given = {"id": 1, "url": url, "run": 1, "robots": "copy", "robots_at": 0.0}
    return kind(**dict.fromkeys(kind._fields) | given | columns)


def audited_of_robots(body, *urls):
    """Return the findings of an audit of requests under one robots.txt."""
    facts = RunFacts(**dict.fromkeys(RunFacts._fields, "") | {"ua_token": US})
    runs, findings = {1: RunTerms(0.0, None, facts)}, Findings()
    basis = Basis(runs, (), frozenset(), Documents({"copy": body}.get), since=1.0)
    audit = RobotsOfRequests(findings, basis)
    for url in urls:
        audit.see(row_of_robots(LoggedRequest, url, requested_at=1.0, purpose="target"))
    return findings


def kinds_of_robots(body, url):
    return {kind.label for kind in audited_of_robots(body, url).found}


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
    assert kinds_of_robots(body, url) == {"denied"}
    mutant(monkeypatch)
    assert RobotsTxt.parse(body).rules_for(US).verdict(url).allowed, "the mutant lets it go"
    assert kinds_of_robots(body, url) == {"denied-by-protego"}


def test_a_faulty_choice_of_groups_shows(monkeypatch):
    """A request is sent by the rules for all, though a group names us."""
    body = b"User-agent: *\nAllow: /\n\nUser-agent: walsh-research\nDisallow: /private\n"
    assert kinds_of_robots(body, "http://a.example/private/1") == {"denied-by-name"}
    monkeypatch.setattr(
        "walsh_scrapy.policy.robots.robotstxt.most_specific_name", lambda _names, _token: None
    )
    assert kinds_of_robots(body, "http://a.example/private/1") == {"denied-by-protego"}


def test_what_protego_reads_more_freely_is_compared_and_no_breach():
    body = b"User-agent: *\nDisallow: /\nAllow: /x/index.html\n"
    findings = audited_of_robots(body, "http://a.example/x/index.html")
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
    findings = audited_of_robots(body, url)
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
    judge = GapCheck(basis)
    gaps = [judge.check(sent(at, run=1, robots="c", delay=1.0)) for at in (0.0, 5.0, 15.0)]
    assert [(each.is_short, each.delay) for each in gaps] == [
        (False, 9.0),
        (True, 9.0),
        (False, 9.0),
    ]
