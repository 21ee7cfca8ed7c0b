"""R6 to R9: the requested documents, repeated requests, and the form of a document.

No log of a server shows the parts of a document that a crawler keeps (R6), or whether it scrapes
HTML (R9). A run that comes at once shows R8; one that must request undue sources shows R7.
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
    everything,
    failed,
    failed_by,
    feed,
    kept,
    needs_pages,
    not_applicable,
    passed,
    scenario,
)
from walsh_scrapy.testing.feeds import rss
from walsh_scrapy.testing.politeness import in_scope, not_too_often, read_only, validators_echoed
from walsh_scrapy.testing.site import Reply, Site, redirect

if TYPE_CHECKING:
    from collections.abc import Callable

    from walsh_scrapy.testing.conformance.scenario import Conclusion
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
    """Return a check that fails if more than the pages of a site, or llms.txt, was requested."""
    given = {f"http://{site.host}{path}" for path in site.pages}

    def check(evidence: TrialLog) -> Conclusion:
        declared = {*given, f"http://{site.host}/llms.txt"}
        reason = "it requested other URLs than the given ones"
        if fault := failed_by(in_scope, evidence.seen(), reason, declared=declared):
            return fault
        requested = evidence.pages()
        if not {each.hit.url for each in requested} & given:
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


def _echoes(condition: str, validator: str) -> Callable[[TrialLog], Conclusion]:
    def check(evidence: TrialLog) -> Conclusion:
        served = [each for each in evidence.pages(Run.FIRST) if each.hit.complete]
        later = evidence.pages(Run.FORCED)
        if not served or not later:
            return not_applicable("it did not request the page in two runs")
        # Only the later request is checked, so the headers of the earlier one do not count.
        first = replace(served[-1], hit=replace(served[-1].hit, headers=()))
        lines = [first, later[0]]
        if fault := failed_by(validators_echoed, lines):
            return fault
        return passed(f"{condition} is the {validator} that was served", lines)

    return check


def _stays_home(evidence: TrialLog) -> Conclusion:
    """Check that no request of the trial has the validators of another URL.

    The host that the redirect leads to serves no validators, so it gets none at all.
    """
    served: dict[tuple[str, str], set[str]] = {}
    for each in evidence.everything:
        for field, condition in _VALIDATORS:
            sent, got = each.hit.header(condition), each.hit.answered(field)
            urls = served.get((field, sent), set()) if sent else set()
            is_invented = bool(sent) and each.hit.host == _NEW.host
            if is_invented or (urls and each.hit.url not in urls):
                return failed("it sent the validators of one URL to another", [each])
            if got:
                served.setdefault((field, got), set()).add(each.hit.url)
    moved = evidence.pages(Run.FORCED, host=_OLD.host)
    if not moved or not any(moved[0].hit.header(name) for name in _CONDITIONS):
        return not_applicable("it sent no validators to the page that now redirects")
    if not evidence.pages(Run.FORCED, host=_NEW.host):
        return not_applicable("it did not follow the redirect")
    return passed("the redirect was followed without validators", evidence.pages(Run.FORCED))


def _not_again(evidence: TrialLog) -> Conclusion:
    first, again = evidence.pages(Run.FIRST), evidence.pages(Run.AGAIN)
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
        each
        for each in requested
        if each.hit.path == "/llms.txt" or "text/markdown" in (each.hit.header("Accept") or "")
    ]
    if not better:
        return failed("it took HTML, and requested neither markdown nor /llms.txt", requested)
    return passed("it requested markdown or /llms.txt", better)


_DOCS: Final = Site("docs.example", "", {"/": _negotiated, "/llms.txt": Reply(_MARKDOWN)})

_AT_ONCE: Final = (Run.FIRST, Run.AGAIN)
_TWICE: Final = (Run.FIRST, Run.FORCED)


def _whole_scope(evidence: TrialLog) -> Conclusion:
    # The whole log, because a robots.txt may redirect to a page.
    reason = "it requested an undeclared URL"
    if fault := failed_by(in_scope, evidence.everything, reason, declared=evidence.declared):
        return fault
    requested = [each for each in evidence.everything if not each.is_robots]
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
        kept(
            read_only, "all requests are GET or HEAD", of=everything,
            needs=lambda evidence: "" if evidence.everything else "it requested nothing",
            why="it sent a method other than GET and HEAD",
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
        kept(
            not_too_often, "requested once", of=lambda evidence: evidence.pages(Run.FIRST),
            needs=needs_pages(1, "it never requested the page", Run.FIRST),
            why="it requested one URL twice, with different fragments", revisit=inf,
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
