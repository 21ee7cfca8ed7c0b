"""R9 on the wire: markdown by content negotiation, else llms.txt, and never scraped HTML."""

import pytest

from tests.helpers.sites import rows_of
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


def announcing(*targets, **more):
    """An HTML page that announces these URLs as its markdown."""
    links = [f'<{target}>; rel="alternate"; type="text/markdown"' for target in targets]
    return html(headers={"Link": ", ".join(links)}, **more)


@pytest.fixture
def llms(loopback_web, crawl):
    """Crawl the page /docs of each host, with these pages and robots.txt, once or more often."""

    def run(hosts, *, robots={}, runs=1, arguments={"force": "1"}, settings=None):  # noqa: B006
        web = loopback_web(
            *(Site(host, robots.get(host, ""), pages) for host, pages in hosts.items())
        )
        sources = [{"url": f"http://{host}/docs", "kind": "llms"} for host in hosts]
        options = {"sources": sources, "arguments": arguments, "settings": settings or {}}
        results = [crawl(web, "llms", **options) for _ in range(runs)]
        denied = [f"http://{host}/denied.md" for host in robots]
        assert_polite(web.log, denied=denied)
        return results[0] if runs == 1 else results

    return run


def asked(result, host=None):
    return [
        hit.path for hit in result.log if hit.path != "/robots.txt" and host in (None, hit.host)
    ]


def asked_of(result, hosts):
    """The requests to each host."""
    return {host: tuple(asked(result, host)) for host in hosts}


def negotiated(hit):
    return markdown() if hit.header("Accept") == "text/markdown" else html()


#: By host: the pages beside its llms.txt, what is asked for, and how many entries that gives.
CASES = {
    "negotiated.example": ({"/docs": negotiated}, ("/docs",), 2),
    # If the page is no markdown, the llms.txt is used.
    "html.example": ({"/docs": html(HTML * 20)}, BOTH, 1),
    "plain.example": ({"/docs": text(PAGE)}, BOTH, 1),
    "404.example": ({"/docs": Reply(status=404)}, BOTH, 1),
    "406.example": ({"/docs": Reply(status=406)}, BOTH, 1),
    "410.example": ({"/docs": Reply(status=410)}, BOTH, 1),
    "403.example": ({"/docs": html(status=403)}, BOTH, 1),
    # Neither of them is markdown.
    "no-index.example": ({"/docs": html(), "/llms.txt": html()}, BOTH, 0),
    "html-as-text.example": ({"/docs": html(), "/llms.txt": text(HTML)}, BOTH, 0),
    "nothing.example": ({"/docs": html(), "/llms.txt": Reply(status=404)}, BOTH, 0),
    "binary.example": ({"/docs": html(), "/llms.txt": Reply(b"\0\1", 200)}, BOTH, 0),
    # A server that fails is no reason to ask for more of it.
    "500.example": ({"/docs": Reply(status=500)}, ("/docs",), 0),
    # What the page announces as its markdown goes before the llms.txt.
    "announced.example": (
        {"/docs": announcing("/docs.md"), "/docs.md": markdown(LLMS_TXT)},
        ("/docs", "/docs.md"),
        1,
    ),
    "empty.example": ({"/docs": announcing("/none.md")}, ("/docs", "/none.md", "/llms.txt"), 1),
    "space.example": (
        {"/docs": announcing("/my docs.md")},
        ("/docs", "/my%20docs.md", "/llms.txt"),
        1,
    ),
    # The first that is markdown and allowed is used.
    "several.example": (
        {
            "/docs": announcing("/none.md", "/denied.md", "/docs.md", "/more.md"),
            "/docs.md": markdown(LLMS_TXT),
        },
        ("/docs", "/none.md", "/docs.md"),
        1,
    ),
    # No more than three are tried, and none that they announce themselves.
    "many.example": (
        {
            "/docs": announcing("/llms.txt", "/a.md", "/b.md", "/c.md", "/d.md"),
            "/a.md": announcing("/e.md"),
            "/b.md": announcing("/e.md", status=404),
        },
        ("/docs", "/a.md", "/b.md", "/llms.txt"),
        1,
    ),
    # What cannot be used is ignored.
    "other.example": ({"/docs": announcing("http://evil.example/docs.md")}, BOTH, 1),
    "dump.example": ({"/docs": announcing("/llms-full.txt")}, BOTH, 1),
    "itself.example": ({"/docs": announcing("/docs")}, BOTH, 1),
    # robots.txt denies the page, or all.
    "page.example": ({"/docs": markdown()}, ("/llms.txt",), 1),
    "denied.example": ({"/docs": markdown()}, (), 0),
}
ROBOTS = {
    "several.example": "User-agent: *\nDisallow: /denied.md\n",
    "page.example": "User-agent: *\nDisallow: /docs\n",
    "denied.example": "User-agent: *\nDisallow: /\n",
}


def test_markdown_comes_from_the_page_its_link_or_the_llms_txt(llms):
    pages = {host: {"/llms.txt": text()} | given for host, (given, *_) in CASES.items()}
    result = llms(pages, robots=ROBOTS, settings={"RETRY_ENABLED": False})
    assert asked_of(result, CASES) == {host: paths for host, (_, paths, _) in CASES.items()}
    assert {hit.host for hit in result.log} == set(CASES), "and no other host"
    items = {host: [] for host in CASES}
    for item in result.items:
        items[item["source"].split("/")[2]].append(item)
    assert {host: len(found) for host, found in items.items()} == {
        host: count for host, (*_, count) in CASES.items()
    }
    ends = {end: result.stats[f"walsh/sources/{end}"] for end in ("denied/robots", "failed")}
    assert ends == {"denied/robots": 1, "failed": 5}
    for host in ("no-index", "html-as-text", "nothing", "binary"):
        said = f"http://{host}.example/llms.txt is no llms.txt"
        assert said in result.stderr
    cut_off = next(hit for hit in result.log if hit.url == "http://html.example/docs")
    assert not cut_off.complete, "HTML is cut off at its headers, and never read"
    assert "scraped" not in str(result.items)
    first, second = items["negotiated.example"]
    assert {name: value for name, value in first.items() if value and name != "first_seen"} == {
        "kind": "llms",
        "source": "http://negotiated.example/docs",
        "source_title": "Docs",
        "url": "http://negotiated.example/start.md",
        "title": "Start",
        "section": "Guide",
        "note": "how to begin",
    }
    assert second["url"] == "https://other.example/"


def test_a_410_without_an_llms_txt_stops_the_source(llms):
    """A server error does not mean that there is no markdown."""
    indexes = {
        "404.example": Reply(status=404),
        "html.example": html(),
        "500.example": Reply(status=500),
    }
    hosts = {
        host: {"/docs": Reply(status=410), "/llms.txt": index} for host, index in indexes.items()
    }
    first, second = llms(hosts, settings={"RETRY_ENABLED": False}, runs=2)
    assert asked_of(first, hosts) == dict.fromkeys(hosts, BOTH)
    assert asked_of(second, hosts) == {"404.example": (), "html.example": (), "500.example": BOTH}
    assert second.stats["walsh/sources/resting"] == 2


def test_the_page_still_counts_when_robots_txt_denies_its_link(llms):
    link = announcing("/denied.md", "/next.md").headers["Link"]
    hosts = {
        "docs.example": {
            "/docs": html(headers={"Link": link, "Cache-Control": "max-age=3600"}),
            "/next.md": markdown(),
        },
        "gone.example": {"/docs": Reply(status=410, headers={"Link": link})},
    }
    robots = dict.fromkeys(hosts, "User-agent: *\nDisallow: /denied.md\n")
    settings = {"WALSH_MIN_REVISIT": 0}
    first, second = llms(hosts, robots=robots, runs=2, arguments={}, settings=settings)
    assert asked_of(first, hosts) == {
        "docs.example": ("/docs", "/next.md"),
        "gone.example": ("/docs", "/next.md", "/llms.txt"),
    }
    assert first.stats["walsh/sources/gone"] == 1, "as its page says"
    assert second.log == [], "the freshness lifetime of the page counts"


def test_each_document_is_revalidated_at_its_own_address(llms):
    hosts = {
        "page.example": {"/docs": markdown(etag='"page"')},
        "index.example": {"/docs": html(etag='"html"'), "/llms.txt": text(etag='"index"')},
    }
    _, second = llms(hosts, runs=2)
    sent = {hit.url: (hit.header("If-None-Match"), hit.status) for hit in second.log}
    assert sent == {
        "http://page.example/docs": ('"page"', 304),
        "http://index.example/docs": (None, 200),
        "http://index.example/llms.txt": ('"index"', 304),
    }
    assert second.stats["walsh/sources/unchanged"] == 2
    assert second.items == []


def test_an_llms_txt_is_one_where_it_is_declared_and_may_move(loopback_web, crawl):
    """It is served as plain text, and the llms.txt at the root lists other pages."""
    index = text("# SDK\n\n- [One](one)\n", etag='"sdk"')
    moved = {"/llms.txt": redirect("/index.txt", 302), "/index.txt": text()}
    web = loopback_web(
        Site("docs.example", "", {"/sdk/llms.txt": index, "/llms.txt": text(), "/docs": html()}),
        Site("moved.example", "", moved),
    )
    urls = [f"http://docs.example/{path}" for path in ("sdk/llms.txt", "docs")]
    urls.append("http://moved.example/llms.txt")
    sources = [{"url": url, "kind": "llms"} for url in urls]
    first, second = (
        crawl(web, "llms", sources=sources, arguments={"force": "1"}) for _ in range(2)
    )
    assert sorted(asked(first, "docs.example")) == ["/docs", "/llms.txt", "/sdk/llms.txt"]
    assert asked(first, "moved.example") == ["/llms.txt", "/index.txt"]
    found = {(item["source"], item["url"]) for item in first.items}
    assert (urls[0], "http://docs.example/sdk/one") in found
    assert len(found) == 3
    assert [hit.status for hit in second.log if hit.path == "/sdk/llms.txt"] == [304]


def test_the_lifetime_of_each_answer_of_a_visit_is_kept(llms):
    kept = {"headers": {"Cache-Control": "max-age=3600"}}
    hosts = {
        "page.example": {"/docs": html(**kept), "/llms.txt": text()},
        "no-page.example": {"/docs": Reply(status=404, **kept), "/llms.txt": text()},
        "index.example": {"/docs": html(), "/llms.txt": text(**kept)},
        "neither.example": {"/docs": html(**kept), "/llms.txt": Reply(status=404)},
    }
    first, second = llms(hosts, runs=2, arguments={}, settings={"WALSH_MIN_REVISIT": 0})
    assert asked_of(first, hosts) == dict.fromkeys(hosts, BOTH)
    assert asked_of(second, hosts) == dict.fromkeys(hosts, ())


@pytest.fixture
def host(loopback_web, crawl):
    """Crawl pages of a host that has an llms.txt; return the run, and the record of each."""

    def run(web, *names, force="0", **settings):
        sources = [{"url": f"http://docs.example{name}", "kind": "llms"} for name in names]
        given = {"WALSH_MIN_REVISIT": 0} | settings
        result = crawl(web, "llms", sources=sources, settings=given, arguments={"force": force})
        rows = rows_of(crawl, "SELECT url, outcome FROM sources ORDER BY url")
        return result, {url.removeprefix("http://docs.example"): outcome for url, outcome in rows}

    def serve(index, **pages):
        given = {f"/{name}": page for name, page in pages.items()}
        return loopback_web(Site("docs.example", "", given | {"/llms.txt": index}))

    run.serve = serve
    return run


def test_sources_of_one_host_share_its_llms_txt_once_a_run(host):
    web = host.serve(text(etag='"index"'), a=html(), b=html(), c=markdown())
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


def test_an_llms_txt_has_a_lifetime_of_its_own(host, crawl):
    fresh = text(headers={"Cache-Control": "max-age=3600"})
    web = host.serve(fresh, a=html(), b=html())
    assert asked(host(web, "/a")[0]) == ["/a", "/llms.txt"]
    second, known = host(web, "/a", "/b", "/llms.txt")
    assert asked(second) == ["/b"]
    assert known == {"/a": "fetched", "/b": "unchanged", "/llms.txt": "unchanged"}
    read = rows_of(crawl, "SELECT format FROM sources ORDER BY url")
    assert read == [("markdown",), ("shared",), ("shared",)], "what comes later is no backfill"
    assert asked(host(web, "/a", "/b", "/llms.txt")[0]) == []  # it counts for all of its sources
    third, _ = host(web, "/b", force="1")
    assert asked(third) == ["/b", "/llms.txt"]


def test_an_invalid_llms_txt_fails_all_sources_of_its_host(host):
    web = host.serve(html(), a=html(), b=html())
    result, known = host(web, "/a", "/b")
    assert sorted(asked(result)) == ["/a", "/b", "/llms.txt"]
    assert set(known.values()) == {"failed"}
    assert result.stderr.count("http://docs.example/llms.txt is no llms.txt") == 2


def test_the_llms_txt_of_another_port_is_another(llms):
    pages = {"/docs": html(), "/llms.txt": text()}
    result = llms(dict.fromkeys(("docs.example", "docs.example:8080"), pages))
    assert asked(result).count("/llms.txt") == 2
    assert len(result.items) == 2
