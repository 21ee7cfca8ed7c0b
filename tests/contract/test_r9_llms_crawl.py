"""R9 on the wire: markdown by content negotiation, else llms.txt, and never scraped HTML."""

from itertools import count

import pytest

from tests.helpers.sites import paths, rows_of, site
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site, redirect

PAGE = (
    "# Docs\n\n## Guide\n\n- [Start](/start.md): how to begin\n- [More](https://other.example/)\n"
)
LLMS_TXT = "# Site\n\n> What it is.\n\n## Pages\n\n- [One](/one): the first\n"
LINK = "<link rel=alternate type=application/rss+xml href=/scraped>"  # a crawl reads none (R9)
HTML = f"<!doctype html><html>{LINK}<body><a href='/scraped'>x</a>" + "<p>text</p>" * 20_000

#: What a source is asked for whose page is no markdown.
BOTH = ("/docs", "/llms.txt")


def markdown(body=PAGE, **more):
    return Reply(body, content_type="text/markdown; charset=utf-8", **more)


def text(body=LLMS_TXT, **more):
    return Reply(body, content_type="text/plain", **more)


def html(body=HTML, **more):
    return Reply(body, content_type="text/html", **more)


@pytest.fixture
def llms(loopback_web, crawl, tmp_path):
    """Crawl the page /docs of a host with these pages, once or more often, on a new state."""
    folders = (tmp_path / str(number) for number in count())

    def run(*, robots="", runs=1, arguments={"force": "1"}, settings=None, **pages):  # noqa: B006
        given = {f"/{name.replace('_', '.')}": page for name, page in pages.items()}
        web = loopback_web(Site("docs.example", robots, given))
        source = {"url": "http://docs.example/docs", "kind": "llms"}
        options = {"sources": [source], "arguments": arguments, "folder": next(folders)}
        options["settings"] = settings or {}
        results = [crawl(web, "llms", **options) for _ in range(runs)]
        assert_polite(web.log)
        return results[0] if runs == 1 else results

    return run


@pytest.fixture
def llms_of_hosts(loopback_web, crawl):
    """Crawl the page /docs of many hosts at once, each with its own pages, as `llms` does one."""

    def run(hosts, *, runs=1, arguments={"force": "1"}, settings=None):  # noqa: B006
        given = {
            host: {f"/{name.replace('_', '.')}": page for name, page in pages.items()}
            for host, pages in hosts.items()
        }
        web = loopback_web(*(Site(host, "", pages) for host, pages in given.items()))
        sources = [{"url": f"http://{host}/docs", "kind": "llms"} for host in hosts]
        options = {"sources": sources, "arguments": arguments, "settings": settings or {}}
        results = [crawl(web, "llms", **options) for _ in range(runs)]
        assert_polite(web.log)
        return results[0] if runs == 1 else results

    return run


def asked(result, host=None):
    return [
        hit.path for hit in result.log if hit.path != "/robots.txt" and host in (None, hit.host)
    ]


def asked_of(result, hosts):
    """The requests to each host."""
    return {host: tuple(asked(result, host)) for host in hosts}


def test_a_page_that_is_markdown_when_asked_for_it_is_taken(llms):
    result = llms(
        docs=lambda hit: markdown() if hit.header("Accept") == "text/markdown" else html()
    )
    assert asked(result) == ["/docs"]
    first, second = result.items
    assert {**first, "first_seen": None} == {
        "kind": "llms",
        "source": "http://docs.example/docs",
        "source_title": "Docs",
        "url": "http://docs.example/start.md",
        "title": "Start",
        "id": None,
        "published": None,
        "updated": None,
        "authors": [],
        "tags": [],
        "section": "Guide",
        "note": "how to begin",
        "language": None,
        "first_seen": None,
    }
    assert second["url"] == "https://other.example/"


def test_if_the_page_is_no_markdown_the_llms_txt_is_used(llms_of_hosts):
    pages = {
        "html.example": html(),
        "plain.example": text(PAGE),
        "404.example": Reply(status=404),
        "406.example": Reply(status=406),
        "410.example": Reply(status=410),
        "403.example": html(status=403),
    }
    result = llms_of_hosts(
        {host: {"docs": page, "llms_txt": text()} for host, page in pages.items()}
    )
    assert asked_of(result, pages) == dict.fromkeys(pages, BOTH)
    found = {item["source"]: item["url"] for item in result.items}
    assert found == {f"http://{host}/docs": f"http://{host}/one" for host in pages}
    assert len(result.items) == result.stats["walsh/sources/fetched"] == len(pages)


def test_a_page_that_is_gone_stops_the_source_if_there_is_no_llms_txt(llms_of_hosts):
    """A server error does not mean that there is no markdown."""
    indexes = {
        "404.example": Reply(status=404),
        "html.example": html(),
        "500.example": Reply(status=500),
    }
    hosts = {
        host: {"docs": Reply(status=410), "llms_txt": index} for host, index in indexes.items()
    }
    first, second = llms_of_hosts(hosts, settings={"RETRY_ENABLED": False}, runs=2)
    assert asked_of(first, hosts) == dict.fromkeys(hosts, BOTH)
    assert asked_of(second, hosts) == {"404.example": (), "html.example": (), "500.example": BOTH}
    assert second.stats["walsh/sources/resting"] == 2


def test_html_is_cut_off_at_its_headers_and_never_read(llms):
    result = llms(docs=html(HTML * 20), llms_txt=text())
    (page,) = [hit for hit in result.log if hit.path == "/docs"]
    assert not page.complete
    assert not any("scraped" in str(item) for item in result.items)


def test_a_site_with_neither_fails(llms_of_hosts):
    indexes = {
        "html.example": html(),
        "html-as-text.example": Reply(HTML, content_type="text/plain"),
        "404.example": Reply(status=404),
        "binary.example": Reply(b"\0\1", 200),
    }
    result = llms_of_hosts(
        {host: {"docs": html(), "llms_txt": index} for host, index in indexes.items()}
    )
    assert asked_of(result, indexes) == dict.fromkeys(indexes, BOTH)
    assert result.items == []
    assert result.stats["walsh/sources/failed"] == len(indexes)
    for host in indexes:
        assert f"neither its page is markdown nor http://{host}/llms.txt" in result.stderr


def test_what_the_page_announces_as_its_markdown_goes_before_the_llms_txt(llms):
    link = '</docs.md>; rel="alternate"; type="text/markdown", <https://evil.example/>; rel=next'
    result = llms(docs=html(headers={"Link": link}), docs_md=markdown(), llms_txt=text())
    assert asked(result) == ["/docs", "/docs.md"]
    assert len(result.items) == 2


def test_an_announcement_of_another_host_or_to_nothing_is_not_followed(llms):
    link = '<http://evil.example/docs.md>; rel="alternate"; type="text/markdown"'
    result = llms(docs=html(headers={"Link": link}), llms_txt=text())
    assert paths(result.log) == [
        "docs.example/robots.txt",
        "docs.example/docs",
        "docs.example/llms.txt",
    ]
    empty = '</none.md>; rel="alternate"; type="text/markdown"'
    result = llms(docs=html(headers={"Link": empty}), llms_txt=text())
    assert asked(result) == ["/docs", "/none.md", "/llms.txt"]
    assert len(result.items) == 1


def test_the_first_announced_url_that_is_markdown_is_used(llms):
    links = ("/de.md>; hreflang=de", "/none.md>", "/denied.md>", "/docs.md>", "/more.md>")
    link = ", ".join(f'<{each}; rel="alternate"; type="text/markdown"' for each in links)
    robots = "User-agent: *\nDisallow: /denied.md\n"
    pages = {"docs_md": markdown(), "de_md": markdown(), "llms_txt": text()}
    page = html(headers={"Link": link, "Content-Language": "en"})
    result = llms(robots=robots, docs=page, **pages)
    assert asked(result) == ["/docs", "/none.md", "/docs.md"]
    assert result.stats["walsh/sources/fetched"] == 1
    german = html(headers={"Link": link, "Content-Language": "de-CH"})
    assert asked(llms(robots=robots, docs=german, **pages)) == ["/docs", "/de.md"]


def test_no_more_than_three_announcements_are_tried_and_none_that_they_make(llms):
    def announcing(*names, **more):
        links = (f'</{name}>; rel="alternate"; type="text/markdown"' for name in names)
        return html(headers={"Link": ", ".join(links)}, **more)

    result = llms(
        docs=announcing("llms.txt", "a.md", "b.md", "c.md", "d.md"),
        a_md=announcing("e.md"),
        b_md=announcing("e.md", status=404),
        llms_txt=text(),
    )
    assert asked(result) == ["/docs", "/a.md", "/b.md", "/llms.txt"]


def test_announcements_that_cannot_be_used_are_ignored(llms_of_hosts):
    targets = {
        "dump.example": "/llms-full.txt",
        "port.example": "http://port.example:8080/docs.md",
        "scheme.example": "ftp://scheme.example/docs.md",
        "itself.example": "/docs",
        "mail.example": "mailto:me@mail.example",
        "broken.example": "http://[",
    }

    def announcing(target):
        return html(headers={"Link": f'<{target}>; rel="alternate"; type="text/markdown"'})

    result = llms_of_hosts(
        {host: {"docs": announcing(to), "llms_txt": text()} for host, to in targets.items()}
    )
    assert asked_of(result, targets) == dict.fromkeys(targets, BOTH)
    assert {hit.host for hit in result.log} == set(targets), "and no port but their own"
    assert result.stats["walsh/sources/fetched"] == len(targets)


def test_an_announced_address_with_a_space_is_asked_for_as_browsers_would(llms):
    link = '</my docs.md>; rel="alternate"; type="text/markdown"'
    result = llms(docs=html(headers={"Link": link}), llms_txt=text())
    assert asked(result) == ["/docs", "/my%20docs.md", "/llms.txt"]


def test_if_robots_txt_denies_the_page_the_llms_txt_is_requested(llms):
    result = llms(robots="User-agent: *\nDisallow: /docs\n", docs=markdown(), llms_txt=text())
    assert asked(result) == ["/llms.txt"]
    assert len(result.items) == 1
    denied = llms(robots="User-agent: *\nDisallow: /\n", docs=markdown(), llms_txt=text())
    assert asked(denied) == []
    assert denied.stats["walsh/sources/denied/robots"] == 1


def test_what_a_visit_has_learned_outlasts_a_document_that_robots_txt_denies(loopback_web, crawl):
    robots = "User-agent: *\nDisallow: /denied.md\n"
    announced = ", ".join(
        f'</{name}.md>; rel="alternate"; type="text/markdown"' for name in ("denied", "next")
    )
    kept = {"Link": announced, "Cache-Control": "max-age=3600"}
    web = loopback_web(
        Site("docs.example", robots, {"/docs": html(headers=kept), "/next.md": markdown()}),
        Site("gone.example", robots, {"/docs": Reply(status=410, headers={"Link": announced})}),
    )
    urls = ["http://docs.example/docs", "http://gone.example/docs"]
    sources = [{"url": url, "kind": "llms"} for url in urls]
    first, second = (
        crawl(web, "llms", sources=sources, settings={"WALSH_MIN_REVISIT": 0}) for _ in range(2)
    )
    assert_polite(web.log, denied=[f"http://{host}.example/denied.md" for host in ("docs", "gone")])
    of_host = [hit.path for hit in first.log if hit.host == "docs.example"]
    assert of_host == ["/robots.txt", "/docs", "/next.md"], "what the page announced is declared"
    of_host = [hit.path for hit in first.log if hit.host == "gone.example"]
    assert of_host == ["/robots.txt", "/docs", "/next.md", "/llms.txt"]
    assert first.stats["walsh/sources/gone"] == 1, "as its page says"
    assert second.log == [], "the freshness lifetime of the page counts"


def test_each_document_is_revalidated_at_its_own_address(llms):
    _, second = llms(docs=markdown(etag='"page"'), runs=2)
    assert [hit.status for hit in second.log if hit.path == "/docs"] == [304]
    _, second = llms(docs=html(etag='"html"'), llms_txt=text(etag='"index"'), runs=2)
    sent = [(hit.path, hit.header("If-None-Match"), hit.status) for hit in second.log]
    assert sent == [("/docs", None, 200), ("/llms.txt", '"index"', 304)]
    assert second.stats["walsh/sources/unchanged"] == 1
    assert second.items == []


def test_an_llms_txt_may_be_declared_itself_and_move(loopback_web, crawl):
    web = loopback_web(
        Site("docs.example", "", {"/llms.txt": redirect("/index.txt", 302), "/index.txt": text()}),
    )
    source = {"url": "http://docs.example/llms.txt", "kind": "llms"}
    result = crawl(web, "llms", sources=[source])
    assert asked(result) == ["/llms.txt", "/index.txt"]
    assert len(result.items) == 1


def test_an_llms_txt_in_a_folder_is_one_where_it_is_declared(loopback_web, crawl):
    """It is served as plain text, and the llms.txt at the root lists other pages."""
    index = text("# SDK\n\n- [One](one)\n", etag='"sdk"')
    web = loopback_web(
        Site("docs.example", "", {"/sdk/llms.txt": index, "/llms.txt": text(), "/docs": html()})
    )
    urls = [f"http://docs.example/{path}" for path in ("sdk/llms.txt", "docs")]
    sources = [{"url": url, "kind": "llms"} for url in urls]
    first, second = (
        crawl(web, "llms", sources=sources, arguments={"force": "1"}) for _ in range(2)
    )
    assert sorted(asked(first)) == ["/docs", "/llms.txt", "/sdk/llms.txt"]
    of_sdk = [item["url"] for item in first.items if item["source"] == urls[0]]
    assert of_sdk == ["http://docs.example/sdk/one"]
    assert [hit.status for hit in second.log if hit.path == "/sdk/llms.txt"] == [304]


def test_what_each_answer_asks_for_is_kept_also_of_a_page_that_is_cut_off(llms_of_hosts):
    kept = {"headers": {"Cache-Control": "max-age=3600"}}
    hosts = {
        "page.example": {"docs": html(**kept), "llms_txt": text()},
        "no-page.example": {"docs": Reply(status=404, **kept), "llms_txt": text()},
        "index.example": {"docs": html(), "llms_txt": text(**kept)},
        "neither.example": {"docs": html(**kept), "llms_txt": Reply(status=404)},
    }
    first, second = llms_of_hosts(hosts, runs=2, arguments={}, settings={"WALSH_MIN_REVISIT": 0})
    assert asked_of(first, hosts) == dict.fromkeys(hosts, BOTH)
    assert asked_of(second, hosts) == dict.fromkeys(hosts, ())


def test_a_server_that_fails_is_no_reason_to_ask_for_more_of_it(llms):
    result = llms(docs=Reply(status=500), llms_txt=text())
    assert set(asked(result)) == {"/docs"}
    assert result.stats["walsh/sources/failed"] == 1


def test_the_feeds_spider_leaves_these_sources_to_the_other(loopback_web, crawl):
    web = loopback_web(site("blog.example"), Site("docs.example", "", {"/llms.txt": text()}))
    sources = [
        {"url": "http://blog.example/feed"},
        {"url": "http://docs.example/llms.txt", "kind": "llms"},
    ]
    assert {hit.host for hit in crawl(web, "feeds", sources=sources).log} == {"blog.example"}
    assert {hit.host for hit in crawl(web, "llms", sources=sources).log} == {"docs.example"}


@pytest.fixture
def host(loopback_web, crawl):
    """Crawl pages of a host that has an llms.txt; return the run, and the record of each."""

    def run(web, *names, force="0", **settings):
        sources = [{"url": f"http://docs.example{name}", "kind": "llms"} for name in names]
        given = {"WALSH_MIN_REVISIT": 0} | settings
        result = crawl(web, "llms", sources=sources, settings=given, arguments={"force": force})
        rows = rows_of(crawl, "SELECT url, outcome FROM sources ORDER BY url")
        return result, {url.removeprefix("http://docs.example"): outcome for url, outcome in rows}

    def serve(**pages):
        given = {f"/{name.replace('_', '.')}": page for name, page in pages.items()}
        return loopback_web(Site("docs.example", "", given))

    run.serve = serve
    return run


def test_sources_of_one_host_share_its_llms_txt_once_a_run(host):
    web = host.serve(a=html(), b=html(), c=markdown(), llms_txt=text(etag='"index"'))
    pages = ("/a", "/b", "/c", "/llms.txt")
    first, known = host(web, *pages)
    assert sorted(asked(first)) == ["/a", "/b", "/c", "/llms.txt"]
    assert sorted(known.values()) == ["fetched", "fetched", "unchanged", "unchanged"]
    assert len(first.items) == 3
    assert len({item["url"] for item in first.items}) == 3
    for force in ("0", "1"):
        again, known = host(web, *pages, force=force)
        index = [hit for hit in again.log if hit.path == "/llms.txt"]
        assert [(hit.header("If-None-Match"), hit.status) for hit in index] == [('"index"', 304)]
        assert again.stats["walsh/sources/unchanged"] == 3
        assert again.items == []
    assert_polite(web.log)


def test_an_llms_txt_is_asked_for_by_its_own_freshness_whichever_page_needs_it(host):
    fresh = text(headers={"Cache-Control": "max-age=3600"})
    web = host.serve(a=html(), b=html(), llms_txt=fresh)
    assert asked(host(web, "/a")[0]) == ["/a", "/llms.txt"]
    second, known = host(web, "/a", "/b", "/llms.txt")
    assert asked(second) == ["/b"]
    assert known == {"/a": "fetched", "/b": "unchanged", "/llms.txt": "unchanged"}
    assert asked(host(web, "/a", "/b", "/llms.txt")[0]) == []  # it counts for all of its sources
    third, _ = host(web, "/b", force="1")
    assert asked(third) == ["/b", "/llms.txt"]


def test_an_invalid_llms_txt_fails_every_source_of_its_host_and_is_requested_once(host):
    web = host.serve(a=html(), b=html(), llms_txt=html())
    result, known = host(web, "/a", "/b")
    assert sorted(asked(result)) == ["/a", "/b", "/llms.txt"]
    assert set(known.values()) == {"failed"}
    assert result.stderr.count("neither its page is markdown nor http://docs.example/llms.txt") == 2


def test_the_llms_txt_of_another_port_is_another(loopback_web, crawl):
    ports = ("", ":8080")
    pages = {"/docs": html(), "/llms.txt": text()}
    web = loopback_web(*(Site(f"docs.example{port}", "", pages) for port in ports))
    sources = [{"url": f"http://docs.example{port}/docs", "kind": "llms"} for port in ports]
    result = crawl(web, "llms", sources=sources)
    assert asked(result).count("/llms.txt") == 2
    assert len(result.items) == 2
