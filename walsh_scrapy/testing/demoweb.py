"""The web of `walsh demo`: hosts with different requirements for a crawler, and tables about them.

sites, sources = demo_web()
with DirectWeb(*sites) as web:
    ...  # crawl the sources, with WALSH_BLOCKLIST_URL = BLOCKLIST_URL
    seen = {"crawl_delays": web.crawl_delays, "connections": web.connections}
    violations(web.log, **DEMO_TERMS, **seen)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from walsh_scrapy.testing.feeds import atom, json_feed, rss
from walsh_scrapy.testing.site import Page, Reply, Site, redirect

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from walsh_scrapy.testing.hit import Hit
    from walsh_scrapy.testing.politeness import Terms

BLOCKLIST_URL: Final = "http://operator.example/blocklist.json"
BLOCKLIST_SCHEMA_URL: Final = "http://operator.example/blocklist.schema.json"

#: The sources that the demo declares; some of them must not be fetched.
SOURCES: Final = (
    "http://blog.example/feed.xml",
    "http://blog.example/comments.xml",
    "http://atom.example/feed.atom",
    "http://json.example/feed.json",
    "http://steady.example/feed.xml",
    "http://slow.example/feed.xml",
    "http://busy.example/feed.xml",
    "http://tired.example/feed.xml",
    "http://old.example/rss",
    "http://moved.example/feed.xml",
    "http://guest.example/feed.xml",
    "http://noentry.example/feed.xml",
    "http://optedout.example/feed.xml",
    "http://www.optedout.example/feed.xml",
    "http://page.example/feed.xml",
)

#: The keywords of `violations` for this web, apart from `crawl_delays` and `connections`.
DEMO_TERMS: Final[Terms] = {
    "blocked": ("optedout.example",),
    "denied": ("http://noentry.example/",),
    "declared": SOURCES,
    "robots_exempt": (BLOCKLIST_URL, BLOCKLIST_SCHEMA_URL),
    "robots_ttl": 86_400.0,
    "documents_ttl": 21_600.0,
    "conditional": True,
    "backoff": 2.0,
    "max_retries": 4,
}

_POSTS: Final = ("First", "Second")
_GUESTS_ONLY: Final = "User-agent: *\nDisallow: /\n\nUser-agent: Walsh-Research\nAllow: /\n"
_NOT_US: Final = "User-agent: *\nAllow: /\n\nUser-agent: Walsh-Research\nDisallow: /\n"
_OPEN: Final = "User-agent: *\nDisallow: /private/\n"


def demo_web() -> tuple[list[Site], list[str]]:
    """Return the sites, each with a description, and the URLs of the sources to crawl."""
    sites = [_operator(), *_feeds(), *_paced(), *_redirects(), *_groups(), *_forbidden()]
    return sites, list(SOURCES)


def _operator() -> Site:
    blocklist = {
        "contract": "walsh-research-blocklist/v1",
        "updated": "2026-05-23T00:00:00Z",
        "refresh": "PT6H",
        "blocked": [{"domain": "optedout.example", "added": "2026-05-23", "reason": "by mail"}],
    }
    schema = (files("walsh_scrapy.policy") / "blocklist.schema.json").read_bytes()
    pages = {
        "/blocklist.json": Reply(json.dumps(blocklist), content_type="application/json"),
        "/blocklist.schema.json": Reply(schema, content_type="application/schema+json"),
    }
    return Site("operator.example", pages=pages, description="publishes the list of opt-outs")


def _feeds() -> list[Site]:
    looks = [_rss("blog.example", "Blog", posts) for posts in (_POSTS, (*_POSTS, "Third"))]
    comments = _rss("blog.example/comments", "Comments", ["Re: First"])
    blog: dict[str, Page] = {"/feed.xml": looks, "/comments.xml": comments}
    document = atom("Atom", _POSTS, "http://atom.example/")
    listed = json_feed("JSON", _POSTS, "http://json.example/")
    steady = _rss("steady.example", "Steady", _POSTS, '"v1"', "Thu, 01 Jan 2026 12:00:00 GMT")
    return [
        Site("blog.example", _OPEN, blog, "two RSS feeds, with a new post in the second run"),
        Site(
            "atom.example",
            pages={"/feed.atom": Reply(document, content_type="application/atom+xml")},
            description="no robots.txt (404); an Atom feed without ETag and Last-Modified",
        ),
        Site(
            "json.example",
            _OPEN,
            {"/feed.json": Reply(listed, content_type="application/feed+json", gzip=True)},
            "a compressed JSON Feed",
        ),
        _site("steady", "an RSS feed with ETag and Last-Modified", steady),
    ]


def _paced() -> list[Site]:
    busy = Reply("Too many requests.\n", 429, headers={"Retry-After": "3"})
    tired = Reply("Back soon.\n", 503)
    return [
        _site("slow", "robots.txt with Crawl-delay: 2", robots=f"{_OPEN}Crawl-delay: 2\n"),
        _site("busy", "answers 429 with Retry-After: 3, once", [busy, _feed("busy")]),
        _site("tired", "answers 503 without Retry-After, once", [tired, _feed("tired")]),
    ]


def _redirects() -> list[Site]:
    old = {"/rss": redirect("/feed.xml"), "/feed.xml": _feed("old")}
    moved = redirect("http://home.example/feed.xml", 302)
    return [
        Site("old.example", _OPEN, old, "redirects (301) to another path of the same host"),
        _site("moved", "redirects (302) to home.example", moved),
        _site("home", "the target of that redirect, with a robots.txt of its own"),
    ]


def _groups() -> list[Site]:
    guest = "`Disallow: /` for *, everything allowed for our name"
    noentry = "`Disallow: /` for our name, everything allowed for *"
    return [
        _site("guest", guest, robots=_GUESTS_ONLY),
        _site("noentry", noentry, _rss("noentry.example", "No entry", _POSTS), _NOT_US),
    ]


def _forbidden() -> list[Site]:
    page = Reply("<!DOCTYPE html><title>Page</title>", content_type="text/html; charset=utf-8")
    feed = _rss("optedout.example", "Opted out", _POSTS)
    return [
        _site("optedout", "on the list of opt-outs", feed),
        _site("www.optedout", "a subdomain of a host on that list", feed),
        _site("page", "an HTML page where a feed should be", page),
    ]


def _site(name: str, description: str, page: Page | None = None, robots: str = _OPEN) -> Site:
    """Return a site with one page; by default the page is a feed."""
    return Site(f"{name}.example", robots, {"/feed.xml": page or _feed(name)}, description)


def _feed(name: str) -> Reply:
    return _rss(f"{name}.example", name.capitalize(), _POSTS)


def _rss(
    place: str,
    title: str,
    posts: Iterable[str],
    etag: str | None = None,
    modified: str | None = None,
) -> Reply:
    body = rss(title, posts, f"http://{place}/")
    return Reply(body, content_type="application/rss+xml", etag=etag, last_modified=modified)


def demo_table(sites: Iterable[Site], runs: Sequence[Sequence[Hit]]) -> Table:
    """Return a table with a row for each host: what it does, and its requests in each run."""
    table = Table(title="Each server, and its log", title_justify="left")
    table.add_column("host", no_wrap=True)
    table.add_column("server", ratio=2)
    for number in range(1, len(runs) + 1):
        table.add_column(f"requests in run {number}", ratio=2)
    for site in sites:
        cells = (timeline([hit for hit in log if hit.host == site.host]) for log in runs)
        table.add_row(site.host, site.description, *cells)
    return table


def timeline(hits: Sequence[Hit]) -> str:
    """Return the requests to a host in one run as a line, with the gaps between them."""
    if not hits:
        return "no byte sent"
    ordered = sorted(hits, key=lambda hit: hit.started)
    parts = [_text_of(ordered[0])]
    for earlier, later in pairwise(ordered):
        parts += [f"{later.started - earlier.ended:.2f} s", _text_of(later)]
    return " · ".join(parts)


def entries_table(runs: Sequence[Sequence[Mapping[str, Any]]]) -> Table:
    """Return a table with a row for each source: its new entries in each run, and one title."""
    table = Table(title="Entries found", title_justify="left")
    table.add_column("source", no_wrap=True)
    for number in range(1, len(runs) + 1):
        table.add_column(f"new in run {number}", justify="right")
    table.add_column("one of them")
    counts = [Counter(str(item["source"]) for item in items) for items in runs]
    for source in sorted({source for count in counts for source in count}):
        titles = [
            str(item["title"]) for items in runs for item in items if item["source"] == source
        ]
        table.add_row(source, *(str(count[source]) for count in counts), titles[0])
    return table


def _text_of(hit: Hit) -> str:
    target = "robots.txt" if hit.path == "/robots.txt" else hit.path
    return f"{target} {hit.status}"
