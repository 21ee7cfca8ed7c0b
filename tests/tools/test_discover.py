"""Lines for sources.toml are valid TOML and safe to print, whatever characters a title has."""

import json
import random
import tomllib
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.sites import LIST_URL, blocklist, feed, paths, rows_of, site
from walsh_scrapy.feeds.sources.loading import load_sources
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.testing.crawl import keep_empty_blocklist
from walsh_scrapy.testing.feeds import json_feed
from walsh_scrapy.testing.politeness import assert_polite
from walsh_scrapy.testing.web import Reply, Site, redirect
from walsh_scrapy.tools.offers import source_table, toml_string

TEXT = st.text(st.characters() | st.sampled_from("\"'\\\n\r\t\b\x00\x1b\x7f\x85\x9b\u202e\u2028"))


@given(TEXT)
def test_a_string_is_read_back_and_stays_a_line(text):
    written = toml_string(text)
    assert written.isascii() or len(written.splitlines()) == 1
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in written)
    read = tomllib.loads(f"a = {written}")["a"]
    assert read == "".join(
        "\ufffd" if 0xD800 <= ord(character) < 0xE000 else character for character in text
    )


def test_a_table_is_read_back_by_the_reader_of_sources(tmp_path):
    sources = (
        Source("http://blog.example/feed", "feed", 'A "title"\n[[source]]'),
        Source("http://docs.example/%22", "llms"),
    )
    file = tmp_path / "sources.toml"
    file.write_text("\n".join(line for source in sources for line in source_table(source)), "utf-8")
    assert load_sources(file) == sources


# `walsh discover`: what a site offers a crawl, by the gates of a crawl, and ready to declare.

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

    def __init__(self, done, log, folder):
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        self.log, self._folder = log, folder

    @property
    def sources(self):
        """The sources that it says to declare, as a crawl would read them."""
        file = self._folder / "sources.toml"
        file.write_text(self.stdout, "utf-8")
        return load_sources(file)

    @property
    def asked(self):
        return [hit.path for hit in self.log if hit.path != "/robots.txt"]


@pytest.fixture
def discover(tmp_path, run_command):
    """Run `walsh discover` in front of a web, on a new state, and judge the log."""

    def run(web, *arguments, blocked=(), **settings):
        url = f"sqlite:///{tmp_path / 'walsh.sqlite3'}"
        test_settings = {"WALSH_STATE_URL": url, "WALSH_BLOCKLIST_SCHEMA_URL": ""} | settings
        environment = {"PYTHONIOENCODING": "ascii"} | web.environment
        keep_empty_blocklist(url)
        done = run_command("discover", *arguments, settings=test_settings, environment=environment)
        terms = {"crawl_delays": web.crawl_delays, "robots_exempt": [LIST_URL]}
        assert_polite(web.log, blocked=blocked, **terms)
        assert "Traceback" not in done.stderr
        return Discovery(done, web.log, tmp_path)

    return run


def announcing(*targets, media_type="text/markdown"):
    """An HTML page that announces these URLs in its headers."""
    links = (f'<{target}>; rel="alternate"; type="{media_type}"' for target in targets)
    return html(headers={"Link": ", ".join(links)})


def negotiated(hit):
    return markdown() if hit.header("Accept").startswith("text/markdown, ") else html()


def strict(hit):
    return feed() if "application/rss+xml" in hit.header("Accept") else Reply(status=406)


NOISE = random.Random(1).randbytes(6_000_000).hex()
LONG = f"<html><head>{LINK.format('/feed')}</head><body>{NOISE}{LINK.format('/never')}"
TITLE = 'A "b" \\ \x1b[31m\x9b \u202e \u2028 \U0001f600 é\n[[source]]\nurl = "http://evil.example/"'
RSS = feed().body
AS_RSS = "application/rss+xml"
INDEX = {"/llms.txt": LLMS_TXT}
DUMPS = dict.fromkeys(("/LLMS-full.txt", "/docs/llms-full.txt"), markdown())
TO_DUMP = {"/": html(), "/llms.txt": redirect("/docs/llms-full.txt", 302)}
#: By URL: pages, what is asked for beside robots.txt, kind and name of the source, and words.
CASES = {
    "index.example/": ({"/": html()} | INDEX, ["/", "/llms.txt"], ("llms", "Index"), []),
    # HTML is cut off behind its head; nothing more is asked of that host.
    "cut.example/": ({"/": html(LONG)}, ["/"], None, ["denied by robots"]),
    "packed.example/": ({"/": html(LONG, gzip=True)}, ["/"], None, ["denied by robots"]),
    # It gives nothing but one sentence. What it announces as markdown is for crawls.
    "nothing.example/": (
        {"/": announcing("/", "/llms.txt", "/index.md"), "/index.md": markdown()},
        ["/", "/llms.txt"],
        None,
        ["# nothing found: ", "# advice: "],
    ),
    # A page of markdown comes first, and its llms.txt is shown beside it.
    "negotiated.example/": (
        {"/": negotiated} | INDEX,
        ["/", "/llms.txt"],
        ("llms", "Docs"),
        ['# url = "http://negotiated.example/llms.txt"', '"Docs", 2 links', '"Index", 1 link\n'],
    ),
    # A feed that is declared goes before, and is none here.
    "declared.example/": (
        {"/": announcing("/feed.xml", media_type=AS_RSS)} | INDEX,
        ["/", "/feed.xml", "/llms.txt"],
        ("llms", "Index"),
        ["/feed.xml: application/rss+xml: answered 404"],
    ),
    "public.example/": (
        {"/": html(LINK.format("http://10.0.0.1/feed"))},
        ["/", "/llms.txt"],
        None,
        ["denied by privatehosts: a public host leads to 10.0.0.1"],
    ),
    # A feed ends the search, whatever its type.
    "rss.example/feed": (
        {"/feed": Reply(RSS, content_type=AS_RSS)} | INDEX, ["/feed"], ("feed", "Feed"), [],
    ),
    "text.example/feed": (
        {"/feed": Reply(RSS, content_type="text/plain")} | INDEX,
        ["/feed"],
        ("feed", "Feed"),
        ['"Feed", 2 entries'],
    ),
    "bare.example/feed": (
        {"/feed": Reply(RSS, content_type=None)} | INDEX, ["/feed"], ("feed", "Feed"), [],
    ),
    "old.example/feed": (
        {"/feed": redirect("http://rss.example/feed")},
        ["/feed"],
        ("feed", "Feed"),
        ["(redirected to http://rss.example/feed)"],
    ),
    # A server that has no markdown gives its feed, and is asked once.
    "strict.example/feed": ({"/feed": strict}, ["/feed"], ("feed", "Feed"), []),
    "neither.example/feed": (
        {"/feed": Reply(status=406)}, ["/feed", "/llms.txt"], None, ["answered 406"],
    ),
    # If robots.txt denies the page, the llms.txt is requested.
    "barred.example/": (
        INDEX, ["/llms.txt"], ("llms", "Index"), ["denied by robots: line 2 of robots.txt"],
    ),
    "closed.example/b": (INDEX, [], None, []),
    "www.optedout.example/": (INDEX, [], None, ["denied by blocklist"]),
    # The dump of all pages is never asked for, under no spelling and through no redirect (R6, R9).
    "a.example/LLMS%2Dfull.txt": (DUMPS, [], None, ["contains whole pages"]),
    "b.example/": (DUMPS | TO_DUMP, ["/", "/llms.txt"], None, ["contains whole pages"]),
    "c.example/llms.txt": (DUMPS | TO_DUMP, ["/llms.txt"], None, ["contains whole pages"]),
    # Titles are escaped for TOML and the terminal.
    "titled.example/feed": (
        {"/feed": Reply(json_feed(TITLE, ["One"]))}, ["/feed"], ("feed", ANY), ["\U0001f600 é"],
    ),
}  # fmt: skip
CUT = "User-agent: *\nDisallow: /llms.txt\nDisallow: /feed\n"
ROBOTS = {
    "cut.example": CUT,
    "packed.example": CUT,
    "barred.example": "User-agent: *\nDisallow: /\nAllow: /llms.txt\n",
    "closed.example": "User-agent: *\nDisallow: /\n",
}


def test_discover_requests_and_declares_feeds_of_a_site(loopback_web, discover):
    web = loopback_web(
        Site("operator.example", pages={"/blocklist.json": blocklist("optedout.example")})
    )
    for url, (pages, *_) in CASES.items():
        host = url.partition("/")[0]
        web.add(Site(host, ROBOTS.get(host, ""), {"/": Reply(status=404)} | pages))
    urls = [f"http://{url}" for url in CASES]
    discovery = discover(web, *urls, blocked=["optedout.example"], WALSH_BLOCKLIST_URL=LIST_URL)
    assert discovery.code == 1, discovery.stderr
    declared = {source.url: (source.kind, source.name) for source in discovery.sources}
    parts = discovery.stdout.split("\n\n")
    for (url, (_, requested, source, words)), part in zip(CASES.items(), parts, strict=True):
        host = url.partition("/")[0]
        hits = [hit for hit in discovery.log if hit.host == host and hit.path != "/robots.txt"]
        if host != "rss.example":  # which another one leads to
            assert sorted(hit.path for hit in hits) == sorted(requested), url
        assert declared.get(f"http://{url}") == source, url
        assert [word for word in words if word not in part] == []
        assert source or all(line.startswith("#") for line in part.splitlines()), url
        assert ("kind" in part) is (source is not None and source[0] == "llms"), url
        if host in ("cut.example", "packed.example"):
            assert [hit.complete for hit in hits] == [False]
    assert "10.0.0.1" not in {hit.host for hit in discovery.log}
    assert "never" not in discovery.stdout
    (name,) = (name for url, (_, name) in declared.items() if "titled" in url)
    assert name.startswith('A "b" \\ [31m \U0001f600')
    assert not set("\x1b\x9b\u202e\u2028") & set(discovery.stdout)


def test_only_feeds_that_a_page_declares_are_requested(loopback_web, discover, tmp_path):
    """The judge is the log: robots.txt, the page and its feeds, each with its delay."""
    page = f"""<br /><b>Notice</b>: x<!doctype html><html><head><title>Docs</title><img src=x>
        {LINK.format("http://docs.example/comments/feed/")}
        <LINK REL="Alternate Home" TYPE="application/atom+xml" title="A &amp; B" HREF=atom.xml>
        {LINK.format("/blog/atom.xml")}{LINK.format("ftp://docs.example/x.xml")}
        <link rel=alternate type=application/json href=/wp-json/wp/v2/pages/1>
        <link rel=alternate type=text/html href=/en>{LINK.format("//other.example/feed")}
        <base href="/blog/"></head><body><a href="/link">x</a>{LINK.format("/body.xml")}"""
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
    discovery = discover(web, URL)
    assert discovery.code == 0, discovery.stderr
    assert paths(discovery.log) == [
        "docs.example/robots.txt",
        "docs.example/",
        "docs.example/blog/atom.xml",
        "other.example/robots.txt",
        "docs.example/comments/feed/",
    ]
    assert discovery.sources == (Source(f"{URL}blog/atom.xml", "feed", "Main"),)
    for table in ("sources", "entries"):
        assert rows_of(tmp_path, f"SELECT count(*) FROM {table}") == [(0,)]
    for line in (
        f"{URL}: text/html; charset=utf-8; the page declares 3 feeds",
        f'{URL}blog/atom.xml: application/atom+xml: feed, "Main", 2 entries',
        "http://other.example/feed: application/rss+xml: denied by robots: line 2 of robots.txt",
        "# or this feed (application/rss+xml, of comments), which the page declares too:",
        f'# url = "{URL}comments/feed/"',
    ):
        assert line in discovery.stdout


def test_other_hosts_are_requested_while_one_host_waits(loopback_web, discover):
    web = loopback_web(
        Site("slow.example", "User-agent: *\nCrawl-delay: 3\n", {"/llms.txt": LLMS_TXT}),
        site("blog.example"),
        Site("none.example", ""),
    )
    urls = ["http://slow.example/a", "http://blog.example/feed", "http://none.example/"]
    discovery = discover(web, *urls, "--json")
    assert discovery.code == 1
    order = paths(discovery.log)
    assert order.index("blog.example/feed") < order.index("slow.example/a")
    assert order.index("none.example/llms.txt") < order.index("slow.example/llms.txt")
    slow, blog, none = map(json.loads, discovery.stdout.splitlines())
    assert [offer["usable"] for offer in (slow, blog, none)] == [True, True, False]
    assert slow["source"] == {"url": urls[0], "kind": "llms", "name": "Index"}
    assert [document["role"] for document in slow["documents"]] == ["page", "llms.txt"]
    assert none["source"] is None
    assert set(slow) == set(blog) == set(none)


def test_pages_of_one_host_share_its_llms_txt(loopback_web, discover):
    other, of_other = f"{URL}sdk/llms.txt", Reply("# SDK\n\n- [One](one)\n")
    web = loopback_web(Site("docs.example", "", {"/llms.txt": LLMS_TXT, "/sdk/llms.txt": of_other}))
    discovery = discover(web, URL, f"{URL}guide", f"{URL}llms.txt", other, URL)
    assert discovery.code == 0
    assert sorted(discovery.asked) == ["/", "/guide", "/llms.txt", "/sdk/llms.txt"]
    assert discovery.sources == (Source(URL, "llms", "Index"), Source(other, "llms", "SDK"))
    assert f"the same document as {URL}" in discovery.stdout


def test_after_a_failed_request_a_site_gets_no_other(loopback_web, discover):
    slow = "User-agent: *\nCrawl-delay: 86400\n"
    busy = Reply(status=429, headers={"Retry-After": "7200"})
    cases = {
        "500.example": ("", Reply(status=500), "answered 500"),
        "429.example": ("", busy, "must not be requested before"),
        "crawl-delay.example": (slow, markdown(), "must not be requested before"),
        # It is not known whether there is a feed.
        "feed.example": ("", html(LINK.format("/feed")), "answered 500"),
    }
    others = {"/feed": Reply(status=500), "/llms.txt": LLMS_TXT}
    web = loopback_web()
    for host, (robots, page, _) in cases.items():
        web.add(Site(host, robots, {"/": page} | others))
    discovery = discover(web, *(f"http://{host}/" for host in cases))
    assert discovery.code == 1
    parts = discovery.stdout.split("\n\n")
    for (host, (*_, words)), part in zip(cases.items(), parts, strict=True):
        assert host in part
        assert "undecided" in part
        assert words in part
    assert "/llms.txt" not in discovery.asked
