"""Scenarios of R6 to R9: scope, conditional requests, frequency, and sites without a feed.

A server's log does not show which parts of a document a crawler keeps (R6), or whether it scrapes
HTML (R9). R8 is tested by a second run that follows at once, R7 by a run that must request
everything again although nothing is due.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.scenario import (
    Level,
    Run,
    Scenario,
    TrialLog,
    check_rule,
    everything,
    failed,
    failed_by,
    feed,
    lacks_pages,
    not_applicable,
    passed,
    scenario,
)
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.politeness import in_scope, not_too_often, read_only, validators_echoed
from walsh_scrapy.testing.site import Reply, Site, redirect

if TYPE_CHECKING:
    from collections.abc import Callable

    from walsh_scrapy.testing.conformance.scenario import Conclusion, Seen
    from walsh_scrapy.testing.hit import Hit

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

_ATOM: Final = (
    '<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="/style.xsl"?>'
    '<feed xmlns="http://www.w3.org/2005/Atom"><title>Feed</title><id>tag:atom.example,2026:1</id>'
    "<updated>2026-01-01T00:00:00Z</updated><icon>/icon.png</icon><logo>/logo.png</logo>"
    '<link rel="next" href="/page2.xml"/><link rel="alternate" href="/home.html"/>'
    "<entry><title>One</title><id>tag:atom.example,2026:2</id>"
    "<updated>2026-01-01T00:00:00Z</updated>"
    '<link rel="enclosure" href="/sound.mp3"/><content type="text/html" src="/one.html"/></entry>'
    "</feed>"
)


def _nothing_but(site: Site) -> Callable[[TrialLog], Conclusion]:
    """Return a check that only the pages of a site, and llms.txt, were requested."""
    given_urls = {f"http://{site.host}{path}" for path in site.pages}

    def check(evidence: TrialLog) -> Conclusion:
        declared = {*given_urls, f"http://{site.host}/llms.txt"}
        reason = "it requested other URLs than the given ones"
        if fault := failed_by(in_scope, evidence.seen(), reason, declared=declared):
            return fault
        requested = evidence.pages()
        if not {page.hit.url for page in requested} & given_urls:
            return not_applicable("it never requested the page that has links")
        return passed("it requested only the given URLs", requested)

    return check


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
_ATOM_PARTS: Final = Site(
    "atom-parts.example", "", {"/feed.xml": Reply(_ATOM, content_type="application/atom+xml")}
)


_ETAG: Final = 'W/"a,b"'
_MODIFIED: Final = "Thu, 01 Jan 2026 12:00:00 GMT"
_VALIDATORS: Final = (("ETag", "If-None-Match"), ("Last-Modified", "If-Modified-Since"))
_CONDITIONS: Final = tuple(condition for _, condition in _VALIDATORS)


def _reads(evidence: TrialLog, run: Run) -> list[Seen]:
    # A HEAD before a GET may ask for the validators, so it sends none.
    return [page for page in evidence.pages(run) if page.hit.method == "GET"]


def _echoes(condition: str, validator: str) -> Callable[[TrialLog], Conclusion]:
    def check(evidence: TrialLog) -> Conclusion:
        served = [page for page in _reads(evidence, Run.FIRST) if page.hit.complete]
        later = _reads(evidence, Run.FORCED)
        if not served or not later:
            return not_applicable("it did not request the page in two runs")
        # Without the headers of the first request, because only the later one is checked.
        first = replace(served[-1], hit=replace(served[-1].hit, headers=()))
        lines = [first, later[0]]
        if fault := failed_by(validators_echoed, lines):
            return fault
        return passed(f"{condition} is the {validator} that was served", lines)

    return check


def _stays_home(evidence: TrialLog) -> Conclusion:
    """Check that no request of the trial sends the validators of another URL.

    The target of the redirect serves no validators, so it must get none at all.
    """
    served: dict[tuple[str, str], set[str]] = {}
    for request in evidence.everything:
        for field, condition in _VALIDATORS:
            sent = request.hit.header(condition)
            got = request.hit.answered(field)
            urls = served.get((field, sent), set()) if sent else set()
            is_invented = bool(sent) and request.hit.host == _NEW.host
            if is_invented or (urls and request.hit.url not in urls):
                return failed("it sent the validators of one URL to another", [request])
            if got:
                served.setdefault((field, got), set()).add(request.hit.url)
    moved = evidence.pages(Run.FORCED, host=_OLD.host)
    if not moved or not any(moved[0].hit.header(name) for name in _CONDITIONS):
        return not_applicable("it sent no validators to the page that now redirects")
    if not evidence.pages(Run.FORCED, host=_NEW.host):
        return not_applicable("it did not follow the redirect")
    return passed("the redirect was followed without validators", evidence.pages(Run.FORCED))


def _not_again(evidence: TrialLog) -> Conclusion:
    first = evidence.pages(Run.FIRST)
    again = evidence.pages(Run.AGAIN)
    if not first:
        return not_applicable("it never requested the page")
    if fault := failed_by(not_too_often, [first[-1], *again], revisit=inf):
        return fault
    return passed("it did not request it again at once", first)


_DAILY: Final = Site(
    "daily.example",
    "",
    {"/feed.xml": Reply(feed().body, headers={"Cache-Control": "max-age=86400"})},
)
_TAGGED: Final = Site("etag.example", "", {"/feed.xml": feed(etag=_ETAG)})
_DATED: Final = Site("last-modified.example", "", {"/feed.xml": feed(modified=_MODIFIED)})
_GONE: Final = Site("gone.example", "", {"/feed.xml": Reply("Gone.\n", 410)})
_SAME: Final = Site("same.example", "", {"/feed.xml": feed()})
_OLD: Final = Site(
    "old-home.example",
    "",
    {"/feed.xml": [feed(etag='"home"'), redirect("http://new-home.example/feed.xml", 302)]},
)
_NEW: Final = Site("new-home.example", "", {"/feed.xml": feed()})


_MARKDOWN: Final = "# Docs\n\n- [One](http://docs.example/one.md): the first\n"


def _negotiated(hit: Hit) -> Reply:
    if "text/markdown" in (hit.header("Accept") or ""):
        return Reply(_MARKDOWN, content_type="text/markdown; charset=utf-8")
    return Reply("<!DOCTYPE html><title>Docs</title>", content_type="text/html")


def _structured(evidence: TrialLog) -> Conclusion:
    requested = evidence.pages()
    if not requested:
        return not_applicable("it was given no feed-less page, or did not request it")
    better = [
        page
        for page in requested
        if page.hit.path == "/llms.txt" or "text/markdown" in (page.hit.header("Accept") or "")
    ]
    if not better:
        return failed("it requested HTML, and neither markdown nor /llms.txt", requested)
    return passed("it requested markdown or /llms.txt", better)


_DOCS: Final = Site("docs.example", "", {"/": _negotiated, "/llms.txt": Reply(_MARKDOWN)})

_AT_ONCE: Final = (Run.FIRST, Run.AGAIN)
_TWICE: Final = (Run.FIRST, Run.FORCED)


def _whole_scope(evidence: TrialLog) -> Conclusion:
    # All requests of the log, because a robots.txt may redirect to a page.
    reason = "it requested an undeclared URL"
    if fault := failed_by(in_scope, evidence.everything, reason, declared=evidence.declared):
        return fault
    requested = [request for request in evidence.everything if not request.is_robots]
    if not requested:
        return not_applicable("it requested only robots.txt")
    return passed(f"all {len(requested)} pages were given, or a redirect led there")


SCENARIOS: Final = (
    scenario(
        "R6", "no-links-followed", "The links of a feed are not followed",
        _nothing_but(_LINKS), _LINKS,
    ),
    scenario(
        "R6", "no-sub-resources",
        "Images, scripts, styles, frames, enclosures and links of a page are not requested",
        _nothing_but(_PARTS), _PARTS,
    ),
    scenario(
        "R6", "no-parts-of-atom",
        "Icon, logo, stylesheet, next page and contents of an Atom feed are not requested",
        _nothing_but(_ATOM_PARTS), _ATOM_PARTS,
    ),
    scenario(
        "R6", "nothing-undeclared",
        "In the whole trial only given URLs, their redirects and /llms.txt are requested",
        _whole_scope, _LINKS,
    ),
    scenario(
        "R6", "read-only", "Only GET and HEAD are sent",
        check_rule(
            read_only, "all requests are GET or HEAD", requests=everything,
            missing=lambda evidence: "" if evidence.everything else "it requested nothing",
            fail_reason="it sent a method other than GET and HEAD",
        ),
        _LINKS,
    ),
    scenario(
        "R7", "etag", "The ETag is sent back as If-None-Match, byte for byte",
        _echoes("If-None-Match", "ETag"), _TAGGED, runs=_TWICE, level=Level.SHOULD,
    ),
    scenario(
        "R7", "last-modified", "Last-Modified is sent back as If-Modified-Since",
        _echoes("If-Modified-Since", "Last-Modified"), _DATED, runs=_TWICE, level=Level.SHOULD,
    ),
    scenario(
        "R7", "validators-stay", "Validators of one URL are never sent to another",
        _stays_home, _OLD, _NEW, runs=_TWICE,
    ),
    scenario(
        "R7", "same-url-once", "URLs that differ in their fragment only are requested once",
        check_rule(
            not_too_often, "requested once", requests=lambda evidence: _reads(evidence, Run.FIRST),
            missing=lacks_pages(1, "it never requested the page", Run.FIRST),
            fail_reason="it requested one URL twice, with different fragments", revisit=inf,
        ),
        _SAME, paths=["/feed.xml", "/feed.xml#top"], level=Level.SHOULD,
    ),
    scenario(
        "R8", "not-again-at-once", "A source is requested once per day, or less often",
        _not_again, _DAILY, runs=_AT_ONCE, level=Level.SHOULD,
    ),
    scenario(
        "R8", "gone", "A source that is gone (410) is not requested again at once",
        _not_again, _GONE, runs=_AT_ONCE, level=Level.SHOULD,
    ),
    Scenario(
        "structured-form", "R9", "Markdown or /llms.txt of a site without a feed is requested",
        _structured, (_DOCS,), pages=("http://docs.example/",), level=Level.SHOULD,
    ),
)  # fmt: skip
