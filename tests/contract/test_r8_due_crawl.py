"""R8 in crawls: a source is requested once a day or less (decision 20)."""

import pytest

from tests.helpers.sites import feed, paths, rows_of, site
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.simulation import DAY
from walsh_scrapy.testing.site import Certificate
from walsh_scrapy.testing.web import Reply, Site, redirect

HOUR = 3600.0
WEEK = 7 * DAY
AGAIN = {"force": "1"}


def pages(result):
    """The requests of a crawl without those for robots.txt."""
    return [path for path in paths(result.log) if not path.endswith("/robots.txt")]


def test_a_source_that_is_another_kind_now_is_read_anew(simulated):
    """Validators of the feed are not sent for the same page as markdown."""
    simulated(site("blog.example", page=feed(etag='"1"')), sources=["http://blog.example/page"])
    markdown = Reply("# H\n\n- [A](/a)\n", content_type="text/markdown", etag='"1"')
    (second,) = simulated(
        site("blog.example", page=markdown),
        spider="llms",
        sources=[{"url": "http://blog.example/page", "kind": "llms"}],
        starts=[HOUR],
        arguments=AGAIN,
    )
    assert [item["url"] for item in second.items] == ["http://blog.example/a"]


@pytest.mark.parametrize(
    ("spider", "requested"),
    [("feeds", ["blog.example/feed"]), ("llms", ["blog.example/page", "blog.example/llms.txt"])],
)
def test_a_clock_that_was_wrong_once_delays_no_source_for_years(
    simulated, tmp_path, spider, requested
):
    page = Reply("<html>", content_type="text/html")
    blog = site("blog.example", **{"page": page, "llms.txt": Reply("# S\n\n- [One](/one)\n")})
    sources = ["http://blog.example/feed", {"url": "http://blog.example/page", "kind": "llms"}]
    simulated(blog, spider=spider, sources=sources)
    for statement in (
        "UPDATE sources SET visited_at = visited_at + 1e9, not_before = 1e9",
        "UPDATE indexes SET requested_at = requested_at + 1e9, due_at = due_at + 1e9",
    ):
        rows_of(tmp_path / "simulation", statement)
    (second,) = simulated(blog, spider=spider, sources=sources, starts=[HOUR])
    assert pages(second) == requested


@pytest.fixture
def moved(simulated):
    """Two sources have moved to the URLs of two other sources, one of which is gone in the end.

    Feed readers export both the old and the new URL of a feed.
    """
    hosts = ("old.example", "older.example", "blog.example", "gone.example")
    sites = (
        site("old.example", feed=redirect("http://blog.example/feed")),
        site("older.example", feed=redirect("http://gone.example/feed")),
        site("blog.example"),
        site("gone.example", feed=[*[feed()] * 4, Reply(status=404)]),
    )

    def run(*starts, declared=hosts):
        sources = [f"http://{host}/feed" for host in declared]
        return simulated(*sites, sources=sources, starts=starts)

    return run


def test_a_source_moved_to_another_source_is_fetched_once(moved):
    *_, last = moved(0.0, WEEK + DAY, WEEK + 3 * DAY)
    assert sorted(pages(last)) == ["blog.example/feed", "gone.example/feed"]
    assert last.stats["walsh/sources/unchanged"] == 1
    assert last.stats["walsh/sources/failed"] == 2, "what the other meets with, it meets with too"


def test_a_source_moved_to_a_url_that_is_no_source_is_fetched(moved):
    moved(0.0, WEEK + DAY)
    (alone,) = moved(3 * WEEK, declared=["old.example"])
    assert pages(alone) == ["blog.example/feed"]


# Freshness lifetimes and update hints delay the next visit.

#: The operator would come at once: whoever is not asked again is not because of what it said.
EAGER = {"WALSH_MIN_REVISIT": 0, "RETRY_TIMES": 0}
FUTURE = "Fri, 01 Jan 2100 00:00:00 GMT"


def saying(extra):
    """A feed with additional elements in its channel."""
    document = (
        '<rss version="2.0" xmlns:sy="http://purl.org/rss/1.0/modules/syndication/"><channel>'
        f"<title>B</title>{extra}<item><title>One</title><link>http://x.example/1</link></item>"
        "</channel></rss>"
    )
    return Reply(document, content_type="application/rss+xml")


def asked(result):
    return {path.partition("/")[0] for path in paths(result.log) if path.endswith("/feed")}


WISHING = {
    "max-age": feed(headers={"Cache-Control": "max-age=3600"}),
    "expires": feed(headers={"Expires": FUTURE}),
    "not-found": Reply(status=404, headers={"Cache-Control": "max-age=3600"}),
    "error": Reply(status=500, headers={"Cache-Control": "max-age=3600"}),
    "unavailable": Reply(status=503, headers={"Retry-After": "3600"}),
    "ttl": saying("<ttl>60</ttl>"),
    "period": saying("<sy:updatePeriod>daily</sy:updatePeriod>"),
}
SILENT = {
    "silent": feed(),
    "stale": feed(headers={"Cache-Control": "max-age=0", "Expires": FUTURE}),
}


def test_only_sources_that_ask_for_time_are_visited_later(simulated, tmp_path):
    replies = {f"{name}.example": page for name, page in (WISHING | SILENT).items()}
    sources = [f"http://{host}/feed" for host in replies]
    sources += [{"url": "http://rare.example/feed", "every": "P7D"}]
    first, second = simulated(
        site("rare.example"),
        *(site(host, feed=page) for host, page in replies.items()),
        sources=sources,
        settings=EAGER,
        starts=[0.0, 600.0],
    )
    assert asked(first) == {*replies, "rare.example"}
    assert asked(second) == {f"{name}.example" for name in SILENT}
    assert_polite(first.log + second.log)
    kept = "SELECT (not_before - visited_at) / 86400 FROM sources WHERE url LIKE '%expires%'"
    assert rows_of(tmp_path / "simulation", kept) == [(30.0,)], "no source is delayed for longer"


def test_a_304_without_a_lifetime_keeps_the_previous_one(simulated):
    brief = {"Cache-Control": "max-age=99"}
    unchanged, unchanged_with_age = Reply(status=304), Reply(status=304, headers=brief)
    wishing = Reply(saying("<ttl>60</ttl>").body, etag='"1"')
    _, second, third = simulated(
        site("header.example", feed=[feed(etag='"1"'), unchanged_with_age]),
        site("feed.example", feed=[wishing, unchanged]),
        site("silent.example", feed=[feed(etag='"1"', headers=brief), unchanged]),
        sources=[f"http://{host}.example/feed" for host in ("header", "feed", "silent")],
        settings=EAGER,
        starts=[0.0, 2 * HOUR, 2 * HOUR + 60.0],
    )
    assert asked(second) == {"header.example", "feed.example", "silent.example"}
    assert second.stats["walsh/sources/unchanged"] == 3
    assert asked(third) == set()


def test_days_to_skip_hold_when_a_source_would_be_due(simulated):
    """A simulation begins on a Thursday."""
    skipped = "<skipDays><day>Thursday</day><day>Friday</day></skipDays>"
    _, thursday, friday, saturday = simulated(
        site("blog.example", feed=saying(skipped)),
        site("other.example"),
        sources=["http://blog.example/feed", "http://other.example/feed"],
        settings=EAGER,
        starts=[0.0, HOUR, DAY, 2 * DAY],
    )
    assert asked(thursday) == asked(friday) == {"other.example"}
    assert thursday.stats["walsh/sources/not_due"] == 1
    assert asked(saturday) == {"blog.example", "other.example"}


def test_the_lifetime_of_a_redirect_counts_while_it_is_followed(simulated):
    kept = {"Cache-Control": "max-age=3600"}

    def hop(status, location="/feed", headers=kept):
        return Reply(status=status, headers={"Location": location, **headers}, content_type=None)

    names = ("moved", "denied", "broken", "silent", "settled")
    _, second, third = simulated(
        site("moved.example", old=hop(302)),
        site("denied.example", "User-agent: *\nDisallow: /feed\n", old=hop(302)),
        site("broken.example", feed=Reply(status=404), old=hop(301)),
        site("silent.example", old=hop(302, headers={})),
        site("settled.example", old=hop(301)),
        sources=[f"http://{name}.example/old" for name in names],
        settings=EAGER,
        starts=[0.0, WEEK + DAY, WEEK + DAY + 60.0],
    )
    assert "settled.example/feed" in paths(second.log)
    assert asked(third) == {"silent.example", "settled.example"}
    assert "settled.example/old" not in paths(third.log)


# R8 and R9: redirects of a visit, and where the next visit begins (decision 21).

TEXT = Reply("# S\n\n- [One](/one)\n", content_type="text/plain")
PAGE = Reply("<html>", content_type="text/html")


def upgraded(hit):
    if hit.scheme == "http":
        return redirect("https://secure.example:443/feed")
    return feed()


def gone_or_upgraded(hit):
    return upgraded(hit) if hit.scheme == "http" else Reply(status=410)


def test_a_410_after_permanent_redirects_stops_the_source(simulated):
    sites = (
        site("old.example", feed=redirect("http://gone.example/feed")),
        site("away.example", feed=redirect("http://gone.example/feed", 302)),
        site("gone.example", feed=Reply(status=410)),
    )
    secure = Site("secure.example", "", {"/feed": upgraded}, tls=Certificate.GOOD)
    sources = [f"http://{host}.example/feed" for host in ("old", "secure", "away")]
    (first,) = simulated(*sites, secure, sources=sources)
    assert first.stats["walsh/sources/gone"] == 1
    assert first.stats["walsh/sources/failed"] == 1, "a temporary redirect stops no source"
    secure = Site("secure.example", "", {"/feed": gone_or_upgraded}, tls=Certificate.GOOD)
    second, third = simulated(
        *sites, secure, sources=sources[:2], starts=[HOUR, 2 * HOUR], arguments=AGAIN
    )
    assert [hit.status for hit in second.log if hit.path == "/feed"] == [410]
    assert third.log == []


def test_a_slow_host_is_asked_next_where_its_redirect_led(simulated):
    """If each visit began at the old URL, the Crawl-delay after that would defer each of them."""
    given = {"feed": redirect("/new"), "new": feed(host="h.example")}
    slow = site("h.example", "User-agent: *\nCrawl-delay: 3600\n", **given)
    starts = [number * DAY for number in range(4)]
    runs = simulated(slow, sources=["http://h.example/feed"], starts=starts)
    asked = [path.removeprefix("h.example/") for run in runs for path in paths(run.log)]
    assert asked == ["robots.txt", "feed", "robots.txt", "new"]
    assert [len(run.items) for run in runs] == [0, 0, 0, 2]


def test_a_page_that_moved_is_remembered_despite_its_llms_txt(simulated):
    runs = simulated(
        Site("old.example", "", {"/p": redirect("http://new.example/p"), "/llms.txt": TEXT}),
        Site("new.example", "", {"/p": PAGE}),
        spider="llms",
        sources=[{"url": "http://old.example/p", "kind": "llms"}],
        starts=[0.0, WEEK, WEEK + DAY, 2 * WEEK + 2 * DAY, 3 * WEEK, 4 * WEEK],
        arguments=AGAIN,
    )
    assert pages(runs[2]) == ["new.example/p", "new.example/llms.txt"], "it is settled"
    new, old = "new.example/llms.txt", "old.example/llms.txt"
    last = [pages(run)[-1] for run in runs[2:]]
    assert last == [new, new, old, old], "where it moved there is no llms.txt"


@pytest.mark.parametrize("target", ["newer", "old"])
def test_a_page_that_moves_on_is_read_to_its_end_in_that_visit(simulated, tmp_path, target):
    sources = [{"url": "http://old.example/p", "kind": "llms"}]
    simulated(
        Site("old.example", "", {"/p": redirect("http://new.example/p")}),
        Site("new.example", "", {"/p": PAGE}),
        spider="llms",
        sources=sources,
    )
    rows_of(
        tmp_path / "simulation",
        "UPDATE sources SET move_settled = 1, onward_since = 1, "
        "onward_to = 'http://newer.example/p'",
    )
    (second,) = simulated(
        Site("old.example", "", {"/p": PAGE}),
        Site("new.example", "", {"/p": redirect(f"http://{target}.example/p")}),
        Site("newer.example", "", {"/p": PAGE}),
        spider="llms",
        sources=sources,
        starts=[HOUR],
        arguments=AGAIN,
    )
    assert pages(second) == ["new.example/p", f"{target}.example/p", "new.example/llms.txt"]


def test_an_llms_txt_that_moved_is_requested_there_once(simulated):
    """It is served as plain text, which is no format of a page."""
    *_, settled, last = simulated(
        Site("old.example", "", {"/llms.txt": redirect("http://new.example/index.md")}),
        Site("new.example", "", {"/index.md": Reply(TEXT.body, etag='"1"')}),
        spider="llms",
        sources=[{"url": "http://old.example/llms.txt", "kind": "llms"}],
        starts=[0.0, WEEK, WEEK + DAY, WEEK + 2 * DAY],
        arguments=AGAIN,
    )
    for result, status in ((settled, 200), (last, 304)):
        assert pages(result) == ["new.example/index.md"]
        assert [hit.status for hit in result.log if hit.path == "/index.md"] == [status]


def test_llms_full_txt_is_never_requested(simulated):
    declared = {"a.example": "/llms-full.txt", "b.example": "/docs", "c.example": "/llms.txt"}
    dump = {"/llms-full.txt": Reply("# all\n\n- [One](/one)\n", content_type="text/markdown")}
    way = redirect("/llms-full.txt", 302)
    served = dump | {"/docs": way, "/llms.txt": way}
    (result,) = simulated(
        *(Site(host, "", served) for host in declared),
        spider="llms",
        sources=[
            {"url": f"http://{host}{path}", "kind": "llms"} for host, path in declared.items()
        ],
    )
    assert [path for path in paths(result.log) if path.endswith("/llms-full.txt")] == []
    assert result.items == []
    assert result.stats["walsh/sources/denied/scope"] == len(declared)
