"""What only days show of a crawler: a web of twelve simulated days, and when it is crawled.

A copy of robots.txt expires, a list of opt-outs is refreshed, changed and broken, a host refuses
for longer than a run, a feed is gone. `walsh_scrapy.testing.acceptance` crawls it. A page that is a
function answers by the simulated time, in seconds since the first run.
"""

import json
from email.utils import formatdate
from typing import Final

from walsh_scrapy.testing.feeds import Post, atom, json_feed, rss
from walsh_scrapy.testing.hit import Hit
from walsh_scrapy.testing.reply import Page, Reply, redirect
from walsh_scrapy.testing.site import Site

HOUR: Final = 3600.0
DAY: Final = 86_400.0
LIST_URL: Final = "http://operator.example/blocklist.json"
#: It answers 410.
GONE: Final = "http://gone.example/feed"
#: The runs of the feeds. Some come hours after another one, when little is due.
STARTS: Final = tuple(
    day * DAY + hour * HOUR
    for day, hour in (
        (0, 0), (0, 2), (0, 8), (1, 1), (1, 9), (2, 2), (3, 3), (4, 4), (5, 5), (7, 7)
    )
)  # fmt: skip
#: The runs of the feed-less sites, after those.
PAGE_STARTS: Final = (10 * DAY, 10 * DAY + 2 * HOUR, 11 * DAY + HOUR)

_POSTS: Final = ("First", "Second")
_OPEN: Final = "User-agent: *\nDisallow: /private/\n"
#: One file for us and others.
_RULES: Final = "User-agent: *\nDisallow: /\n\nUser-agent: Walsh-Research\nDisallow: /deep/\n"
_DELAYS: Final = "User-agent: *\nCrawl-delay: 12\nCrawl-delay: 3\n"
_PAGE: Final = "<!DOCTYPE html><title>Page</title><p>It has no feed.</p>"
_LINKS: Final = "# Site\n\n> Summary\n\n## Docs\n\n- [One](/one.md): first\n- [Two](/two.md)\n"

SOURCES: Final = (
    *(f"http://plain.example/{name}" for name in ("feed", "atom", "json")),
    *(f"http://blog.example/{name}" for name in ("feed", "comments")),
    "http://podcast.example/feed",
    *(f"http://steady.example/{name}" for name in ("strong", "weak", "modified", "bare")),
    *(f"http://rules.example/{name}" for name in ("feed", "deep/feed")),
    "http://night.example/feed",
    *(f"http://later.example/{name}" for name in ("feed", "other")),
    *(f"http://unchanged.example/{name}" for name in ("feed", "no")),
    *(f"http://broken.example/{name}" for name in ("feed", "no")),
    *(f"http://delay.example/{number}" for number in range(3)),
    *(f"http://rate.example/{number}" for number in range(3)),
    *(f"http://slow.example/{number}" for number in range(3)),
    *(f"http://ports.example{port}/{name}" for name in ("feed", "secret") for port in (
        "", ":8080"
    )),
    *(f"http://busy{number}.example/{name}" for number in range(3) for name in ("feed", "more")),
    *(f"http://tired{number}.example/{name}" for number in range(8) for name in ("feed", "more")),
    *(f"http://never{number}.example/feed" for number in range(3)),
    *(f"http://dated.example/{name}" for name in ("feed", "more")),
    *(f"http://restart.example/{name}" for name in ("feed", "more")),
    *(f"http://hops.example/{name}" for name in ("here", "there", "denied", "out", "private")),
    *(f"http://{name}.example/feed" for name in ("out", "www.out", "leaver", "gone", "page")),
)  # fmt: skip
PAGES: Final = tuple(
    {"url": f"http://{name}.example/", "kind": "llms"} for name in ("text", "markdown")
)


def sites() -> list[Site]:
    """Return all sites of this web."""
    return [*_operator(), *_feeds(), *_robots(), *_paced(), *_refusing(), *_hops(), *_feedless()]


def _feed(name: str, **reply: str | float) -> Reply:
    body = rss(name, _POSTS, f"http://{name}.example/")
    return Reply(body, content_type="application/rss+xml", **reply)  # type: ignore[arg-type]


def _site(name: str, robots: Page, *paths: str, **pages: Page) -> Site:
    """Return a site with a feed at each path, and with these pages."""
    feeds = {f"/{path}": _feed(name.partition(":")[0].partition(".")[0]) for path in paths}
    return Site(f"{name}.example", robots, feeds | {f"/{key}": pages[key] for key in pages})


def blocklist(hit: Hit) -> Page:
    """Return the list: one more domain from the third day on; on the fifth day it is broken."""
    domains = ["out.example"] + ["leaver.example"] * (hit.started > 2 * DAY)
    document = {
        "contract": "walsh-research-blocklist/v1",
        "updated": "2026-05-23T00:00:00Z",
        "refresh": "PT6H",
        "blocked": [{"domain": name, "added": "2026-05-23"} for name in domains],
    }
    body = json.dumps(document).encode()
    is_broken = 4 * DAY < hit.started < 5 * DAY
    return Reply(body[:-9] if is_broken else body, content_type="application/json")


def closing(hit: Hit) -> Page:
    """Return a robots.txt that denies a path from the fourth day on."""
    return "User-agent: *\nDisallow: /feed\n" if hit.started > 3 * DAY else _OPEN


def failing(hit: Hit) -> Page:
    """Return a robots.txt that cannot be read any more from the fourth day on."""
    failed = Reply("Internal error.\n", 500)
    return failed if hit.started > 3 * DAY else "User-agent: *\nDisallow: /no\n"


def until_date(hit: Hit) -> Page:
    """Return a refusal for half an hour, as a date."""
    asked = formatdate(hit.wall + HOUR / 2, usegmt=True)
    return Reply("Too many requests.\n", 429, headers={"Retry-After": asked})


def _operator() -> list[Site]:
    return [
        Site("operator.example", _OPEN, {"/blocklist.json": blocklist}),
        _site("out", _OPEN, "feed"),
        _site("www.out", _OPEN, "feed"),
        _site("leaver", _OPEN, "feed"),
    ]


def _feeds() -> list[Site]:
    post = Post("A post", "http://blog.example/post")
    answer = Post("Re: A post", "http://blog.example/post#comment-1", "?p=1#comment-1")
    link = "http://podcast.example"
    media = f'<enclosure url="{link}/1.mp3" length="9" type="audio/mpeg"/></item>'
    podcast = rss("Podcast", _POSTS, f"{link}/").replace("</item>", media)
    dated = "Thu, 01 Jan 2026 12:00:00 GMT"
    return [
        Site("plain.example", None, {
            "/feed": _feed("plain"),
            "/atom": Reply(atom("Atom", _POSTS, "http://plain.example/a/"),
                           content_type="application/atom+xml"),
            "/json": Reply(json_feed("JSON", _POSTS, "http://plain.example/j/"),
                           content_type="application/feed+json"),
        }),
        Site("blog.example", _OPEN, {
            "/feed": Reply(rss("Blog", [post], "http://blog.example/")),
            "/comments": Reply(rss("Comments", [answer], "http://blog.example/")),
            "/post": _PAGE,
        }),
        Site("podcast.example", _OPEN, {
            "/feed": Reply(podcast, content_type="application/rss+xml"), "/1.mp3": "audio",
            "/1": _PAGE, "/2": _PAGE, "/1.png": "image",
        }),
        _site("steady", _OPEN, strong=_feed("steady", etag='"v1"'),
              weak=_feed("steady", etag='W/"v1"'), modified=_feed("steady", last_modified=dated),
              bare=_feed("steady"), there=_feed("steady")),
        Site("gone.example", _OPEN, {"/feed": Reply("Gone.\n", 410)}),
        Site("page.example", _OPEN, {"/feed": Reply(_PAGE, content_type="text/html")}),
    ]  # fmt: skip


def _robots() -> list[Site]:
    kept = Reply("User-agent: *\nDisallow: /no\n", etag='"r1"')
    denying = "User-agent: *\nDisallow: /secret\n"
    return [
        _site("rules", _RULES, "feed", "deep/feed"),
        _site("night", "User-agent: *\nVisit-time: 0300-2300\n", "feed"),
        _site("later", closing, "feed", "other"),
        _site("unchanged", kept, "feed", "no"),
        _site("broken", failing, "feed", "no"),
        *(
            Site(f"ports.example:{port}", robots, {f"/{path}": _feed("ports") for path in (
                "feed", "secret"
            )})
            for port, robots in ((80, _OPEN), (8080, denying))
        ),
    ]  # fmt: skip


def _paced() -> list[Site]:
    numbers = [str(number) for number in range(3)]
    return [
        _site("delay", _DELAYS, *numbers),
        _site("rate", "User-agent: *\nRequest-rate: 1/7\n", *numbers),
        _site("slow", _OPEN, **{number: _feed("slow", delay=5.0) for number in numbers}),
    ]


def _refusing() -> list[Site]:
    hour = Reply("Too many requests.\n", 429, headers={"Retry-After": "3600"})
    later = Reply("Back in two days.\n", 503, headers={"Retry-After": "150000"})
    tired = Reply("Back soon.\n", 503)
    return [
        *(_site(f"busy{n}", _OPEN, "more", feed=[hour, _feed(f"busy{n}")]) for n in range(3)),
        *(_site(f"tired{n}", _OPEN, "more", feed=[*[tired] * 3, _feed("tired")]) for n in range(8)),
        *(_site(f"never{n}", _OPEN, feed=tired) for n in range(3)),
        _site("dated", _OPEN, "more", feed=[until_date, _feed("dated")]),
        _site("restart", _OPEN, "more", feed=[later, _feed("restart")]),
    ]


def _hops() -> list[Site]:
    here = redirect("/feed", 302)
    there = redirect("http://steady.example/there", 302)
    return [
        _site("hops", _OPEN, "feed", here=here, there=there,
              denied=redirect("http://rules.example/deep/feed", 302),
              out=redirect("http://www.out.example/feed", 302),
              private=redirect("http://10.1.2.3/feed", 302)),
        Site("10.1.2.3", _OPEN, {"/feed": _feed("intranet")}),
    ]  # fmt: skip


def _feedless() -> list[Site]:
    page = Reply(_PAGE, content_type="text/html; charset=utf-8")
    listed = Reply(_LINKS, content_type="text/markdown")
    text = {"/": page, "/llms.txt": Reply(_LINKS), "/llms-full.txt": Reply(_LINKS * 9)}
    return [
        Site("text.example", _OPEN, text),
        Site("markdown.example", _OPEN, {"/": listed, "/llms-full.txt": Reply(_LINKS * 9)}),
    ]
