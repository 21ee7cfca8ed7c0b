"""The record says what let each request go or kept it back (decision 33)."""

import hashlib
import json
import sqlite3
from contextlib import closing

from tests.helpers.sites import LIST_URL, blocklist, feed, judge, paths, rows_of, site, trouble
from walsh_scrapy.state import State
from walsh_scrapy.state.log import TimeSpan
from walsh_scrapy.testing.site import REFUSED, Answer
from walsh_scrapy.testing.web import Fault, Reply, Site, redirect
from walsh_scrapy.tools.report.pace import read_gaps

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


def test_requests_and_denials_name_rule_line_copies_and_delays(direct_web, crawl, on_state):
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
        "SELECT purpose, rule, line, robots, blocklist, delay, status, hold, robots_status"
        " FROM readable_requests WHERE host = 'a.example' ORDER BY id",
    )
    kept_back = rows_of(
        crawl,
        "SELECT gate, url, rule, line, robots, blocklist, run FROM readable_denials ORDER BY url",
    )
    led = rows_of(crawl, "SELECT url, redirected_from, robots_status FROM denials")
    bodies = dict(rows_of(crawl, "SELECT sha256, body FROM copies"))
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
        gaps = [row for row in read_gaps(log, TimeSpan(), 2e9) if row["host"] == "a.example"]
    assert [row["by_hold"] for row in gaps] == [False, False, True]
    assert not any(row["is_short"] for row in gaps), "the gaps that the report sees were kept"

    told = on_state("why", "http://a.example/feed", "--json")
    assert told.returncode == 0, told.stderr
    account = json.loads(told.stdout)
    assert [each["line"] for each in account["requests"]] == [None, 3, 3]
    assert [each["gap"] >= each["required_gap"] for each in account["requests"][1:]] == [
        True,
        True,
    ]
    assert (account["robots"][0]["sha256"], account["denials"]) == (rules, [])
    assert account["robots"][0]["quoted"][1] == {"number": 2, "text": "Disallow: /private"}


# The reason of each failure is a sentence: what went wrong, on which host, and the response.

QUICK = {
    "RETRY_TIMES": 0,
    "WALSH_MAX_RETRIES": 1,
    "WALSH_BACKOFF_BASE": 0.5,
    "REDIRECT_MAX_TIMES": 2,
    "DOWNLOAD_TIMEOUT": 3,
    "DOWNLOAD_MAXSIZE": 60_000,
}
PACKED = {"Content-Encoding": "gzip"}
FIVE = ",".join(["gzip"] * 5)
PAGES = {
    "missing": Reply(status=404, headers=PACKED),
    "ftp": redirect("ftp://x/"),
    "circle": redirect("/back"),
    "far": redirect("/1"),
    "reset": Reply(fault=Fault.RESET),
    "closed": Reply(fault=Fault.CLOSE),
    "cut": Reply(feed().body, fault=Fault.TRUNCATE),
    "slow": Reply(delay=60.0),
    "plain": Reply(b"\x1f\x8b\x00 no gzip", headers=PACKED),
    "nested": Reply(feed().body, headers={"Content-Encoding": FIVE}),
    "unasked": Reply(feed().body, headers={"Content-Encoding": "br"}),
    "gone": Reply("gone", status=410, headers=PACKED),
    "image": Reply(b"\x89PNG", content_type="image/png"),
    "large": Reply(b"x" * 70_000),
    "bomb": Reply(b"x" * 70_000, gzip=True),
    "stalled": Reply(feed().body, drip=60.0),
    "cut-off": Reply("x" * 900, status=404, fault=Fault.TRUNCATE),
    "away": redirect("http://denied.example/feed"),
    "dead": redirect("http://nobody.example/feed"),
}
TOLD = {
    "missing": (404, "missing.example answered 404"),
    "ftp": (301, "ftp.example answered 301 with a Location that cannot be requested: 'ftp://x/'"),
    "circle": (301, "redirected in a loop: {host}/back leads back to {host}/feed"),
    "far": (301, "redirected more than 2 times, at last to {host}/3"),
    "reset": (None, "no response from reset.example: Connection reset by peer"),
    "closed": (
        None,
        "no response from closed.example: the server closed the connection without a response",
    ),
    "cut": (200, "the response from cut.example ended before it was complete"),
    "slow": (None, "slow.example timed out: Getting {host}/feed took longer than 3.0 seconds"),
    "plain": (200, "the body of {host}/feed is not gzip as announced: unknown compression method"),
    "nested": (200, f"the body of {{host}}/feed is not {FIVE} as announced: at most 4 are undone"),
    "unasked": (200, "the body of {host}/feed is br, which was not requested"),
    "gone": (410, "gone.example answered 410"),
    "image": (200, "image/png is not a feed, so its body was not downloaded"),
    "large": (200, "the response from large.example is too large: more than 58.6 KiB"),
    "bomb": (200, "the response from bomb.example is too large: more than 58.6 KiB when unpacked"),
    "stalled": (200, "stalled.example timed out: Getting {host}/feed took longer than 3.0 seconds"),
    "cut-off": (404, "cut-off.example answered 404"),
    "away": (
        301,
        "it redirects to http://denied.example/feed: line 2 of robots.txt says 'Disallow: /'",
    ),
    "dead": (301, "the DNS has no address for nobody.example"),
    "refused": (None, "refused.example refused the connection"),
    "unknown": (None, "the DNS has no address for unknown.example"),
}


def test_the_reason_of_each_failure_is_in_log_and_state(direct_web, crawl):
    hops = {f"{hop}": redirect(f"/{hop + 1}") for hop in range(1, 9)}
    back = redirect("/feed")
    web = direct_web(
        *(site(f"{name}.example", feed=page, back=back, **hops) for name, page in PAGES.items()),
        Site("denied.example", "User-agent: *\nDisallow: /\n"),
        Site("refused.example", dns=Answer((REFUSED,))),
        site("forged.example", feed=feed(headers={"Content-Encoding": "\x1b[2J\x85"})),
    )
    sources = {name: f"http://{name}.example/feed" for name in TOLD}
    result = crawl(web, sources=[*sources.values(), "http://forged.example/feed"], settings=QUICK)
    rows = rows_of(crawl, "SELECT url, status, detail FROM sources")
    sent = dict(rows_of(crawl, "SELECT url, status FROM requests"))
    found = {url: (status, detail) for url, status, detail in rows}
    begun = {name: sent[sources[name]] for name in ("large", "bomb", "cut", "stalled", "slow")}
    assert begun == {"large": 200, "bomb": 200, "cut": 200, "stalled": 200, "slow": None}
    for name, (status, told) in TOLD.items():
        detail = told.format(host=f"http://{name}.example")
        assert found[sources[name]] == (status, detail)
        assert name in ("gone", "away") or f"{sources[name]} failed: {detail}\n" in result.stderr
    assert r"feed is not unpacked: no such coding, \x1b[2j\x85" in result.stderr
    assert "http://gone.example/feed is gone (410) and not requested again" in result.stderr
    assert "Gave up" not in result.stderr
    assert "Failure" not in result.stderr
    assert paths(result.log, "circle.example")[1:] == ["circle.example/feed", "circle.example/back"]
    judge(web)
