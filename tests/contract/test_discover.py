"""`scrapy discover`: what a site offers a crawl, by the gates of a crawl, and ready to declare."""

import json
import random
import sqlite3
from collections import Counter
from itertools import count

import pytest

from tests.helpers.sites import LIST_URL, blocklist, feed, paths, site
from walsh_scrapy.sources import Source, load_sources
from walsh_scrapy.testing.feeds import json_feed
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.project import keep_empty_blocklist
from walsh_scrapy.testing.web import Reply, Site, redirect

URL = "http://docs.example/"
PAGE = "# Docs\n\n- [Start](/start): how to begin\n- [More](/more)\n"
LLMS_TXT = "# Index\n\n- [One](/one): the first\n"
HTML = "<!doctype html><html><title>Docs</title><p>text</p>"
LINK = '<link rel="alternate" type="application/rss+xml" href="{}">'


def markdown(body=PAGE, **more):
    return Reply(body, content_type="text/markdown; charset=utf-8", **more)


def html(body=HTML, **more):
    return Reply(body, content_type="text/html; charset=utf-8", **more)


class Discovery:
    """One call of the command: its output, and the log of the servers."""

    def __init__(self, done, web, folder):
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        self.log = web.log if web else []
        self._folder = folder

    @property
    def sources(self):
        """The sources that it says to declare, as a crawl would read them."""
        file = self._folder / "sources.toml"
        file.write_text(self.stdout, "utf-8")
        return load_sources(file)

    @property
    def asked(self):
        return [hit.path for hit in self.log if hit.path != "/robots.txt"]

    def rows(self, table):
        """How many rows a table of the state has."""
        with sqlite3.connect(self._folder / "state.sqlite3") as database:
            (count,) = database.execute(f"SELECT count(*) FROM {table}").fetchone()
        database.close()
        return count


@pytest.fixture
def discover(tmp_path, run_scrapy):
    """Run `scrapy discover` in front of a web, on a new state, and judge the log."""
    folders = (tmp_path / str(number) for number in count())

    def run(web, *arguments, blocked=(), **settings):
        folder = next(folders)
        folder.mkdir()
        given = {
            "WALSH_STATE_URL": f"sqlite:///{folder / 'state.sqlite3'}",
            "WALSH_BLOCKLIST_SCHEMA_URL": "",
        } | settings
        environment = {"PYTHONIOENCODING": "ascii"} | (web.environment if web else {})
        keep_empty_blocklist(given["WALSH_STATE_URL"])
        done = run_scrapy("discover", *arguments, settings=given, environment=environment)
        if web and web.log:
            delays = web.crawl_delays
            assert_polite(web.log, crawl_delays=delays, blocked=blocked, robots_exempt=[LIST_URL])
        assert "Traceback" not in done.stderr
        return Discovery(done, web, folder)

    return run


@pytest.fixture
def docs(loopback_web, discover):
    """Discover one host with these pages."""

    def run(*arguments, robots="", url=URL, **pages):
        given = {f"/{name.replace('_', '.')}": page for name, page in pages.items()}
        given["/"] = given.pop("/top", Reply(status=404))
        return discover(loopback_web(Site("docs.example", robots, given)), url, *arguments)

    return run


def test_a_site_with_an_llms_txt_is_a_line_for_the_sources_file(docs):
    found = docs(top=html(), llms_txt=LLMS_TXT)
    assert found.code == 0, found.stderr
    assert found.sources == (Source(URL, "llms", "Index"),)
    assert [line for line in found.stdout.splitlines() if not line.startswith("#")] == [
        "[[source]]",
        f'url = "{URL}"',
        'kind = "llms"',
        'name = "Index"',
    ]
    assert found.asked == ["/", "/llms.txt"]


@pytest.mark.parametrize("gzip", [False, True])
def test_html_is_cut_off_behind_its_head(docs, gzip):
    # Nothing more is asked of the host: when exactly a cut exchange ended, its server cannot tell.
    robots = "User-agent: *\nDisallow: /llms.txt\nDisallow: /feed\n"
    noise = random.Random(1).randbytes(6_000_000).hex()
    page = f"<html><head>{LINK.format('/feed')}</head><body>{noise}{LINK.format('/never')}"
    found = docs(top=html(page, gzip=gzip), robots=robots)
    assert (found.code, found.asked) == (1, ["/"])
    assert [hit.complete for hit in found.log] == [True, False]
    assert "/feed: denied by robots" in found.stdout.replace("application/rss+xml: ", "")
    assert "never" not in found.stdout


def test_html_gives_nothing_but_one_sentence(docs):
    links = (f'<{path}>; rel="alternate"; type="text/markdown"' for path in ("/", "/llms.txt"))
    found = docs(top=html(headers={"Link": ", ".join(links)}))
    assert (found.code, found.asked) == (1, ["/", "/llms.txt"])  # each once, announced or not
    assert "# nothing found: the page as markdown or as a feed" in found.stdout
    assert "nothing else of the page is read" in found.stdout
    assert "# try this: open the page in a browser" in found.stdout
    assert all(line.startswith("#") for line in found.stdout.splitlines())


def test_a_page_of_markdown_comes_first_and_its_llms_txt_is_shown_beside_it(docs):
    found = docs(
        top=lambda hit: markdown() if hit.header("Accept") == "text/markdown" else html(),
        llms_txt=LLMS_TXT,
    )
    assert found.sources == (Source(URL, "llms", "Docs"),)
    assert '# url = "http://docs.example/llms.txt"' in found.stdout
    assert '"Docs", 2 links' in found.stdout
    assert '"Index", 1 link\n' in found.stdout


def test_what_a_page_declares_as_its_feeds_is_requested_and_nothing_else_of_it(
    loopback_web, discover
):
    """The judge is the log: robots.txt, the page and its feeds, each with its pause."""
    page = f"""<!doctype html><html><head><base href="/blog/"><title>Docs</title>
        {LINK.format("http://docs.example/comments/feed/")}
        <LINK REL="Alternate Home" TYPE="application/atom+xml" title="A &amp; B" HREF=atom.xml>
        {LINK.format("/blog/atom.xml")}{LINK.format("ftp://docs.example/x.xml")}
        <link rel=alternate type=application/json href=/wp-json/wp/v2/pages/1>
        <link rel=alternate type=text/html href=/en>{LINK.format("//other.example/feed")}
        </head><body><a href="/link">x</a>{LINK.format("/body.xml")}"""
    announced = '</blog/atom.xml>; rel="alternate"; type="application/atom+xml"'
    pages = {
        "/": html(page, headers={"Link": announced}),
        "/blog/atom.xml": feed("Main"),
        "/comments/feed/": feed("Main: comments", ("Re: One",)),
        "/llms.txt": LLMS_TXT,
    }
    web = loopback_web(
        Site("docs.example", "User-agent: *\nCrawl-delay: 2\n", pages),
        Site("other.example", "User-agent: *\nDisallow: /\n"),
    )
    found = discover(web, URL)
    assert found.code == 0, found.stderr
    assert paths(found.log) == [
        "docs.example/robots.txt",
        "docs.example/",
        "docs.example/blog/atom.xml",
        "other.example/robots.txt",
        "docs.example/comments/feed/",
    ]
    assert found.sources == (Source(f"{URL}blog/atom.xml", "feed", "Main"),)
    assert (found.rows("sources"), found.rows("entries")) == (0, 0)
    for line in (
        f"{URL}: answered as text/html; charset=utf-8; it declares 3 feeds",
        f'{URL}blog/atom.xml: application/atom+xml: feed, "Main", 2 entries',
        "http://other.example/feed: application/rss+xml: denied by robots: line 2 of robots.txt",
        "# or this feed, which the page declares too, application/rss+xml, of comments:",
        f'# url = "{URL}comments/feed/"',
    ):
        assert line in found.stdout


def test_announced_markdown_is_requested_if_no_declared_feed_is_one(docs):
    links = (
        '</llms-full.txt>; rel="alternate"; type="text/markdown"',
        '<ftp://docs.example/index.md>; rel="alternate"; type="text/markdown"',
        '</my index.md>; rel="alternate"; type="text/markdown"',
        '</feed.xml>; rel="alternate"; type="application/rss+xml"',
    )
    found = docs(top=html(headers={"Link": ", ".join(links)}), **{"my%20index.md": markdown()})
    assert found.sources == (Source(URL, "llms", "Docs"),)
    assert found.asked == ["/", "/feed.xml", "/my%20index.md", "/llms.txt"]
    assert "/feed.xml: application/rss+xml: answered 404" in found.stdout


def test_while_it_is_unknown_whether_there_is_a_feed_nothing_else_is_requested(docs):
    page = html(LINK.format("/feed"))
    found = docs(top=page, feed=Reply(status=500), llms_txt=LLMS_TXT)
    assert (found.code, set(found.asked)) == (2, {"/", "/feed"})


def test_a_public_page_declares_no_feed_of_a_private_network(docs):
    found = docs(top=html(LINK.format("http://10.0.0.1/feed")))
    assert {hit.host for hit in found.log} == {"docs.example"}
    assert "denied by publicweb: a public host leads to 10.0.0.1" in found.stdout


def test_announced_urls_are_requested_until_one_is_markdown(docs):
    names = ("none.md", "denied.md", "b.md", "never.md")
    links = (f'</{name}>; rel="alternate"; type="text/markdown"' for name in names)
    pages = {"b.md": markdown(), "never.md": markdown()}
    robots = "User-agent: *\nDisallow: /denied.md\n"
    found = docs(top=html(headers={"Link": ", ".join(links)}), robots=robots, **pages)
    assert sorted(found.asked) == ["/", "/b.md", "/llms.txt", "/none.md"]
    assert found.sources == (Source(URL, "llms", "Docs"),)


def test_a_feed_ends_the_search_and_needs_no_kind(loopback_web, discover):
    kinds = {"rss.example": "application/rss+xml", "text.example": "text/plain", "a.example": None}
    web = loopback_web(
        *(
            Site(host, "", {"/feed": Reply(feed().body, content_type=kind), "/llms.txt": LLMS_TXT})
            for host, kind in kinds.items()
        )
    )
    urls = [f"http://{host}/feed" for host in kinds]
    found = discover(web, *urls)
    assert found.code == 0
    assert found.sources == tuple(Source(url, "feed", "Feed") for url in urls)
    assert "kind" not in found.stdout
    assert found.stdout.count('"Feed", 2 entries') == len(kinds)
    assert found.asked == ["/feed"] * len(kinds)


def test_a_server_that_has_no_markdown_is_asked_for_a_feed_once(docs):
    def strict(hit):
        return feed() if "application/rss+xml" in hit.header("Accept") else Reply(status=406)

    found = docs(url=f"{URL}feed", feed=strict)
    assert found.sources == (Source(f"{URL}feed", "feed", "Feed"),)
    assert found.asked == ["/feed", "/feed"]
    neither = docs(url=f"{URL}feed", feed=Reply(status=406))
    assert neither.code == 1
    assert neither.asked == ["/feed", "/feed", "/llms.txt"]


def test_titles_are_escaped_for_toml_and_the_terminal(docs):
    title = (
        'A "b" \\ \x1b[31m\x9b \u202e \u2028 \U0001f600 é\n[[source]]\nurl = "http://evil.example/"'
    )
    found = docs(url=f"{URL}feed", feed=Reply(json_feed(title, ["One"])))
    (source,) = found.sources
    assert source.url == f"{URL}feed"
    assert source.name.startswith('A "b" \\ [31m \U0001f600')
    assert "\U0001f600 é" in found.stdout
    assert not set("\x1b\x9b\u202e\u2028") & set(found.stdout)
    assert found.stdout.count("\n[[source]]") == 1


def test_if_robots_txt_denies_the_page_the_llms_txt_is_requested(docs):
    found = docs(robots="User-agent: *\nDisallow: /\nAllow: /llms.txt\n", llms_txt=LLMS_TXT)
    assert found.code == 0
    assert found.asked == ["/llms.txt"]
    assert "line 2 of robots.txt" in found.stdout
    assert "line 3 of robots.txt" in found.stdout
    denied = docs(
        robots="User-agent: *\nDisallow: /\n", llms_txt=LLMS_TXT, url="http://docs.example/b"
    )
    assert (denied.code, denied.asked) == (1, [])


def test_a_listed_host_gets_no_request(loopback_web, discover):
    web = loopback_web(
        Site("www.optedout.example", "", {"/llms.txt": LLMS_TXT}),
        Site("operator.example", pages={"/blocklist.json": blocklist("optedout.example")}),
    )
    found = discover(
        web,
        "http://www.optedout.example/",
        blocked=["optedout.example"],
        WALSH_BLOCKLIST_URL=LIST_URL,
    )
    assert found.code == 1
    assert "denied by blocklist" in found.stdout
    assert {hit.host for hit in found.log} == {"operator.example"}


def test_while_one_host_waits_the_others_are_asked(loopback_web, discover):
    web = loopback_web(
        Site("slow.example", "User-agent: *\nCrawl-delay: 3\n", {"/llms.txt": LLMS_TXT}),
        site("blog.example"),
        Site("none.example", ""),
    )
    urls = ["http://slow.example/a", "http://blog.example/feed", "http://none.example/"]
    found = discover(web, *urls, "--json")
    assert found.code == 1
    order = paths(found.log)
    assert order.index("blog.example/feed") < order.index("slow.example/a")
    assert order.index("none.example/llms.txt") < order.index("slow.example/llms.txt")
    slow, blog, none = json.loads(found.stdout)
    assert [each["usable"] for each in (slow, blog, none)] == [True, True, False]
    assert slow["source"] == {"url": urls[0], "kind": "llms", "name": "Index"}
    assert [each["role"] for each in slow["documents"]] == ["page", "llms.txt"]
    assert [gates["interval"] for gates in slow["gates"]] == [3.0, 3.0]
    assert none["source"] is None
    assert set(slow) == set(blog) == set(none)


def test_pages_of_one_host_share_its_llms_txt(loopback_web, discover):
    other, of_other = f"{URL}sdk/llms.txt", Reply("# SDK\n\n- [One](one)\n")
    web = loopback_web(Site("docs.example", "", {"/llms.txt": LLMS_TXT, "/sdk/llms.txt": of_other}))
    found = discover(web, URL, f"{URL}guide", f"{URL}llms.txt", other, URL)
    assert found.code == 0
    assert sorted(found.asked) == ["/", "/guide", "/llms.txt", "/sdk/llms.txt"]
    assert found.sources == (Source(URL, "llms", "Index"), Source(other, "llms", "SDK"))
    assert f"the same as {URL}, so declare one of them" in found.stdout


def test_a_crawl_reads_the_offered_sources_and_a_feed_comes_without_llms_txt(
    loopback_web, discover, crawl, tmp_path
):
    pages = {"/": html(), "/guide": markdown(), "/feed": feed(), "/llms.txt": LLMS_TXT}
    web = loopback_web(Site("docs.example", "", pages))
    found = discover(web, f"{URL}feed", URL, f"{URL}guide")
    of_feed, of_page, of_guide = found.stdout.split("\n\n")
    assert "llms" not in of_feed
    assert "or this instead" not in of_page
    assert "or this instead, its llms.txt" in of_guide
    file = tmp_path / "offered.toml"
    file.write_text(found.stdout, "utf-8")
    runs = [crawl(web, spider, sources=file) for spider in ("feeds", "llms")]
    counts = Counter((item["kind"], item["source"]) for run in runs for item in run.items)
    assert counts == {("feed", f"{URL}feed"): 2, ("llms", URL): 1, ("llms", f"{URL}guide"): 2}


def test_a_redirect_is_followed_and_shown(loopback_web, discover):
    web = loopback_web(
        Site("docs.example", "", {"/feed": redirect("http://blog.example/feed")}),
        site("blog.example"),
    )
    found = discover(web, f"{URL}feed")
    assert found.sources == (Source(f"{URL}feed", "feed", "Feed"),)
    assert "(by redirect, at http://blog.example/feed)" in found.stdout


def test_after_a_failed_request_a_site_gets_no_other(loopback_web, discover):
    slow = "User-agent: *\nCrawl-delay: 86400\n"
    cases = {
        "500.example": ("", Reply(status=500), "answered 500"),
        "429.example": (
            "",
            Reply(status=429, headers={"Retry-After": "7200"}),
            "may not be asked before",
        ),
        "crawl-delay.example": (slow, markdown(), "may not be asked before"),
    }
    web = loopback_web(
        *(
            Site(host, robots, {"/": page, "/llms.txt": LLMS_TXT})
            for host, (robots, page, _) in cases.items()
        )
    )
    found = discover(web, *(f"http://{host}/" for host in cases))
    assert found.code == 2
    told = found.stdout.split("\n\n")
    for (host, (*_, words)), said in zip(cases.items(), told, strict=True):
        assert host in said
        assert "cannot say" in said
        assert words in said
    assert "/llms.txt" not in found.asked


def test_help_has_an_example(discover):
    words = " ".join(discover(None, "--help").stdout.split())
    assert "Example: scrapy discover https://docs.example/ >> sources.toml" in words


def test_the_dump_of_all_pages_is_never_asked_for(loopback_web, discover):
    """Neither under any spelling of its name, nor through a redirect (R6, R9)."""
    way = redirect("/docs/llms-full.txt", 302)
    dumps = dict.fromkeys(("/LLMS-full.txt", "/docs/llms-full.txt"), markdown())
    asked_for = {"a.example": "/LLMS%2Dfull.txt", "b.example": "/", "c.example": "/llms.txt"}
    pages = dumps | {"/": html(), "/llms.txt": way}
    web = loopback_web(*(Site(host, "", pages) for host in asked_for))
    found = discover(web, *(f"http://{host}{path}" for host, path in asked_for.items()))
    assert not [path for path in found.asked if "full" in path]
    assert found.code == 1
    for host, said in zip(asked_for, found.stdout.split("\n\n"), strict=True):
        assert host in said
        assert "the pages themselves" in said
