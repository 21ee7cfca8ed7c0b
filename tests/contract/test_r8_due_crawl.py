"""R8 on the wire: a source is asked for once a day or less (decision 20)."""

from tests.helpers.sites import feed, paths, rows_of, site
from walsh_scrapy.testing.web import Reply, redirect


def test_sources_that_are_not_due_are_not_requested_but_logged(loopback_web, crawl, again):
    web = loopback_web(
        site("blog.example"), site("gone.example", feed=Reply(status=404)), site("new.example")
    )
    sources = ["http://blog.example/feed", "http://gone.example/feed"]
    crawl(web, sources=sources)
    second = crawl(web, sources=[*sources, "http://new.example/feed"])
    assert paths(second.log) == ["new.example/robots.txt", "new.example/feed"]
    assert "not due yet: 2 sources, the next one at 20" in second.stderr
    assert "not due           2   the next one at 20" in second.stderr
    forced = again(web, sources=sources)
    assert sorted(paths(forced.log)) == ["blog.example/feed", "gone.example/feed"]


def test_every_makes_the_operators_interval_longer(loopback_web, crawl, again):
    web = loopback_web(site("blog.example", rare=feed()))
    sources = [
        {"url": "http://blog.example/feed"},
        {"url": "http://blog.example/rare", "every": "P7D"},
    ]
    short = {"WALSH_MIN_REVISIT": 0}
    crawl(web, sources=sources, settings=short)
    second = crawl(web, sources=sources, settings=short)
    assert paths(second.log) == ["blog.example/feed"]
    forced = again(web, sources=sources, settings=short)
    assert sorted(paths(forced.log)) == ["blog.example/feed", "blog.example/rare"]


def test_a_changed_file_loses_nothing_of_what_is_still_in_it(loopback_web, crawl, again, tmp_path):
    blog = site("blog.example", feed=feed(etag='"1"'))
    web = loopback_web(blog, site("old.example"), site("new.example"))
    crawl(web, sources=["http://blog.example/feed", "http://old.example/feed"])
    opml = tmp_path / "feeds.opml"
    opml.write_text(
        "<opml><body><outline text='Folder'><outline text='A name' category='/a/b,c' "
        "xmlUrl='http://blog.example/feed' htmlUrl='http://blog.example/'/></outline>"
        "<outline xmlUrl='http://new.example/feed'/></body></opml>"
    )
    assert paths(crawl(web, sources=opml).log) == ["new.example/robots.txt", "new.example/feed"]
    forced = again(web, sources=opml)
    assert {(hit.host, hit.status) for hit in forced.log} == {
        ("blog.example", 304),
        ("new.example", 200),
    }


def test_a_source_that_is_spelled_otherwise_keeps_all_that_is_known(loopback_web, crawl, again):
    """Except validators, which belong to the URL that they came from."""
    lone = "<item><title>One</title></item><item><guid>17</guid><title>Two</title></item>"
    document = f'<rss version="2.0"><channel><title>B</title>{lone}</channel></rss>'
    page = Reply(document, content_type="application/rss+xml", etag='"1"')
    bad, gone = Reply(status=404), [Reply(status=410), feed()]
    pages = {"feed": page, "bad": bad, "gone": gone}
    slashed = {f"{name}/": page for name, page in pages.items()}
    web = loopback_web(site("blog.example", **pages, **slashed))
    old = [f"http://blog.example/{name}" for name in pages]
    new = [f"{url}/" for url in old]
    first = crawl(web, sources=old)
    assert len(first.items) == 2
    assert crawl(web, sources=new).log == []
    assert listed(crawl) == [("bad/", 1, None), ("feed/", 0, old[0]), ("gone/", 1, None)]
    second = again(web, sources=new)
    assert {(hit.path, hit.status) for hit in second.log} == {("/bad/", 404), ("/feed/", 200)}
    assert second.items == []
    assert listed(crawl) == [("bad/", 2, None), ("feed/", 0, new[0]), ("gone/", 1, None)]
    third = again(web, sources=new)
    assert [hit.status for hit in third.log if hit.path == "/feed/"] == [304]
    # Two files with two spellings of it, in turn, cause no request before it is due either.
    for spelled in (old, new, old):
        assert crawl(web, sources=spelled).log == []
    fourth = again(web, sources=old)
    assert sorted(hit.path for hit in fourth.log) == ["/bad", "/feed"]
    assert fourth.items == []
    assert listed(crawl) == [("bad", 4, None), ("feed", 0, old[0]), ("gone", 1, None)]


def listed(crawl):
    lines = "SELECT substr(url, 21), failures, validator_url FROM sources ORDER BY url"
    return rows_of(crawl, lines)


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
    rows_of(crawl, "UPDATE sources SET fetched_at = fetched_at + 1e9, asked_until = 1e9")
    rows_of(crawl, "UPDATE indexes SET asked_at = asked_at + 1e9, due_at = due_at + 1e9")
    assert paths(crawl(web, sources=sources).log) == ["blog.example/feed"]
    asked = paths(crawl(web, "llms", sources=sources).log)
    assert asked == ["blog.example/page", "blog.example/llms.txt"]


def test_a_source_that_moved_to_the_url_of_another_is_not_fetched_twice(loopback_web, crawl, again):
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
    execute("UPDATE sources SET fetched_at = fetched_at - 999999, asked_until = 0")
    alone = crawl(web, sources=sources[:1])
    assert paths(alone.log) == ["blog.example/feed"], "the other is declared no longer"
