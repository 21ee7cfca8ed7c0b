"""The record says what let each request go or kept it back (decision 33)."""

import hashlib
import json
import sqlite3
from contextlib import closing

from tests.helpers.sites import LIST_URL, blocklist, rows_of, site, trouble
from walsh_scrapy.policy.audit.pace import PauseJudge
from walsh_scrapy.state import State
from walsh_scrapy.state.log import TimeSpan
from walsh_scrapy.testing.web import Reply, redirect
from walsh_scrapy.tools.report import host_lines

RULES = "User-agent: Walsh-Research\nDisallow: /private\nAllow: /feed\nCrawl-delay: 2\n"


def digest(body):
    return hashlib.sha256(body).hexdigest()


def test_a_denial_names_a_robots_txt_that_is_new(simulated, tmp_path):
    """Its copy is written with the next transaction of its host, and the denial after it."""
    rules = "User-agent: *\nDisallow: /private\n"
    simulated(
        site("operator.example", **{"blocklist.json": blocklist("out.example")}),
        site("a.example", rules),
        sources=["http://a.example/private/feed", "http://out.example/feed"],
        settings={"WALSH_BLOCKLIST_URL": LIST_URL},
    )
    (file,) = tmp_path.rglob("walsh.sqlite3")
    with closing(sqlite3.connect(file)) as state:
        named = "SELECT gate, robots, blocklist_at FROM readable_denials ORDER BY gate DESC"
        robots, listed = state.execute(named).fetchall()
        (asked,) = state.execute("SELECT blocklist_at FROM readable_requests WHERE blocklist_at")
    assert robots[:2] == ("robots", digest(rules.encode()))
    assert listed[:2] == ("blocklist", None)
    assert robots[2] == listed[2] == asked[0], "when the list was asked for"


def test_requests_and_denials_name_rule_line_copies_and_pauses(direct_web, crawl, on_state):
    listed = blocklist("out.example")
    web = direct_web(
        site("a.example", RULES, feed=[Reply(status=503), redirect("http://www.out.example/feed")]),
        site("out.example"),
        site("operator.example", **{"blocklist.json": listed}),
    )
    crawl(
        web,
        sources=["http://a.example/feed", "http://a.example/private/feed"],
        settings={"WALSH_BLOCKLIST_URL": LIST_URL, "WALSH_BACKOFF_BASE": 2.5}
        | trouble("PausedMeanwhile"),
    )
    sent = rows_of(
        crawl,
        "SELECT purpose, rule, line, robots, blocklist, pause, status, hold, robots_status"
        " FROM readable_requests WHERE host = 'a.example' ORDER BY id",
    )
    kept_back = rows_of(
        crawl,
        "SELECT gate, url, rule, line, robots, blocklist, run FROM readable_denials ORDER BY url",
    )
    led = rows_of(crawl, "SELECT url, redirected_by, robots_status FROM denials")
    bodies = dict(rows_of(crawl, "SELECT hash, body FROM copies"))
    purposes = dict(rows_of(crawl, "SELECT url, purpose FROM requests"))
    rules, published = digest(RULES.encode()), digest(listed.body.encode())
    assert [row[:5] for row in sent] == [
        ("robots", None, None, rules, published),
        ("target", "Allow: /feed", 3, rules, published),
        ("target", "Allow: /feed", 3, rules, published),
    ]
    assert [row[5] for row in sent] == [0.0, 2.0, 2.0], "what counted when each was sent"
    assert [row[6] for row in sent] == [200, 503, 301]
    assert [row[8] for row in sent] == [200, 200, 200]
    refused = sent[1][7]
    assert 2.5 <= refused <= 3.75, "the backoff"
    assert sent[0][7] == sent[2][7] == 0.0
    assert kept_back == [
        ("robots", "http://a.example/private/feed", "Disallow: /private", 2, rules, published, 1),
        ("blocklist", "http://www.out.example/feed", "out.example", None, None, published, 1),
    ]
    assert sorted(led) == [
        ("http://a.example/private/feed", None, 200),
        ("http://www.out.example/feed", "http://a.example/feed", None),
    ]
    assert (bodies[rules], bodies[published]) == (RULES.encode(), listed.body.encode())
    assert purposes[LIST_URL] == "blocklist"
    url = f"sqlite:///{crawl.folder / 'walsh.sqlite3'}"
    with closing(State(url)) as state, state.log() as log:
        judge = PauseJudge(log.basis(log.bounds(2e9)))
        (line,) = host_lines(log.requests(TimeSpan(), "a.example"), judge, lambda _record: True)
    assert [each.pause.hold > each.pause.delay for each in line.sent] == [False, False, True]
    assert line.short == 0, "the pauses that the report sees were kept"

    told = on_state("why", "http://a.example/feed", "--json")
    assert told.returncode == 0, told.stderr
    account = json.loads(told.stdout)
    assert [each["line"] for each in account["requests"]] == [None, 3, 3]
    assert [each["pause"] >= each["pause_asked"] for each in account["requests"][1:]] == [
        True,
        True,
    ]
    assert (account["robots"][0]["hash"], account["denials"]) == (rules, [])
    assert account["robots"][0]["quoted"][1] == {"number": 2, "text": "Disallow: /private"}
