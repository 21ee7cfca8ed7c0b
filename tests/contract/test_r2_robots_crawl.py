"""R2 on the wire: robots.txt first, read as RFC 9309 says, once a day, by status (decision 12)."""

import gzip

import pytest

from tests.helpers.sites import blocklist, feed, feeds, in_turn, judge, log_lines, paths, site
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.simulation import DAY, EPOCH
from walsh_scrapy.testing.web import Fault, Reply, Site, redirect

HOUR = 3600.0
BLOCKED_HERE = "User-agent: *\nDisallow: /\n"


NOWHERE = (
    "http://[bad",
    "http://b.example:99999/robots.txt",
    "ftp://b.example/",
    "",
    "http://",
    "\\",
)
#: 16.6 kB that unpack to 17 MB, more than any body may have; what counts is in the first 500 KiB.
BOMB = Reply(
    gzip.compress(BLOCKED_HERE.encode() + b"#" * 17_000_000),
    headers={"Content-Encoding": "gzip"},
)
PADDING = "# " + "x" * 1000 + "\n"
#: By WALSH_ROBOTS_UNREACHABLE: what a host answers for its robots.txt, and if its feed is fetched.
ANSWERS = {
    "allow": {
        "missing": (Reply(status=404), True),
        "bomb": (BOMB, False),
        "error": (Reply(status=500), True),
        "reset": (Reply(fault=Fault.RESET), True),
        "recovers": ([Reply(status=503), Reply(BLOCKED_HERE)], False),
        "endless": (BLOCKED_HERE + PADDING * 20_000, False),
        # Five redirects are followed; the rules apply to the authority that was asked first.
        "five": (redirect("/4/robots.txt"), False),
        "six": (redirect("/5/robots.txt"), True),
        "away": (redirect("http://rules.example/0/robots.txt"), False),
        "loop": (redirect("/robots.txt"), True),
        # One without a target counts as no robots.txt.
        **{f"odd{n}": (redirect(location), True) for n, location in enumerate(NOWHERE)},
    },
    "disallow": {
        "error": (Reply(status=500), False),
        "unasked": (Reply("packed", headers={"Content-Encoding": "zstd"}), False),
        "reset": (Reply(fault=Fault.RESET), False),
    },
}


@pytest.mark.parametrize("unreachable", ANSWERS)
def test_what_is_fetched_by_the_answer_to_robots_txt(direct_web, crawl, unreachable):
    cases = ANSWERS[unreachable]
    hops = {f"{hop}/robots.txt": redirect(f"/{hop - 1}/robots.txt") for hop in range(1, 6)}
    hops["0/robots.txt"] = Reply(BLOCKED_HERE)
    hosts = {"rules": ("", True)} | cases
    web = direct_web(
        *(site(f"{name}.example", robots, **hops) for name, (robots, _) in hosts.items())
    )
    result = crawl(
        web,
        sources=feeds(*cases),
        settings={
            "WALSH_ROBOTS_UNREACHABLE": unreachable,
            "WALSH_BACKOFF_BASE": 0.1,
            "WALSH_MAX_RETRIES": 1,
        },
    )
    assert result.exit_code == 0
    asked = paths(result.log)
    assert {name: f"{name}.example/feed" in asked for name in cases} == {
        name: fetched for name, (_, fetched) in cases.items()
    }
    assert "six.example/0/robots.txt" not in asked
    judge(result)


def test_robots_txt_is_cached_for_each_port(simulated):
    first, second = simulated(
        site("blog.example", [BLOCKED_HERE, ""]),
        Site("blog.example:8080", "", {"/feed": feed()}),
        sources=["http://blog.example/feed", "http://blog.example:8080/feed"],
        starts=[0.0, HOUR],
        arguments={"force": "1"},
    )
    feeds_requested = [hit.url for hit in first.log if hit.path == "/feed"]
    assert feeds_requested == ["http://blog.example:8080/feed"]
    assert [hit.url for hit in second.log] == ["http://blog.example:8080/feed"]
    assert_polite(first.log + second.log)


def test_visit_time_defers_a_host_until_it_opens(simulated):
    """A simulation begins at midnight."""
    first, second, third = simulated(
        site("closed.example", "User-agent: *\nVisit-time: 0200-0300\n"),
        site("open.example", "User-agent: *\nVisit-time: 2300-0100\n"),
        sources=feeds("closed", "open"),
        starts=[0.0, HOUR, 2 * HOUR],
    )
    assert paths(first.log, "closed.example") == ["closed.example/robots.txt"]
    assert "open.example/feed" in paths(first.log)
    assert first.stats["walsh/sources/deferred"] == 1
    assert first.stats["walsh/sources/deferred_until"] == pytest.approx(EPOCH + 2 * HOUR, abs=1.0)
    assert log_lines(first, "closed.example", "on hold")
    assert second.log == []
    assert paths(third.log) == ["closed.example/feed"]
    assert_polite(first.log + third.log)


def test_a_rule_counts_in_spite_of_its_hard_space(simulated):
    (result,) = simulated(
        site("a.example", "User-agent: *\nDisallow: /feed\u00a0\n"),
        site("b.example", "User-agent: *\nDisallow: /\nAllow: /feed\u2003\n"),
        sources=feeds("a", "b"),
    )
    assert {hit.path for hit in result.log} == {"/robots.txt"}
    assert log_lines(result, "http://a.example:80/robots.txt line 2", "white space")


def test_the_comments_of_a_robots_txt_are_logged(simulated):
    (result,) = simulated(
        site("a.example", "User-agent: *\nComment: we sleep at times\n"),
        site("b.example", "User-agent: *\n" + "Comment: b\n" * 8000),
        sources=feeds("a", "b"),
    )
    assert log_lines(result, "http://a.example:80/robots.txt", "we sleep at times")
    assert log_lines(result, "http://b.example:80/robots.txt", "b · b · b · b · b · …", "7,995")


def test_the_first_five_lines_with_errors_are_logged(simulated):
    rules = "User-agent: *\n" + "Crawl-delay: soon\n" * 8000
    (result,) = simulated(site("a.example", rules), sources=feeds("a"))
    assert len(log_lines(result, "'Crawl-delay: soon'")) == 5


# R2, R7: for how long a copy of robots.txt counts, and what replaces it (decisions 7 and 12).
#
# Real crawls in simulated time: a run every five days for three months, in turn at midnight and at
# half past two.

LIST_URL = "http://operator.example/list.json"
RULES = "User-agent: *\nDisallow: /private\n"
FEED = feed()
BUSY = Reply("Later.\n", 503, headers={"Retry-After": f"{3 * DAY:.0f}"})
TAGGED = Reply(RULES, etag='"rules"', last_modified="Thu, 01 Jan 2026 12:00:00 GMT")
SITES = (
    Site("operator.example", pages={"/list.json": blocklist("optedout.example", refresh="P7D")}),
    Site(
        "month.example",
        f"User-agent: *\nCrawl-delay: {30 * DAY:.0f}\n",
        {"/feed": FEED, "/more": FEED},
    ),
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
    "http://month.example/more",
]


def days(log, host):
    """On which days a host was asked: for robots.txt (R), or another document, and the answer."""
    return [
        (round(hit.started / DAY), "R" if hit.path == "/robots.txt" else hit.path, hit.status)
        for hit in log
        if hit.host == host
    ]


def test_what_a_copy_is_good_for(simulated):
    runs = simulated(
        *SITES,
        sources=SOURCES,
        settings={"WALSH_BLOCKLIST_URL": LIST_URL},
        starts=[5 * number * DAY + (number % 2) * 9000.0 for number in range(19)],
    )
    season = [hit for run in runs for hit in run.log]
    assert_polite(season, blocked=["optedout.example"], robots_exempt=[LIST_URL])
    # A Crawl-delay of a month: each answer is followed by a month of silence, and no longer; its
    # sources are visited in turn, each by a copy that nothing has followed.
    month = [(day, what) for day, what, _ in days(season, "month.example")]
    first, second = in_turn("month.example", ("feed", "more"))
    assert month == [(0, "R"), (30, f"/{first}"), (60, "R"), (90, f"/{second}")]
    # The delay that a target asks for keeps no copy: its rules may be others by then.
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
