"""R6: only what was declared. What a crawler keeps of it, no log of a server shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.scenario import (
    Run,
    failed_by,
    not_applicable,
    passed,
    scenario,
)
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.politeness import in_scope, read_only
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


def _nothing_but(site: Site) -> Callable[[TrialLog], Judgement]:
    """Return a judge that fails if anything but the pages of a site, or llms.txt, was asked for."""
    given = {f"http://{site.host}{path}" for path in site.pages}

    def judge(evidence: TrialLog) -> Judgement:
        declared = {*given, f"http://{site.host}/llms.txt"}
        reason = "it asked for what it was not given"
        if fault := failed_by(in_scope, evidence.seen(Run.FIRST), reason, declared=declared):
            return fault
        asked = evidence.pages(Run.FIRST)
        if not {each.hit.url for each in asked} & given:
            return not_applicable("it never asked for the page that has links")
        return passed("it asked for nothing but what it was given", asked)

    return judge


def _nothing_undeclared(evidence: TrialLog) -> Judgement:
    asked = [each for each in evidence.everything if not each.is_robots]
    reason = "it asked for what nobody declared"
    # The whole log, because a robots.txt may redirect to a page.
    if fault := failed_by(in_scope, evidence.everything, reason, declared=evidence.declared):
        return fault
    if not asked:
        return not_applicable("it asked for nothing but robots.txt")
    return passed(f"all {len(asked)} pages were given, or a redirect led there")


def _read_only(evidence: TrialLog) -> Judgement:
    reason = "it sent a method other than GET and HEAD"
    if fault := failed_by(read_only, evidence.everything, reason):
        return fault
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
    scenario(
        "R6", "no-links-followed", "The links of a feed are not followed",
        _nothing_but(_LINKS), _LINKS,
    ),
    scenario(
        "R6", "no-sub-resources",
        "Images, scripts, styles, frames, enclosures and links of a page are not asked for",
        _nothing_but(_PARTS), _PARTS,
    ),
    scenario(
        "R6", "nothing-undeclared",
        "In the whole trial only what was given is asked for, its redirects and /llms.txt",
        _nothing_undeclared, _LINKS,
    ),
    scenario("R6", "read-only", "Only GET and HEAD are sent", _read_only, _LINKS),
)  # fmt: skip
