"""R9 in crawls: markdown by content negotiation, else llms.txt, and never scraped HTML."""

from collections import Counter
from itertools import count

import pytest

from tests.helpers.sites import log_lines, rows_of
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import LoopbackWeb, Reply, Site, redirect

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


AGAIN = {"force": "1"}
TEN_MINUTES = 600.0


@pytest.fixture
def llms(simulated):
    """Crawl the page /docs of each host twice, with these pages and robots.txt."""

    def run(hosts, *, robots="", **options):
        results = simulated(
            *(Site(host, robots, pages) for host, pages in hosts.items()),
            spider="llms",
            sources=[{"url": f"http://{host}/docs", "kind": "llms"} for host in hosts],
            starts=[0.0, TEN_MINUTES],
            **options,
        )
        log = [hit for result in results for hit in result.log]
        assert_polite(log, denied=[f"http://{host}/denied.md" for host in hosts if robots])
        return results

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


@pytest.fixture(scope="module")
def result(shared_crawl):
    """A crawl of the pages of all cases, on sockets."""
    sites = (
        Site(host, ROBOTS.get(host, ""), {"/llms.txt": text()} | pages)
        for host, (pages, *_) in CASES.items()
    )
    return shared_crawl(
        LoopbackWeb(*sites),
        "llms",
        sources=[{"url": f"http://{host}/docs", "kind": "llms"} for host in CASES],
        settings={"RETRY_ENABLED": False},
    )


def test_markdown_comes_from_the_page_its_link_or_the_llms_txt(result):
    assert asked_of(result, CASES) == {host: paths for host, (_, paths, _) in CASES.items()}


def test_only_declared_hosts_are_requested_and_no_denied_page(result):
    assert {hit.host for hit in result.log} == set(CASES)
    assert_polite(result.log, denied=[f"http://{host}/denied.md" for host in ROBOTS])


def test_each_link_of_markdown_is_an_entry(result):
    counts = Counter(item["source"].split("/")[2] for item in result.items)
    assert {host: counts[host] for host in CASES} == {
        host: count for host, (*_, count) in CASES.items()
    }


def test_sources_without_markdown_fail_unless_they_are_denied(result):
    ends = {end: result.stats[f"walsh/sources/{end}"] for end in ("denied/robots", "failed")}
    assert ends == {"denied/robots": 1, "failed": 5}
    for host in ("no-index", "html-as-text", "nothing", "binary"):
        assert log_lines(result, f"http://{host}.example/llms.txt is no llms.txt")


def test_html_is_cut_off_at_its_headers_and_never_read(result):
    cut_off = next(hit for hit in result.log if hit.url == "http://html.example/docs")
    assert not cut_off.complete
    assert "scraped" not in str(result.items)


def test_an_entry_has_the_title_section_and_note_of_its_link(result):
    source = "http://negotiated.example/docs"
    first, second = (item for item in result.items if item["source"] == source)
    assert {
        name: value for name, value in first.items() if value and name not in ("first_seen", "key")
    } == {
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
    first, second = llms(hosts, settings={"RETRY_ENABLED": False}, arguments=AGAIN)
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
    robots = "User-agent: *\nDisallow: /denied.md\n"
    first, second = llms(hosts, robots=robots, settings={"WALSH_MIN_REVISIT": 0})
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
    _, second = llms(hosts, arguments=AGAIN)
    sent = {hit.url: (hit.header("If-None-Match"), hit.status) for hit in second.log}
    assert sent == {
        "http://page.example/docs": ('"page"', 304),
        "http://index.example/docs": (None, 200),
        "http://index.example/llms.txt": ('"index"', 304),
    }
    assert second.stats["walsh/sources/unchanged"] == 2
    assert second.items == []


def test_an_llms_txt_may_be_anywhere_and_may_move(simulated):
    """It is served as plain text, and the llms.txt at the root lists other pages."""
    index = text("# SDK\n\n- [One](one)\n", etag='"sdk"')
    moved = {"/llms.txt": redirect("/index.txt", 302), "/index.txt": text()}
    urls = [f"http://docs.example/{path}" for path in ("sdk/llms.txt", "docs")]
    urls.append("http://moved.example/llms.txt")
    first, second = simulated(
        Site("docs.example", "", {"/sdk/llms.txt": index, "/llms.txt": text(), "/docs": html()}),
        Site("moved.example", "", moved),
        spider="llms",
        sources=[{"url": url, "kind": "llms"} for url in urls],
        starts=[0.0, TEN_MINUTES],
        arguments=AGAIN,
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
    first, second = llms(hosts, settings={"WALSH_MIN_REVISIT": 0})
    assert asked_of(first, hosts) == dict.fromkeys(hosts, BOTH)
    assert asked_of(second, hosts) == dict.fromkeys(hosts, ())


@pytest.fixture
def crawl_docs(simulated):
    """Return a function that crawls a host with an llms.txt, each time ten minutes later."""
    starts = count(0.0, TEN_MINUTES)

    def run(pages, *names, force="0"):
        (result,) = simulated(
            Site("docs.example", "", pages),
            spider="llms",
            sources=[{"url": f"http://docs.example{name}", "kind": "llms"} for name in names],
            starts=[next(starts)],
            settings={"WALSH_MIN_REVISIT": 0},
            arguments={"force": force},
        )
        return result

    return run


@pytest.fixture
def outcomes(tmp_path):
    """Return a function that reads the outcome of each source of the host."""

    def read():
        rows = rows_of(tmp_path / "simulation", "SELECT url, outcome FROM sources")
        return {url.removeprefix("http://docs.example"): outcome for url, outcome in rows}

    return read


SHARED = {"/a": html(), "/b": html(), "/c": markdown(), "/llms.txt": text(etag='"index"')}


def test_sources_of_one_host_share_its_llms_txt_once_a_run(crawl_docs, outcomes):
    first = crawl_docs(SHARED, *SHARED)
    assert sorted(asked(first)) == ["/a", "/b", "/c", "/llms.txt"]
    assert sorted(outcomes().values()) == ["fetched", "fetched", "unchanged", "unchanged"]
    assert len(first.items) == 3
    assert len({item["url"] for item in first.items}) == 3
    assert_polite(first.log)


@pytest.mark.parametrize("force", ["0", "1"])
def test_a_shared_llms_txt_is_revalidated_once_a_run(crawl_docs, force):
    crawl_docs(SHARED, *SHARED)
    second = crawl_docs(SHARED, *SHARED, force=force)
    index = [hit for hit in second.log if hit.path == "/llms.txt"]
    assert [(hit.header("If-None-Match"), hit.status) for hit in index] == [('"index"', 304)]
    assert second.stats["walsh/sources/unchanged"] == 3
    assert second.items == []


def test_an_llms_txt_has_a_lifetime_of_its_own(crawl_docs, outcomes, tmp_path):
    fresh = text(headers={"Cache-Control": "max-age=3600"})
    pages = {"/a": html(), "/b": html(), "/llms.txt": fresh}
    assert asked(crawl_docs(pages, "/a")) == ["/a", "/llms.txt"]
    assert asked(crawl_docs(pages, "/a", "/b", "/llms.txt")) == ["/b"]
    assert outcomes() == {"/a": "fetched", "/b": "unchanged", "/llms.txt": "unchanged"}
    read = rows_of(tmp_path / "simulation", "SELECT format FROM sources ORDER BY url")
    assert read == [("markdown",), ("shared",), ("shared",)], "what comes later is no backfill"
    third = crawl_docs(pages, "/a", "/b", "/llms.txt")
    assert asked(third) == [], "it counts for all of its sources"
    assert asked(crawl_docs(pages, "/b", force="1")) == ["/b", "/llms.txt"]


def test_an_invalid_llms_txt_fails_all_sources_of_its_host(crawl_docs, outcomes):
    result = crawl_docs({"/a": html(), "/b": html(), "/llms.txt": html()}, "/a", "/b")
    assert sorted(asked(result)) == ["/a", "/b", "/llms.txt"]
    assert set(outcomes().values()) == {"failed"}
    assert len(log_lines(result, "http://docs.example/llms.txt is no llms.txt")) == 2


def test_the_llms_txt_of_another_port_is_another(llms):
    pages = {"/docs": html(), "/llms.txt": text()}
    first, _ = llms(dict.fromkeys(("docs.example", "docs.example:8080"), pages))
    assert asked(first).count("/llms.txt") == 2
    assert len(first.items) == 2
