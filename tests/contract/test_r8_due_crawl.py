"""R8 on the wire: a source is asked for once a day or less (decision 20)."""

import time

import pytest

from tests.helpers.sites import feed, paths, rows_of, site
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.site import Certificate
from walsh_scrapy.testing.web import Reply, Site, redirect


def test_a_source_that_is_another_kind_now_is_read_anew(loopback_web, crawl, again):
    """Validators of the feed are not sent for the same page as markdown."""
    either = [
        feed(etag='"1"'),
        Reply("# H\n\n- [A](/a)\n", content_type="text/markdown", etag='"1"'),
    ]
    web = loopback_web(site("blog.example", page=either))
    crawl(web, sources=["http://blog.example/page"])
    second = again(web, "llms", sources=[{"url": "http://blog.example/page", "kind": "llms"}])
    assert [item["url"] for item in second.items] == ["http://blog.example/a"]


def test_a_clock_that_was_wrong_once_delays_no_source_for_years(loopback_web, crawl):
    page = Reply("<html>", content_type="text/html")
    pages = {"page": page, "llms.txt": Reply("# S\n\n- [One](/one)\n")}
    web = loopback_web(site("blog.example", **pages))
    sources = ["http://blog.example/feed", {"url": "http://blog.example/page", "kind": "llms"}]
    for spider in ("feeds", "llms"):
        crawl(web, spider, sources=sources)
    rows_of(crawl, "UPDATE sources SET visited_at = visited_at + 1e9, not_before = 1e9")
    rows_of(crawl, "UPDATE indexes SET requested_at = requested_at + 1e9, due_at = due_at + 1e9")
    assert paths(crawl(web, sources=sources).log) == ["blog.example/feed"]
    asked = paths(crawl(web, "llms", sources=sources).log)
    assert asked == ["blog.example/page", "blog.example/llms.txt"]


def test_a_source_moved_to_another_source_is_fetched_once(loopback_web, crawl, again):
    """Feed readers export both the old and the new URL of a feed."""
    web = loopback_web(
        site("old.example", feed=redirect("http://blog.example/feed")),
        site("older.example", feed=redirect("http://gone.example/feed")),
        site("blog.example"),
        site("gone.example", feed=[feed(), feed(), Reply(status=404)]),
    )
    hosts = ("old.example", "older.example", "blog.example", "gone.example")
    sources = [f"http://{host}/feed" for host in hosts]

    def execute(statement):
        rows_of(crawl, statement)

    crawl(web, sources=sources)
    execute("UPDATE sources SET move_settled = 1 WHERE moved_to IS NOT NULL")
    again(web, sources=sources)
    third = again(web, sources=sources)
    assert sorted(paths(third.log)) == ["blog.example/feed", "gone.example/feed"]
    assert third.stats["walsh/sources/unchanged"] == 1
    assert third.stats["walsh/sources/failed"] == 2, "what the other meets with, it meets with too"
    execute("UPDATE sources SET visited_at = visited_at - 999999, not_before = 0")
    alone = crawl(web, sources=sources[:1])
    assert paths(alone.log) == ["blog.example/feed"], "the other is declared no longer"


# R8 on the wire: freshness lifetimes and update hints delay the next visit.

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


def test_only_sources_that_ask_for_time_are_visited_later(loopback_web, crawl):
    pages = {f"{name}.example": page for name, page in (WISHING | SILENT).items()}
    web = loopback_web(
        site("rare.example"), *(site(host, feed=page) for host, page in pages.items())
    )
    sources = [f"http://{host}/feed" for host in pages]
    sources += [{"url": "http://rare.example/feed", "every": "P7D"}]
    first = crawl(web, sources=sources, settings=EAGER)
    assert asked(first) == {*pages, "rare.example"}
    kept = "SELECT (not_before - visited_at) / 86400 FROM sources WHERE url LIKE '%expires%'"
    assert rows_of(crawl, kept) == [(30.0,)], "no source is delayed for longer"
    second = crawl(web, sources=sources, settings=EAGER)
    assert asked(second) == {f"{name}.example" for name in SILENT}
    assert_polite(web.log)


def test_a_304_without_a_lifetime_keeps_the_previous_one(loopback_web, crawl):
    def unchanged(**headers):
        return Reply(status=304, headers=headers)

    wishing = saying("<ttl>60</ttl>")
    web = loopback_web(
        site(
            "header.example", feed=[feed(etag='"1"'), unchanged(**{"Cache-Control": "max-age=99"})]
        ),
        site("feed.example", feed=[Reply(wishing.body, etag='"1"'), unchanged()]),
        site(
            "silent.example",
            feed=[feed(etag='"1"', headers={"Cache-Control": "max-age=99"}), unchanged()],
        ),
    )
    sources = [f"http://{host}.example/feed" for host in ("header", "feed", "silent")]
    crawl(web, sources=sources, settings=EAGER)
    rows_of(crawl, "UPDATE sources SET not_before = 0")
    second = crawl(web, sources=sources, settings=EAGER)
    assert asked(second) == {"header.example", "feed.example", "silent.example"}
    assert second.stats["walsh/sources/unchanged"] == 3
    assert asked(crawl(web, sources=sources, settings=EAGER)) == set()


def test_hours_and_days_to_skip_hold_when_a_source_would_be_due(loopback_web, crawl):
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    today = time.gmtime().tm_wday
    # Today and tomorrow, so that midnight makes no difference.
    skipped = "".join(f"<day>{days[(today + ahead) % 7]}</day>" for ahead in range(2))
    web = loopback_web(
        site("blog.example", feed=saying(f"<skipDays>{skipped}</skipDays>")),
        site("other.example"),
    )
    sources = ["http://blog.example/feed", "http://other.example/feed"]
    crawl(web, sources=sources, settings=EAGER)
    ((names,), (none,)) = rows_of(crawl, "SELECT skip_days FROM sources ORDER BY url")
    assert (sorted(names.split(",")), none) == (sorted(days[(today + n) % 7] for n in (0, 1)), "")
    second = crawl(web, sources=sources, settings=EAGER)
    assert asked(second) == {"other.example"}
    assert second.stats["walsh/sources/not_due"] == 1


def test_the_lifetime_of_a_redirect_counts_while_it_is_followed(loopback_web, crawl):
    kept = {"Cache-Control": "max-age=3600"}

    def hop(status, location="/feed", headers=kept):
        return Reply(status=status, headers={"Location": location, **headers}, content_type=None)

    web = loopback_web(
        site("moved.example", old=hop(302)),
        site("denied.example", "User-agent: *\nDisallow: /feed\n", old=hop(302)),
        site("broken.example", feed=Reply(status=404), old=hop(301)),
        site("silent.example", old=hop(302, headers={})),
        site("settled.example", old=hop(301)),
    )
    names = ("moved", "denied", "broken", "silent", "settled")
    sources = [f"http://{name}.example/old" for name in names]
    crawl(web, sources=sources, settings=EAGER)
    rows_of(crawl, "UPDATE sources SET moved_since = moved_since - 864000, not_before = 0")
    second = crawl(web, sources=sources, settings=EAGER)
    assert "settled.example/feed" in paths(second.log)
    third = crawl(web, sources=sources, settings=EAGER)
    assert asked(third) == {"silent.example", "settled.example"}
    assert "settled.example/old" not in paths(third.log)


# R8, R9 on the wire: redirects of a visit, and where the next visit begins (decision 21).

TEXT = Reply("# S\n\n- [One](/one)\n", content_type="text/plain")


def pages(result):
    return [path for path in paths(result.log) if not path.endswith("/robots.txt")]


WEEK = 7 * 86_400


def test_a_410_after_permanent_redirects_stops_the_source(loopback_web, crawl, again):
    here = {"gone": False}

    def secure(hit):
        if hit.scheme == "http":
            return redirect("https://secure.example:443/feed")
        return Reply(status=410) if here["gone"] else feed()

    web = loopback_web(
        site("old.example", feed=redirect("http://gone.example/feed")),
        site("away.example", feed=redirect("http://gone.example/feed", 302)),
        site("gone.example", feed=Reply(status=410)),
        Site("secure.example", "", {"/feed": secure}, tls=Certificate.GOOD),
    )
    sources = [f"http://{host}.example/feed" for host in ("old", "secure", "away")]
    first = crawl(web, sources=sources)
    assert first.stats["walsh/sources/gone"] == 1
    assert first.stats["walsh/sources/failed"] == 1, "a temporary redirect stops no source"
    here["gone"] = True
    second = again(web, sources=sources[:2])
    assert [hit.status for hit in second.log if hit.path == "/feed"] == [410]
    assert again(web, sources=sources[:2]).log == []


def test_a_page_that_moved_is_remembered_despite_its_llms_txt(loopback_web, crawl, again):
    moved = Site(
        "old.example",
        "",
        {"/p": redirect("http://new.example/p"), "/llms.txt": TEXT},
    )
    web = loopback_web(
        moved,
        Site("new.example", "", {"/p": Reply("<html>", content_type="text/html")}),
    )
    source = {"url": "http://old.example/p", "kind": "llms"}
    crawl(web, "llms", sources=[source])
    ((target, settled),) = rows_of(crawl, "SELECT moved_to, move_settled FROM sources")
    assert (target, settled) == ("http://new.example/p", 0)
    rows_of(crawl, "UPDATE sources SET move_settled = 1")
    second = again(web, "llms", sources=[source])
    assert pages(second) == ["new.example/p", "new.example/llms.txt"]
    asked = []
    for _ in range(3):
        rows_of(crawl, f"UPDATE sources SET move_failing_since = move_failing_since - {WEEK}")
        asked.append(pages(again(web, "llms", sources=[source]))[-1])
    new, old = "new.example/llms.txt", "old.example/llms.txt"
    assert asked == [new, old, old], "where it moved there is no llms.txt"


@pytest.mark.parametrize("target", ["newer", "old"])
def test_a_page_that_moves_on_is_read_to_its_end_in_that_visit(loopback_web, crawl, again, target):
    page = Reply("<html>", content_type="text/html")
    web = loopback_web(
        Site("old.example", "", {"/p": [redirect("http://new.example/p"), page]}),
        Site("new.example", "", {"/p": [page, redirect(f"http://{target}.example/p")]}),
        Site("newer.example", "", {"/p": page}),
    )
    sources = [{"url": "http://old.example/p", "kind": "llms"}]
    again(web, "llms", sources=sources)
    rows_of(
        crawl,
        "UPDATE sources SET move_settled = 1, onward_since = 1, "
        "onward_to = 'http://newer.example/p'",
    )
    assert pages(again(web, "llms", sources=sources)) == [
        "new.example/p",
        f"{target}.example/p",
        "new.example/llms.txt",
    ]


def test_an_llms_txt_that_moved_is_asked_for_there_and_once(loopback_web, crawl, again):
    """It is served as plain text, which is no format of a page."""
    web = loopback_web(
        Site("old.example", "", {"/llms.txt": redirect("http://new.example/index.md")}),
        Site("new.example", "", {"/index.md": Reply(TEXT.body, etag='"1"')}),
    )
    sources = [{"url": "http://old.example/llms.txt", "kind": "llms"}]
    crawl(web, "llms", sources=sources)
    rows_of(crawl, "UPDATE sources SET move_settled = 1")
    for status in (200, 304):
        result = again(web, "llms", sources=sources)
        assert pages(result) == ["new.example/index.md"]
        assert [hit.status for hit in result.log if hit.path == "/index.md"] == [status]


def test_the_dump_of_all_pages_is_never_asked_for(loopback_web, crawl):
    declared = {"a.example": "/llms-full.txt", "b.example": "/docs", "c.example": "/llms.txt"}
    dump = {"/llms-full.txt": Reply("# all\n\n- [One](/one)\n", content_type="text/markdown")}
    way = redirect("/llms-full.txt", 302)
    pages = dump | {"/docs": way, "/llms.txt": way}
    web = loopback_web(*(Site(host, "", pages) for host in declared))
    sources = [{"url": f"http://{host}{path}", "kind": "llms"} for host, path in declared.items()]
    result = crawl(web, "llms", sources=sources)
    assert [path for path in paths(result.log) if path.endswith("/llms-full.txt")] == []
    assert result.items == []
    assert result.stats["walsh/sources/denied/scope"] == len(declared)
