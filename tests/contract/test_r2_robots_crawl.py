"""R2 on the wire: robots.txt first, read as RFC 9309 says, once a day, by status (decision 12)."""

import gzip
from datetime import UTC, datetime, timedelta

import pytest

from tests.helpers.sites import feed, judge, paths, rows_of, site
from walsh_scrapy.testing.web import Fault, Reply, Site, redirect

BLOCKED_HERE = "User-agent: *\nDisallow: /\n"


def test_a_named_group_overrides_the_star_in_both_directions(direct_web, crawl):
    web = direct_web(
        site("guest.example", BLOCKED_HERE + "\nUser-agent: walsh-research\nAllow: /\n"),
        site("barred.example", "User-agent: *\nAllow: /\n\nUser-agent: Walsh\nDisallow: /\n"),
        site("query.example", "User-agent: *\nDisallow: /feed?private\n"),
    )
    result = crawl(
        web,
        sources=[
            "http://guest.example/feed",
            "http://barred.example/feed",
            "http://query.example/feed?private=1",
            "http://query.example/feed?public=1",
        ],
    )
    judge(result)
    assert paths(result.log, "guest.example") == ["guest.example/robots.txt", "guest.example/feed"]
    assert paths(result.log, "barred.example") == ["barred.example/robots.txt"]
    assert "query.example/feed?public=1" in paths(result.log)
    assert "query.example/feed?private=1" not in paths(result.log)
    assert "denied            2   2 by robots" in result.stderr


#: 16.6 kB that unpack to 17 MB, more than any body may have; what counts is in the first 500 KiB.
BOMB = Reply(
    gzip.compress(BLOCKED_HERE.encode() + b"#" * 17_000_000),
    headers={"Content-Encoding": "gzip"},
)
#: By WALSH_ROBOTS_UNREACHABLE: what a host answers for its robots.txt, and if its feed is fetched.
BY_STATUS = {
    "allow": {
        "missing": (Reply(status=404), True),
        "html": (Reply(BLOCKED_HERE, content_type="text/html"), False),
        "bomb": (BOMB, False),
        "error": (Reply(status=500), True),
        "reset": (Reply(fault=Fault.RESET), True),
        "recovers": ([Reply(status=503), Reply(BLOCKED_HERE)], False),
    },
    "disallow": {
        "forbidden": (Reply(BLOCKED_HERE, status=403), True),
        "error": (Reply(status=500), False),
        "busy": (Reply(status=429), False),
        "reset": (Reply(fault=Fault.RESET), False),
    },
    "phased": {"unavailable": (Reply(status=503), False)},
}


@pytest.mark.parametrize("unreachable", BY_STATUS)
def test_by_the_status_of_robots_txt(direct_web, crawl, unreachable):
    cases = BY_STATUS[unreachable]
    web = direct_web(*(site(f"{name}.example", robots) for name, (robots, _) in cases.items()))
    result = crawl(
        web,
        sources=[f"http://{name}.example/feed" for name in cases],
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
    judge(result)


def test_five_redirects_of_robots_txt_are_followed_through_every_gate(direct_web, crawl):
    def chain(host, hops, last):
        steps = {f"/r{n}": redirect(f"/r{n + 1}") for n in range(1, hops)}
        return Site(host, redirect("/r1"), {"/feed": feed()} | steps | {f"/r{hops}": last})

    rules = Reply(BLOCKED_HERE)
    web = direct_web(
        chain("five.example", 5, rules),
        chain("six.example", 6, rules),
        Site("away.example", redirect("http://other.example/rules.txt"), {"/feed": feed()}),
        Site("other.example", "", {"/rules.txt": rules, "/feed": feed()}),
        Site("loop.example", redirect("/robots.txt"), {"/feed": feed()}),
    )
    hosts = ("five", "six", "away", "other", "loop")
    result = crawl(web, sources=[f"http://{host}.example/feed" for host in hosts])
    asked = paths(result.log)
    assert "five.example/feed" not in asked, "five hops are followed, and what is there is obeyed"
    assert "six.example/feed" in asked, "six are too many: as if there were none"
    assert "six.example/r6" not in asked
    assert "away.example/feed" not in asked, "rules apply to the authority that was asked first"
    assert "other.example/feed" in asked
    assert "loop.example/feed" in asked
    judge(result)


def test_a_redirect_without_a_target_counts_as_no_robots_txt(direct_web, crawl):
    locations = ("http://[bad", "http://b.example:99999/robots.txt", "ftp://b.example/", "")
    locations += ("http://", "\\")
    hosts = [f"odd{number}.example" for number in range(len(locations))]
    odd = zip(hosts, locations, strict=True)
    web = direct_web(
        *(Site(host, redirect(location), {"/feed": feed()}) for host, location in odd),
        site("blog.example"),
    )
    hosts.append("blog.example")
    result = crawl(web, sources=[f"http://{host}/feed" for host in hosts])
    assert [host for host in hosts if f"{host}/feed" not in paths(result.log)] == []
    assert result.stats["walsh/sources/fetched"] == len(hosts)
    judge(result)


def test_robots_txt_is_cached_a_day_for_each_port_and_used_if_the_server_fails(
    direct_web, crawl, again
):
    web = direct_web(
        site("blog.example", [BLOCKED_HERE, ""]), Site("blog.example:8080", "", {"/feed": feed()})
    )
    sources = ["http://blog.example/feed", "http://blog.example:8080/feed"]
    first = crawl(web, sources=sources)
    assert [hit.url for hit in first.log if hit.path == "/feed"] == [
        "http://blog.example:8080/feed"
    ]
    second = again(web, sources=sources)
    assert [hit.url for hit in second.log] == ["http://blog.example:8080/feed"]
    judge(web)


def test_after_its_day_it_is_read_again_and_if_that_fails_the_last_good_copy_counts(
    direct_web, crawl, again
):
    web = direct_web(site("blog.example", [BLOCKED_HERE, Reply(status=500)]))
    short = {"WALSH_ROBOTS_TTL": 1, "WALSH_MAX_RETRIES": 1, "WALSH_BACKOFF_BASE": 0.01}
    crawl(web, sources=["http://blog.example/feed"], settings=short)
    second = again(web, sources=["http://blog.example/feed"], settings=short)
    assert paths(second.log) == ["blog.example/robots.txt"] * 2
    assert second.log[1].status == 500
    assert "the last good copy" in second.stderr


def test_no_more_than_500_kib_of_it_count(direct_web, crawl):
    padding = "# " + "x" * 1000 + "\n"
    long = padding * 512 + BLOCKED_HERE
    endless = BLOCKED_HERE + padding * 20_000
    web = direct_web(site("long.example", long), site("endless.example", endless))
    result = crawl(web, sources=["http://long.example/feed", "http://endless.example/feed"])
    assert "long.example/feed" in paths(result.log), "what stands behind 500 KiB is not read"
    assert "endless.example/feed" not in paths(result.log), "what stands before is"
    judge(result)


def test_visit_time_keeps_a_host_for_its_hours_and_comments_are_shown(direct_web, crawl):
    def hours(first, last):
        now = datetime.now(UTC)
        window = "-".join(f"{now + timedelta(hours=hour):%H%M}" for hour in (first, last))
        return f"User-agent: *\nComment: we sleep at times\nVisit-time: {window}\n"

    web = direct_web(
        site("closed.example", hours(2, 3)),
        site("open.example", hours(-1, 1)),
        site("a.example", "User-agent: *\n" + "Comment: a\nCrawl-delay: soon\n" * 8000),
    )
    hosts = ("closed", "open", "a")
    result = crawl(web, sources=[f"http://{host}.example/feed" for host in hosts])
    judge(result)
    assert paths(result.log, "closed.example") == ["closed.example/robots.txt"]
    assert "open.example/feed" in paths(result.log)
    assert "closed.example is on hold for 1 h" in result.stderr
    assert "deferred          1" in result.stderr
    assert "http://closed.example:80/robots.txt says: we sleep at times" in result.stderr
    said = "a · a · a · a · a · … and 7,995 more"
    assert f"http://a.example:80/robots.txt says: {said}" in result.stderr
    assert result.stderr.count("'Crawl-delay: soon' is not understood and ignored") == 5
    again = crawl(web, sources=["http://closed.example/feed"])
    assert again.log == []


def test_request_rate_is_a_spacing_like_any_other(direct_web, crawl):
    robots = "User-agent: *\nRequest-rate: 1/1s\nRequest-rate: 20/1m\n"
    web = direct_web(site("rate.example", robots, other=feed()))
    result = crawl(web, sources=["http://rate.example/feed", "http://rate.example/other"])
    assert len(result.log) == 3
    judge(result, crawl_delays={"rate.example": 3.0})


def a_day_later(crawl):
    """Move all that the state remembers a day into the past."""
    for change in (
        "UPDATE robots SET fetched_at = fetched_at - 86400",
        "UPDATE robots SET failing_since = failing_since - 86400",
        "UPDATE hosts SET ended = ended - 86400, hold_until = hold_until - 86400",
        "UPDATE sources SET fetched_at = fetched_at - 86400, due_at = due_at - 86400",
    ):
        rows_of(crawl, change)


def test_robots_txt_is_fetched_again_after_a_day_whatever_a_target_answers(direct_web, crawl):
    answers = {
        "unchanged.example": feed(etag='"1"'),
        "moved.example": redirect("http://other.example/feed", 302),
        "silent.example": Reply(fault=Fault.RESET),
    }
    web = direct_web(
        *(site(host, ["", BLOCKED_HERE], feed=answer) for host, answer in answers.items()),
        site("other.example"),
    )
    options = {
        "sources": [f"http://{host}/feed" for host in answers],
        "settings": {"RETRY_TIMES": 0, "WALSH_MIN_REVISIT": 3600},
    }
    first = paths(crawl(web, **options).log)
    assert [host for host in answers if f"{host}/feed" not in first] == []
    a_day_later(crawl)
    second = paths(crawl(web, **options).log)
    assert sorted(second) == sorted(f"{host}/robots.txt" for host in answers)
