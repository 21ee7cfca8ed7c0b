"""The web of `scrapy demo`: hosts that each ask something different of a crawler.

sites, sources = demo_web()
with DirectWeb(*sites) as web:
    ...  # crawl the sources, the blocklist being at BLOCKLIST_URL
    seen = {"crawl_delays": web.crawl_delays, "connections": web.connections}
    violations(web.log, **DEMO_TERMS, **seen)
"""

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Final

from walsh_scrapy.testing.feeds import atom, json_feed, rss
from walsh_scrapy.testing.manners import Terms
from walsh_scrapy.testing.web import Page, Reply, Site, redirect

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
    """Return the sites and the sources to declare; `Site.asks` says what each server asks for."""
    sites = [_operator(), *_feeds(), *_paced(), *_redirects(), *_groups(), *_left_alone()]
    return sites, list(SOURCES)


def _operator() -> Site:
    blocklist = {
        "contract": "walsh-research-blocklist/v1",
        "updated": "2026-05-23T00:00:00Z",
        "operator": "The operator",
        "contact": "operator@operator.example",
        "policy": "http://operator.example/bot/",
        "refresh": "PT6H",
        "blocked": [{"domain": "optedout.example", "added": "2026-05-23", "reason": "by mail"}],
    }
    schema = (files("walsh_scrapy.policy") / "blocklist.schema.json").read_bytes()
    pages = {
        "/blocklist.json": Reply(json.dumps(blocklist), content_type="application/json"),
        "/blocklist.schema.json": Reply(schema, content_type="application/schema+json"),
    }
    return Site("operator.example", pages=pages, asks="to be read first: its blocklist")


def _feeds() -> list[Site]:
    looks = [_rss("blog.example", "Blog", posts) for posts in (_POSTS, (*_POSTS, "Third"))]
    comments = _rss("blog.example/comments", "Comments", ["Re: First"])
    blog: dict[str, Page] = {"/feed.xml": looks, "/comments.xml": comments}
    document = atom("Atom", _POSTS, "http://atom.example/")
    listed = json_feed("JSON", _POSTS, "http://json.example/")
    steady = _rss("steady.example", "Steady", _POSTS, '"v1"', "Thu, 01 Jan 2026 12:00:00 GMT")
    return [
        Site("blog.example", _OPEN, blog, "nothing: two RSS feeds, a new post on the second run"),
        Site(
            "atom.example",
            pages={"/feed.atom": Reply(document, content_type="application/atom+xml")},
            asks="nothing, not even by a robots.txt (404): an Atom feed, no validators",
        ),
        Site(
            "json.example",
            _OPEN,
            {"/feed.json": Reply(listed, content_type="application/feed+json", gzip=True)},
            "nothing: a JSON Feed, compressed",
        ),
        Site("steady.example", _OPEN, {"/feed.xml": steady}, "ETag and Last-Modified to be echoed"),
    ]


def _paced() -> list[Site]:
    busy = Reply("Too many requests.\n", 429, headers={"Retry-After": "3"})
    tired = Reply("Back soon.\n", 503)
    return [
        Site(
            "slow.example",
            f"{_OPEN}Crawl-delay: 2\n",
            {"/feed.xml": _rss("slow.example", "Slow", _POSTS)},
            "Crawl-delay: 2",
        ),
        Site(
            "busy.example",
            _OPEN,
            {"/feed.xml": [busy, _rss("busy.example", "Busy", _POSTS)]},
            "429 with Retry-After: 3, once",
        ),
        Site(
            "tired.example",
            _OPEN,
            {"/feed.xml": [tired, _rss("tired.example", "Tired", _POSTS)]},
            "503 without Retry-After, once: back off",
        ),
    ]


def _redirects() -> list[Site]:
    return [
        Site(
            "old.example",
            _OPEN,
            {"/rss": redirect("/feed.xml"), "/feed.xml": _rss("old.example", "Old", _POSTS)},
            "301 to another path of the same host",
        ),
        Site(
            "moved.example",
            _OPEN,
            {"/feed.xml": redirect("http://home.example/feed.xml", 302)},
            "302 to home.example",
        ),
        Site(
            "home.example",
            _OPEN,
            {"/feed.xml": _rss("home.example", "Home", _POSTS)},
            "its own robots.txt to be read, before a redirect too",
        ),
    ]


def _groups() -> list[Site]:
    return [
        Site(
            "guest.example",
            _GUESTS_ONLY,
            {"/feed.xml": _rss("guest.example", "Guest", _POSTS)},
            "all crawlers to stay out, but a group of our own allows us",
        ),
        Site(
            "noentry.example",
            _NOT_US,
            {"/feed.xml": _rss("noentry.example", "No entry", _POSTS)},
            "nothing of anybody, but a group of our own keeps us out",
        ),
    ]


def _left_alone() -> list[Site]:
    page = Reply("<!DOCTYPE html><title>Page</title>", content_type="text/html; charset=utf-8")
    feed = _rss("optedout.example", "Opted out", _POSTS)
    return [
        Site("optedout.example", _OPEN, {"/feed.xml": feed}, "by mail: no request at all"),
        Site("www.optedout.example", _OPEN, {"/feed.xml": feed}, "the same, as its subdomain"),
        Site("page.example", _OPEN, {"/feed.xml": page}, "nothing: an HTML page, no feed"),
    ]


def _rss(
    place: str,
    title: str,
    posts: Iterable[str],
    etag: str | None = None,
    modified: str | None = None,
) -> Reply:
    body = rss(title, posts, f"http://{place}/")
    return Reply(body, content_type="application/rss+xml", etag=etag, last_modified=modified)
