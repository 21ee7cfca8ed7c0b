"""R8, R9 on the wire: redirects of a visit, and where the next visit begins (decision 21)."""

import pytest

from tests.helpers.sites import feed, paths, rows_of, site
from walsh_scrapy.testing.site import Certificate
from walsh_scrapy.testing.web import Reply, Site, redirect

TEXT = Reply("# S\n\n- [One](/one)\n", content_type="text/plain")


def pages(result):
    return [path for path in paths(result.log) if not path.endswith("/robots.txt")]


WEEK = 7 * 86_400


def test_failures_keep_a_move_and_after_a_week_both_urls_are_tried(loopback_web, crawl, again):
    web = loopback_web(
        site("old.example", feed=[redirect("http://new.example/feed"), Reply(status=404)]),
        site("new.example", feed=[feed(), *[Reply(status=404)] * 2, feed()]),
    )
    sources = ["http://old.example/feed"]
    crawl(web, sources=sources)
    rows_of(crawl, "UPDATE sources SET move_settled = 1")
    asked = []
    for _ in range(4):
        asked.append(sorted(set(pages(again(web, sources=sources)))))
        rows_of(crawl, f"UPDATE sources SET move_failing_since = move_failing_since - {WEEK}")
    new, old = ["new.example/feed"], ["old.example/feed"]
    assert asked == [new, new, old, new]
    ((outcome, settled),) = rows_of(crawl, "SELECT outcome, move_settled FROM sources")
    assert (outcome, settled) == ("fetched", 1)


def test_a_source_that_is_gone_after_permanent_redirects_is_stopped(loopback_web, crawl, again):
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


def test_a_page_that_moved_is_remembered_although_its_llms_txt_is_read(loopback_web, crawl, again):
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


def test_a_page_that_is_where_it_was_has_not_moved(loopback_web, crawl, again):
    """Its llms.txt is read instead. A redirect on two visits by accident is no move."""
    page = Reply("<html>", content_type="text/html")
    away = redirect("http://new.example/p")
    web = loopback_web(
        Site("old.example", "", {"/p": [away, page, away], "/llms.txt": TEXT}),
        Site("new.example", "", {"/p": page}),
    )
    sources, moved = [{"url": "http://old.example/p", "kind": "llms"}], []
    for _ in range(3):
        again(web, "llms", sources=sources)
        moved += rows_of(crawl, "SELECT moved_to, move_settled FROM sources")
        rows_of(crawl, f"UPDATE sources SET moved_since = moved_since - {WEEK}")
    assert moved == [("http://new.example/p", 0), (None, 0), ("http://new.example/p", 0)]


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
