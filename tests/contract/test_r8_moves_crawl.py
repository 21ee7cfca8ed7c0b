"""R8, R9 on the wire: what a visit comes by, and where it goes back to (ruling 21)."""

import gzip
import sqlite3
from contextlib import closing

import pytest

from tests.contract.conftest import feed, paths, site
from walsh_scrapy.testing.certificates import Certificate
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.web import Reply, Site, redirect

TEXT = Reply("# S\n\n- [One](/one)\n", content_type="text/plain")


def execute(crawl, statement):
    with closing(sqlite3.connect(crawl.folder / "walsh.sqlite3")) as state, state:
        return state.execute(statement).fetchall()


def pages(result):
    return [path for path in paths(result.log) if not path.endswith("/robots.txt")]


def test_where_the_new_address_is_denied_the_declared_one_is_asked_again(
    loopback_web, crawl, again
):
    web = loopback_web(
        site("old.example", feed=[redirect("http://new.example/feed"), feed()]),
        site("new.example", "User-agent: *\nDisallow: /\n"),
    )
    sources = ["http://old.example/feed"]
    crawl(web, sources=sources)
    execute(crawl, "UPDATE sources SET moved_to = 'http://new.example/feed', move_settled = 1")
    again(web, sources=sources)
    assert pages(again(web, sources=sources)) == ["old.example/feed"]


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
    ((target, settled),) = execute(crawl, "SELECT moved_to, move_settled FROM sources")
    assert (target, settled) == ("http://new.example/p", 0)
    execute(crawl, "UPDATE sources SET move_settled = 1")
    second = again(web, "llms", sources=[source])
    assert pages(second) == ["new.example/p", "new.example/llms.txt"]
    third = again(web, "llms", sources=[source])
    assert pages(third)[-1] == "old.example/llms.txt", "where it moved there is no llms.txt"


@pytest.mark.parametrize("declared", ["/llms-full.txt", "/docs", "/llms.txt"])
def test_the_dump_of_all_pages_is_never_asked_for(loopback_web, crawl, declared):
    dump = {"/llms-full.txt": Reply("# all\n\n- [One](/one)\n", content_type="text/markdown")}
    way = redirect("/llms-full.txt", 302)
    web = loopback_web(Site("docs.example", "", dump | {"/docs": way, "/llms.txt": way}))
    source = {"url": f"http://docs.example{declared}", "kind": "llms"}
    result = crawl(web, "llms", sources=[source])
    assert "docs.example/llms-full.txt" not in paths(result.log)
    assert result.items == []
    assert result.stats["walsh/sources/denied/scope"] == 1


def test_another_spelling_of_a_source_is_no_new_source(loopback_web, crawl):
    web = loopback_web(site("blog.example", **{"feed/": feed()}))
    crawl(web, sources=["http://blog.example/feed/"])
    assert pages(crawl(web, sources=["http://Blog.example/feed"])) == []


def test_a_url_is_one_source_whatever_its_kind(loopback_web, crawl):
    web = loopback_web(site("blog.example"))
    both = [{"url": "http://blog.example/feed", "kind": kind} for kind in ("feed", "llms")]
    result = crawl(web, sources=both)
    assert pages(result) == ["blog.example/feed"]
    assert "declared before and counted once" in result.stderr


def test_what_a_temporary_redirect_leads_to_may_be_gone_but_not_the_source(loopback_web, crawl):
    web = loopback_web(
        site("old.example", feed=redirect("http://gone.example/feed", 302)),
        site("gone.example", feed=Reply(status=410)),
    )
    result = crawl(web, sources=["http://old.example/feed"])
    assert result.stats["walsh/sources/failed"] == 1


def test_validators_of_a_document_that_was_cut_off_are_not_kept(loopback_web, crawl, again):
    """Else a 304 would keep the missing entries from us for as long as the ETag stands."""
    whole = rss("B", [f"Post {number}" for number in range(200)], "http://blog.example/")
    packed = gzip.compress(whole.encode())
    headers = {"Content-Encoding": "gzip"}
    cut = Reply(packed[: len(packed) // 2], etag='"1"', headers=headers)
    web = loopback_web(site("blog.example", feed=[cut, Reply(packed, etag='"1"', headers=headers)]))
    sources = ["http://blog.example/feed"]
    first, second = crawl(web, sources=sources), again(web, sources=sources)
    assert 0 < len(first.items) < 200
    assert len(first.items) + len(second.items) == 200


def test_https_with_its_port_spelled_out_is_a_plain_step_to_https(loopback_web, crawl, again):
    def page(hit):
        return feed() if hit.scheme == "https" else redirect("https://a.example:443/feed")

    web = loopback_web(Site("a.example", "", {"/feed": page}, tls=Certificate.GOOD))
    crawl(web, sources=["http://a.example/feed"])
    second = again(web, sources=["http://a.example/feed"])
    assert {hit.url for hit in second.log if hit.path == "/feed"} == {"https://a.example/feed"}
