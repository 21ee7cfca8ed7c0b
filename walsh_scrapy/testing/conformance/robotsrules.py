"""Scenarios of R2: when robots.txt is requested, what happens if it fails, and how it is read.

The cases of parsing come from RFC 9309 2.2, from the examples of webcanon.robots, and from the
extended standard 2.0, which a crawler MAY support. Each case has a separate host, with a page that
is allowed: a crawler that never gets so far must not pass for one that obeys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from walsh_scrapy.testing.conformance.scenario import (
    HOPS,
    Level,
    Run,
    Scenario,
    TrialLog,
    Verdict,
    check_rule,
    everything,
    failed,
    failed_by,
    feed,
    not_applicable,
    passed,
    robots,
    scenario,
    second_hop,
    token_of,
)
from walsh_scrapy.testing.hit import DEFAULT_PORTS
from walsh_scrapy.testing.politeness import robots_cached, robots_first, robots_obeyed, spaced
from walsh_scrapy.testing.site import Certificate, Fault, Reply, Site, redirect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from walsh_scrapy.testing.conformance.scenario import Conclusion, Seen
    from walsh_scrapy.testing.hit import Hit


def obeys(
    denied: Sequence[str], allowed: Sequence[str], host: str | None = None
) -> Callable[[TrialLog], Conclusion]:
    """Return a check that fails if a denied path was requested, at one host or at all hosts."""

    def check(evidence: TrialLog) -> Conclusion:
        requests = evidence.seen(host=host)
        hosts = [host] if host else evidence.hosts
        names = [f"{scheme}://{name}" for scheme in DEFAULT_PORTS for name in hosts]
        urls = [f"{name}{path}$" for name in names for path in denied]
        files = [request for request in requests if request.is_robots]
        reason = "it requested a URL that robots.txt denies"
        if fault := failed_by(robots_obeyed, requests, reason, files[:1], denied=urls):
            return fault
        if not files:
            return not_applicable("it never requested robots.txt")
        requested = {unquote(request.hit.path) for request in requests}
        if missing := [path for path in allowed if unquote(path) not in requested]:
            return not_applicable(f"it never requested {missing[0]}, which is allowed")
        requested_paths = f"requested {', '.join(allowed)}, " if allowed else ""
        return passed(f"{requested_paths}not for {', '.join(denied)}", requests)

    return check


_MANY_LINES: Final = "".join(f"Disallow: /{number:06}/\n" for number in range(15_000))


#: Longer than what some parsers read of a line.
_LONG: Final = "long" * 400


def _case(
    name: str,
    requirement: str,
    text: str,
    denied: Sequence[str] = ("/no/feed.xml",),
    allowed: Sequence[str] = ("/feed.xml",),
    level: Level = Level.MUST,
    *,
    content_type: str = "text/plain",
    end: str = "\n",
) -> Scenario:
    """Return the scenario of a robots.txt with this text, and of feeds at all these paths.

    `content_type` and `end` are passed to `robots`.
    """
    paths = (*allowed, *denied)
    pages = {path.partition("?")[0]: feed() for path in paths}
    site = Site(f"{name}.example", robots(text, content_type=content_type, end=end), pages)
    return scenario("R2", name, requirement, obeys(denied, allowed), site, paths=paths, level=level)


_DENIES: Final = "User-agent: *\nDisallow: /no/\n"
_FEEDS: Final = {"/feed.xml": feed(), "/no/feed.xml": feed()}
_MAX_TRIES: Final = 10
#: The number of redirects that a crawler should follow at least (RFC 9309 2.3.1.2).
_REDIRECTS: Final = 5
_DAY: Final = 86_400.0


def _needs_robots_and_two_pages(evidence: TrialLog) -> str:
    if _files(evidence) and len(evidence.pages(Run.FIRST)) > 1:
        return ""
    return "it never requested robots.txt and two pages"


def _needs_robots(evidence: TrialLog) -> str:
    return "" if _files(evidence) else "it never requested robots.txt"


def _tried_gently(evidence: TrialLog) -> Conclusion:
    files = _files(evidence)
    if not files:
        return not_applicable("it never requested robots.txt")
    if len(files) > _MAX_TRIES:
        return failed(f"it requested a failing robots.txt {len(files)} times", files)
    if fault := failed_by(spaced, files, "it requested it again within a second"):
        return fault
    return passed(f"requests for robots.txt: {len(files)}, with gaps", evidence.seen())


def _sends_nothing_without(evidence: TrialLog) -> Conclusion:
    """Check that no page is requested while robots.txt is unreachable (RFC 9309 2.3.1.4)."""
    files = _files(evidence)
    pages = evidence.pages()
    if not files:
        return not_applicable("it never requested robots.txt")
    if pages and all(_may_go_on(page.hit) for page in pages):
        return not_applicable("Walsh-Research may crawl on without a robots.txt")
    if pages:
        reason = "it requested a page although robots.txt was unreachable"
        return failed(reason, [*files[:1], *pages])
    return passed("no page was requested while robots.txt was unreachable", files)


def _may_go_on(hit: Hit) -> bool:
    """Return True for Walsh-Research, whose contract allows an unreachable robots.txt."""
    token = token_of(hit.header("User-Agent") or "") or ""
    return token.lower() == "walsh-research"


def _unreachable(name: str, answer: str, site: Site) -> Scenario:
    """Return the scenario of a host whose robots.txt is unreachable.

    It is a SHOULD: RFC 9309 forbids to crawl on, but the contract of Walsh-Research allows it.
    """
    requirement = f"Where robots.txt {answer}, a crawler that follows RFC 9309 requests no page"
    return scenario("R2", name, requirement, _sends_nothing_without, site, level=Level.SHOULD)


def _obeys_new_copy(evidence: TrialLog) -> Conclusion:
    files = _files(evidence, Run.FORCED)
    if not files:
        return not_applicable("it did not request robots.txt again")
    later = [page for page in evidence.pages(Run.FORCED) if page.at > files[0].at]
    reason = "it requested a URL that the new robots.txt denies"
    denied = [f"http://{_LATER.host}/"]
    if fault := failed_by(robots_obeyed, later, reason, files[:1], denied=denied):
        return fault
    return passed("the new robots.txt was obeyed", evidence.seen(Run.FORCED))


def _files(evidence: TrialLog, *runs: Run) -> list[Seen]:
    return [request for request in evidence.seen(*runs) if request.is_robots]


def _got_files(evidence: TrialLog) -> list[Seen]:
    # A HEAD before a GET asks whether the file has changed, and reads nothing.
    return [file for file in _files(evidence) if file.hit.method == "GET"]


def _unpacked(evidence: TrialLog) -> Conclusion:
    conclusion = obeys(["/no/feed.xml"], ["/feed.xml"])(evidence)
    packed = [file for file in _files(evidence) if file.hit.answered("Content-Encoding")]
    if conclusion.verdict is Verdict.PASS and not packed:
        return not_applicable("it accepts no compressed robots.txt")
    return conclusion


def _by_scheme(hit: Hit) -> Reply:
    return Reply(f"User-agent: *\nDisallow: /no-{hit.scheme}/\n")


def _at_port(name: str, port: int) -> Site:
    pages = {"/no-80/a.xml": feed(), "/no-8080/a.xml": feed()}
    return Site(name, f"User-agent: *\nDisallow: /no-{port}/\n", pages)


_PORTS: Final = (_at_port("ports.example", 80), _at_port("ports.example:8080", 8080))
_AT_80, _AT_8080 = (f"http://{site.name}" for site in _PORTS)
_PAGES: Final = Site(
    "denied-page.example",
    "User-agent: *\nDisallow: /private/\n",
    {path: Reply("# A page\n", content_type="text/markdown") for path in ("/open/", "/private/")},
)
_LATER: Final = Site("later.example", ["", "User-agent: *\nDisallow: /\n"], {"/feed.xml": feed()})
_BOTH: Final = Site(
    "origins.example",
    _by_scheme,
    {"/no-http/a.xml": feed(), "/no-https/a.xml": feed()},
    tls=Certificate.GOOD,
)
_MISSING: Final = Site("no-robots.example", None, {"/feed.xml": feed()})
_ONCE: Final = Site("once.example", "", {"/a.xml": feed(), "/b.xml": feed()})
_HANGS: Final = Site(
    "robots-hangs.example",
    [Reply(delay=4.0, fault=Fault.CLOSE), Reply(fault=Fault.CLOSE)],
    {"/feed.xml": feed()},
)

_REDIRECTED: Final = Site(
    "robots-redirected.example",
    redirect("/first-robots.txt"),
    {**_FEEDS, "/first-robots.txt": redirect("http://robots-kept-there.example/robots.txt")},
)
_FAR: Final = Site(
    "robots-far.example",
    redirect("/1"),
    {
        **_FEEDS,
        **{f"/{number}": redirect(f"/{number + 1}") for number in range(1, _REDIRECTS)},
        f"/{_REDIRECTS}": robots(_DENIES),
    },
)
_KEPT_THERE: Final = Site("robots-kept-there.example", _DENIES)
_TO_PATH: Final = Site("to-path.example", _DENIES, {**_FEEDS, "/old.xml": redirect("/no/feed.xml")})
_TO_HOST: Final = Site(
    "to-host.example", "", {"/old.xml": redirect("http://denying.example/feed.xml")}
)
_DENYING: Final = Site(
    "denying.example", robots("User-agent: *\nDisallow: /\n"), {"/feed.xml": feed()}
)
_FAILS: Final = Site("robots-fails.example", Reply("Broken.\n", 500), {"/feed.xml": feed()})
_RESETS: Final = Site("robots-resets.example", Reply(fault=Fault.RESET), {"/feed.xml": feed()})


def _denied_at_hop(kind: str) -> Scenario:
    """Return the scenario of two redirects, of which robots.txt denies the second target."""
    origin, sites = second_hop("denied-hop", kind, _DENIES, "/no/feed.xml")
    return scenario(
        "R2", f"second-hop-{kind}",
        f"The second hop of a redirect, to another {kind}, must be allowed by the robots.txt there",
        check_rule(
            robots_obeyed, "the second hop was not followed", requests=TrialLog.seen,
            missing=lambda evidence: (
                "" if any(page.hit.path == "/2" for page in evidence.pages())
                else "it never followed the first redirect"
            ),
            fail_reason="it followed a redirect to a URL that robots.txt denies",
            proof=TrialLog.seen, denied=[f"{origin}/no/"],
        ),
        *sites, paths=["/1"],
    )  # fmt: skip


SCENARIOS: Final = (
    scenario(
        "R2", "robots-first", "The first request to a scheme, host and port is for its robots.txt",
        check_rule(
            robots_first, "robots.txt was the first request to each origin", requests=everything,
            missing=lambda evidence: "" if evidence.everything else "it requested nothing",
        ),
        _MISSING,
    ),
    scenario(
        "R2", "robots-kept",
        "A robots.txt is requested once for all pages of its host, and kept for a day",
        check_rule(
            robots_cached, "robots.txt was requested once", requests=_got_files,
            missing=_needs_robots_and_two_pages,
            fail_reason="it requested an answered robots.txt again within a day", proof=_files,
            robots_ttl=_DAY,
        ),
        _ONCE, runs=(Run.FIRST, Run.AGAIN, Run.FORCED), level=Level.SHOULD,
    ),
    Scenario(
        "robots-of-each-scheme", "R2", "http and https have a robots.txt each",
        check_rule(
            robots_obeyed, "it obeyed the robots.txt of each scheme", requests=TrialLog.seen,
            missing=lambda evidence: (
                "" if {page.hit.scheme for page in evidence.pages()} == {*DEFAULT_PORTS}
                else "it did not reach the host over both http and https"
            ),
            fail_reason="it requested a URL that the robots.txt of that scheme denies",
            proof=TrialLog.seen,
            denied=[f"{scheme}://{_BOTH.host}/no-{scheme}/" for scheme in DEFAULT_PORTS],
        ),
        (_BOTH,),
        tuple(f"{scheme}://{_BOTH.host}{path}" for scheme in DEFAULT_PORTS for path in _BOTH.pages),
    ),
    Scenario(
        "robots-of-each-port", "R2", "Two ports of a host have a robots.txt each",
        check_rule(
            robots_obeyed, "it obeyed the robots.txt of each port", requests=TrialLog.seen,
            missing=lambda evidence: (
                "" if len({page.hit.port for page in evidence.pages()}) > 1
                else "it did not reach the host at both ports"
            ),
            fail_reason="it requested a URL that the robots.txt of that port denies",
            proof=TrialLog.seen, denied=[f"{_AT_80}/no-80/", f"{_AT_8080}/no-8080/"],
        ),
        _PORTS,
        tuple(f"http://{site.name}{path}" for site in _PORTS for path in site.pages),
    ),
    scenario(
        "R2", "robots-hangs", "No page is requested while robots.txt is not answered",
        check_rule(
            robots_first, "no page was requested before robots.txt was answered",
            requests=TrialLog.seen, missing=_needs_robots, proof=TrialLog.seen,
            fail_reason="it requested a page before robots.txt was answered",
        ),
        _HANGS,
    ),
    scenario(
        "R2", "robots-fails",
        "A robots.txt that answers 500 is requested again only after a delay, and not endlessly",
        _tried_gently, _FAILS,
    ),
    _unreachable("robots-error", "answers 500", _FAILS),
    _unreachable("robots-reset", "breaks the connection", _RESETS),
    _unreachable("robots-silent", "gets no answer", _HANGS),
    scenario(
        "R2", "robots-redirected",
        "Redirects of robots.txt are followed, and its rules apply to the requested host",
        obeys(["/no/feed.xml"], ["/feed.xml"], _REDIRECTED.host),
        _REDIRECTED, _KEPT_THERE, paths=_FEEDS,
    ),
    scenario(
        "R2", "robots-far", "Five redirects of robots.txt are followed",
        obeys(["/no/feed.xml"], ["/feed.xml"]), _FAR, paths=_FEEDS, level=Level.SHOULD,
    ),
    scenario(
        "R2", "robots-compressed", "A compressed robots.txt is unpacked",
        _unpacked, Site("robots-compressed.example", robots(_DENIES, gzip=True), _FEEDS),
    ),
    Scenario(
        "page-denied", "R2", "No page of a site without a feed is requested that robots.txt denies",
        obeys(["/private/"], ["/open/"]), (_PAGES,),
        pages=tuple(f"http://{_PAGES.host}{path}" for path in _PAGES.pages),
    ),
    scenario(
        "R2", "redirect-to-denied-path", "A redirect is followed only where robots.txt allows it",
        obeys(["/no/feed.xml"], ["/old.xml"]), _TO_PATH, paths=["/old.xml"],
    ),
    scenario(
        "R2", "redirect-to-denying-host",
        "A redirect to another host is followed only if the robots.txt of that host allows it",
        obeys(["/feed.xml"], ["/old.xml"]), _TO_HOST, _DENYING,
    ),
    *(_denied_at_hop(kind) for kind in HOPS),
    scenario(
        "R2", "opt-out-later", "A crawler that requests robots.txt again obeys its new rules",
        _obeys_new_copy, _LATER, runs=(Run.FIRST, Run.FORCED),
    ),
    _case(
        "disallow", "A Disallow applies to all paths that begin with it",
        "User-agent: *\nDisallow: /private\n",
        ["/private/a.xml", "/private.xml"], ["/public/a.xml"],
    ),
    _case(
        "longest-match", "The longest matching rule decides, in any order; Allow wins a tie",
        "User-agent: *\nAllow: /\nDisallow: /docs\nAllow: /docs/public\n"
        "Disallow: /docs/public/no\n",
        ["/docs/secret.xml", "/docs/public/no.xml"], ["/docs/public/a.xml"],
    ),
    _case(
        "end-of-path", "`$` is the end of path and query",
        "User-agent: *\nDisallow: /*.pdf$\n", ["/file.pdf"], ["/file.pdf?x=1"],
    ),
    _case(
        "wildcard", "`*` is any run of characters, even in the query",
        "User-agent: *\nDisallow: /*/internal/\nDisallow: /*?*session=\n",
        ["/a/internal/feed.xml", "/feed.xml?session=1"],
    ),
    _case(
        "wildcard-over-segments", "`*` crosses `/`, before `$` too",
        "User-agent: *\nDisallow: /a/*/z.xml\nDisallow: /*.json$\n",
        ["/a/b/c/z.xml", "/x/y/feed.json"], ["/feed.xml", "/a/z.xml", "/x/y/feed.json?x=1"],
    ),
    _case(
        "end-without-wildcard", "`$` is the end of a path without `*` too",
        "User-agent: *\nDisallow: /only.xml$\n", ["/only.xml"], ["/only.xml?x=1"],
    ),
    _case(
        "literal-query", "A rule with a query applies to URLs that begin with it",
        "User-agent: *\nDisallow: /feed.xml?view=all\n",
        ["/feed.xml?view=all", "/feed.xml?view=all&page=2"], ["/feed.xml?view=one"],
    ),
    _case(
        "empty-line", "An empty line does not end a group",
        "User-agent: *\n\nDisallow: /no/\n\nDisallow: /never/\n",
        ["/no/feed.xml", "/never/feed.xml"],
    ),
    _case(
        "named-group-denies", "A group that names the crawler overrides `*`, where it denies",
        "User-agent: *\nAllow: /\n\nUser-agent: {token}\nDisallow: /not-you/\n",
        ["/not-you/feed.xml"],
    ),
    _case(
        "named-group-exempts", "A group that names the crawler overrides `*`, where it allows",
        "User-agent: {token}\nDisallow: /not-you/\n\nUser-agent: *\nDisallow: /\n",
        ["/not-you/feed.xml"],
    ),
    _case(
        "other-group",
        "A group for another crawler is ignored, although its name begins alike",
        "User-agent: {token}-Other\nAllow: /\n\nUser-agent: *\nDisallow: /no/\n",
    ),
    _case(
        "groups-merged", "All groups that name the crawler are merged",
        "User-agent: {token}\nDisallow: /a/\n\nUser-agent: *\nAllow: /\n\n"
        "User-agent: {token}\nDisallow: /b/\n",
        ["/a/feed.xml", "/b/feed.xml"],
    ),
    _case(
        "group-of-several",
        "User-agent lines share the rules that follow, also with another line in between",
        "User-agent: {token}\nSitemap: http://group-of-several.example/map.xml\n"
        "User-agent: other\nDisallow: /no/\n",
    ),
    _case(
        "case", "Field names and product tokens are case-insensitive; paths are not",
        "USER-AGENT: {TOKEN}\ndisALLOW: /Secret\n", ["/Secret.xml"], ["/secret.xml"],
    ),
    _case(
        "percent-encoding", "Percent-encoded and plain characters of a path are equivalent",
        "User-agent: *\nDisallow: /%7Ejoe/\nDisallow: /caf\u00e9/\n",
        ["/~joe/feed.xml", "/caf%C3%A9/feed.xml"],
    ),
    _case(
        "byte-order-mark", "A byte order mark before the first line is ignored",
        "\ufeffUser-agent: *\nDisallow: /no/\n",
    ),
    _case(
        "line-ends", "A carriage return alone ends a line",
        "User-agent: *\nDisallow: /no/\n", end="\r",
    ),
    _case(
        "spaces-and-comments", "Spaces around names and values, and comments, are ignored",
        "# ours\n  User-agent :  * # all\n\n\tDisallow :\t/no/ # never\n",
    ),
    _case(
        "media-type", "A robots.txt is obeyed whatever its media type",
        "User-agent: *\nDisallow: /no/\n", content_type="text/html",
    ),
    _case(
        "late-line", "At least the first 500 KiB are read",
        f"User-agent: *\n{_MANY_LINES}Disallow: /no/\n",
    ),
    _case(
        "long-lines", "A long line is read to its end, and so are the lines after it",
        f"# {'-' * 9000}\nUser-agent: *\nDisallow: /{_LONG}/no/\nDisallow: /no/\n",
        [f"/{_LONG}/no/feed.xml", "/no/feed.xml"], ["/feed.xml", f"/{_LONG}/feed.xml"],
    ),
    _case(
        "visit-time", "Extended standard 2.0: outside of Visit-time nothing is requested",
        "User-agent: {token}\nVisit-time: {closed}\n\nUser-agent: *\nVisit-time: {closed}\n",
        ["/feed.xml"], (), Level.MAY,
    ),
    _case(
        "version-2",
        "Extended standard 2.0: in a group of version 2 the first rule that matches decides",
        "User-agent: *\nRobot-version: 2.0\nDisallow: *.cgi\nAllow: /feeds/a.cgi\n",
        ["/feeds/a.cgi"], level=Level.MAY,
    ),
)  # fmt: skip
