"""R2, R7: for how long a copy of robots.txt counts, and what replaces it (decisions 7 and 12).

Real crawls in simulated time: a run every five days for three months, in turn at midnight and at
half past two.
"""

import pytest

from tests.helpers.sites import blocklist, feed
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.site import Reply, Site, redirect

LIST_URL = "http://operator.example/list.json"
RULES = "User-agent: *\nDisallow: /private\n"
FEED = feed()
BUSY = Reply("Later.\n", 503, headers={"Retry-After": f"{3 * DAY:.0f}"})
TAGGED = Reply(RULES, etag='"rules"', last_modified="Thu, 01 Jan 2026 12:00:00 GMT")
SITES = (
    Site("operator.example", pages={"/list.json": blocklist("optedout.example", refresh="P7D")}),
    Site("month.example", f"User-agent: *\nCrawl-delay: {30 * DAY:.0f}\n", {"/feed": FEED}),
    Site("night.example", "User-agent: *\nVisit-time: 0200-0300\n", {"/feed": FEED}),
    Site("busy.example", "User-agent: *\nCrawl-delay: 2\n", {"/feed": [BUSY, FEED]}),
    Site("hop.example", redirect("http://tagged.example/rules"), {"/feed": FEED}),
    Site("tagged.example", TAGGED, {"/feed": FEED, "/rules": TAGGED}),
    Site(
        "fickle.example",
        [
            RULES,
            redirect("http://optedout.example/robots.txt"),
            Reply(status=304),
            Reply(status=302),
            redirect("mailto:someone@fickle.example"),
        ],
        {"/feed": FEED, "/private": FEED},
    ),
)
SOURCES = [
    *(f"http://{name}.example/feed" for name in ("month", "night", "busy", "tagged", "hop")),
    "http://fickle.example/feed",
    "http://fickle.example/private",
]


@pytest.fixture
def season(simulated):
    runs = simulated(
        *SITES,
        sources=SOURCES,
        settings={"WALSH_BLOCKLIST_URL": LIST_URL},
        starts=[5 * number * DAY + (number % 2) * 9000.0 for number in range(19)],
    )
    return [hit for each in runs for hit in each.log]


def days(log, host):
    """On which days a host was asked: for robots.txt (R), or another document, and the answer."""
    return [
        (round(hit.started / DAY), "R" if hit.path == "/robots.txt" else hit.path, hit.status)
        for hit in log
        if hit.host == host
    ]


def test_what_a_copy_is_good_for(season):
    assert_polite(season, blocked=["optedout.example"], robots_exempt=[LIST_URL])
    # A Crawl-delay of a month: each answer is followed by a month of silence, and no longer.
    month = days(season, "month.example")
    assert month == [(0, "R", 200), (30, "/feed", 200), (60, "R", 200), (90, "/feed", 200)]
    # The pause that a target asks for keeps no copy: its rules may be others by then.
    assert days(season, "busy.example")[:4] == [
        (0, "R", 200), (0, "/feed", 503), (5, "R", 200), (5, "/feed", 200),
    ]  # fmt: skip
    # Visit-time is the wish of robots.txt itself, so what it made wait goes out by the same copy.
    assert days(season, "night.example")[:4] == [
        (0, "R", 200), (5, "/feed", 200), (10, "R", 200), (15, "/feed", 200),
    ]  # fmt: skip
    # What means nothing replaces no copy.
    fickle = days(season, "fickle.example")
    assert [status for _, what, status in fickle if what == "R"][:5] == [200, 301, 304, 302, 301]
    assert "/private" not in {what for _, what, _ in fickle}
    assert (90, "/feed", 200) in fickle
    # Validators go to the URL that they came from, and a 304 is good for a day.
    for path, first in (("/robots.txt", 200), ("/rules", 200)):
        asked = [hit for hit in season if hit.host == "tagged.example" and hit.path == path]
        assert [hit.status for hit in asked] == [first] + [304] * 18
        assert {hit.header("If-None-Match") for hit in asked[1:]} == {'"rules"'}
        assert {hit.header("If-Modified-Since") for hit in asked[1:]} == {TAGGED.last_modified}
    hops = [hit for hit in season if hit.host == "hop.example" and hit.path == "/robots.txt"]
    assert {hit.header("If-None-Match") for hit in hops} == {None}
    assert len([hit for hit in season if hit.url == "http://tagged.example/feed"]) == 19
