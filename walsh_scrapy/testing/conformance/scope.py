"""R6: only what was declared. What a crawler keeps of it, no log of a server shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.scenario import Run, Scenario, failed, not_applicable, passed
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.reply import Reply
from walsh_scrapy.testing.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from walsh_scrapy.testing.conformance.scenario import Judgement, TrialLog

_HTML: Final = (
    '<!DOCTYPE html><title>Page</title><link rel="stylesheet" href="/style.css">'
    '<script src="/script.js"></script><img src="/image.png"><iframe src="/frame.html"></iframe>'
    '<a href="/linked.html">more</a> <a rel="next" href="/page2.html">next</a>'
)
_ENCLOSURE: Final = (
    '<rss version="2.0"><channel><title>Feed</title><link>http://parts.example/home.html</link>'
    "<image><url>/logo.png</url></image><item><title>One</title>"
    '<enclosure url="http://parts.example/sound.mp3" type="audio/mpeg" length="9"/></item>'
    "</channel></rss>"
)


def _nothing_but(*paths: str) -> Callable[[TrialLog], Judgement]:
    def judge(evidence: TrialLog) -> Judgement:
        asked = evidence.pages(Run.FIRST)
        if others := [each for each in asked if each.hit.path not in {*paths, "/llms.txt"}]:
            return failed("it asked for what it was not given", others)
        if not {each.hit.path for each in asked} & set(paths):
            return not_applicable("it never asked for the page that has links")
        return passed("it asked for nothing but what it was given", asked)

    return judge


def _read_only(evidence: TrialLog) -> Judgement:
    if others := [each for each in evidence.everything if each.hit.method not in {"GET", "HEAD"}]:
        return failed("it sent a method other than GET and HEAD", others)
    if not evidence.everything:
        return not_applicable("it asked for nothing")
    return passed(f"all {len(evidence.everything)} requests are GET or HEAD")


_LINKS: Final = Site(
    "links.example",
    "",
    {
        "/feed.xml": Reply(
            rss("Feed", ["One", "Two"], "http://links.example/"),
            content_type="application/rss+xml",
            headers={"Link": "</feed2.xml>; rel=next"},
        )
    },
)
_PARTS: Final = Site(
    "parts.example",
    "",
    {
        "/feed.xml": Reply(_ENCLOSURE, content_type="application/rss+xml"),
        "/page.html": Reply(_HTML, content_type="text/html; charset=utf-8"),
    },
)

SCENARIOS: Final = (
    Scenario(
        "no-links-followed",
        "R6",
        "The links of a feed are not followed",
        _nothing_but("/feed.xml"),
        (_LINKS,),
        ("http://links.example/feed.xml",),
    ),
    Scenario(
        "no-sub-resources",
        "R6",
        "Images, scripts, styles, frames, enclosures and links of a page are not asked for",
        _nothing_but("/feed.xml", "/page.html"),
        (_PARTS,),
        ("http://parts.example/feed.xml", "http://parts.example/page.html"),
    ),
    Scenario(
        "read-only",
        "R6",
        "Only GET and HEAD are sent",
        _read_only,
        (_LINKS,),
        ("http://links.example/feed.xml",),
    ),
)
