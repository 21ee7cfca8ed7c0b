"""The record says what let each request go or kept it back (decision 33)."""

import hashlib
import sqlite3
from contextlib import closing

from tests.helpers.sites import (
    LIST_URL,
    blocklist,
    feed,
    feeds,
    judge,
    log_lines,
    paths,
    rows_of,
    site,
    trouble,
)
from walsh_scrapy.state import State
from walsh_scrapy.testing.site import REFUSED, Answer
from walsh_scrapy.testing.web import Fault, Reply, Site, redirect

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


def test_requests_name_a_copy_from_a_host_that_is_crawled(simulated, tmp_path):
    """That host is owned for its own sources, and gets no request before the copy decides."""
    rules = "User-agent: *\nDisallow: /private\n"
    simulated(
        site("operator.example", **{"blocklist.json": blocklist()}),
        site("a.example", redirect("http://b.example/rules", 302)),
        site("b.example", "User-agent: *\nCrawl-delay: 9\n", rules=rules, more=feed()),
        sources=[*feeds("a", "b"), "http://a.example/private/feed", "http://b.example/more"],
        settings={"WALSH_BLOCKLIST_URL": LIST_URL},
    )
    state = tmp_path / "simulation"
    named = "SELECT url, robots FROM readable_{} WHERE url LIKE 'http://a.example/%feed'"
    assert rows_of(state, named.format("requests")) == [
        ("http://a.example/feed", digest(rules.encode()))
    ]
    assert rows_of(state, named.format("denials")) == [
        ("http://a.example/private/feed", digest(rules.encode()))
    ]


def test_requests_and_denials_name_rule_line_copies_and_delays(direct_web, crawl):
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
    with closing(State(url)) as state:
        rows = list(state.rows("request_gaps", where="host = 'a.example'", order_by="id"))
    assert [row["problem"] for row in rows] == [None, None, None]
    assert [row["hold_request"] for row in rows] == [None, None, rows[1]["id"]]


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
#: The status of the response to a page, and what the reason has to name.
REASONS = {
    "missing": (404, "404"),
    "ftp": (301, "'ftp://x/'"),
    "circle": (301, "http://circle.example/back"),
    "far": (301, "http://far.example/3"),
    "reset": (None, "Connection reset"),
    "closed": (None, "closed.example"),
    "cut": (200, "cut.example"),
    "slow": (None, "3.0 seconds"),
    "plain": (200, "gzip"),
    "nested": (200, FIVE),
    "unasked": (200, " br"),
    "gone": (410, "410"),
    "image": (200, "image/png"),
    "large": (200, "58.6 KiB"),
    "bomb": (200, "58.6 KiB when unpacked"),
    "stalled": (200, "3.0 seconds"),
    "cut-off": (404, "404"),
    "away": (301, "http://denied.example/feed"),
    "dead": (301, "nobody.example"),
    "refused": (None, "refused.example refused"),
    "unknown": (None, "unknown.example"),
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
    sources = {name: f"http://{name}.example/feed" for name in REASONS}
    result = crawl(web, sources=[*sources.values(), "http://forged.example/feed"], settings=QUICK)
    rows = rows_of(crawl, "SELECT url, status, detail FROM sources")
    sent = dict(rows_of(crawl, "SELECT url, status FROM requests"))
    found = {url: (status, detail) for url, status, detail in rows}
    begun = {name: sent[sources[name]] for name in ("large", "bomb", "cut", "stalled", "slow")}
    assert begun == {"large": 200, "bomb": 200, "cut": 200, "stalled": 200, "slow": None}
    for name, (status, value) in REASONS.items():
        recorded_status, detail = found[sources[name]]
        assert recorded_status == status
        assert value in detail
        assert name in ("gone", "away") or log_lines(result, f"{sources[name]} failed", detail)
    assert r"\x1b[2j\x85" in result.stderr
    assert log_lines(result, "http://gone.example/feed is gone", "410")
    assert "Gave up" not in result.stderr
    assert "Failure" not in result.stderr
    assert paths(result.log, "circle.example")[1:] == ["circle.example/feed", "circle.example/back"]
    judge(web)


def test_a_request_says_whether_it_was_conditional(simulated, tmp_path):
    pages = {"/etag": feed(etag='"1"'), "/bare": feed()}
    urls = [f"http://a.example{path}" for path in pages]
    simulated(Site("a.example", "", pages), sources=urls, starts=[0.0, 86_460.0])
    (file,) = tmp_path.rglob("walsh.sqlite3")
    with closing(sqlite3.connect(file)) as state:
        rows = state.execute(
            "SELECT run, url, conditional, has_validator FROM readable_requests"
            " WHERE purpose = 'target' ORDER BY url DESC, run"
        ).fetchall()
    etag, bare = urls
    assert rows == [(1, etag, 0, 1), (2, etag, 1, 1), (1, bare, 0, 0), (2, bare, 0, 0)]
