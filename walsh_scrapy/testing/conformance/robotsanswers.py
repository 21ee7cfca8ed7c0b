"""R2: when robots.txt is asked for, and what its absence, failure or redirect means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.robotsrules import obeys
from walsh_scrapy.testing.conformance.scenario import (
    Level,
    Run,
    Scenario,
    failed,
    failed_by,
    feed,
    not_applicable,
    passed,
    robots,
    scenario,
)
from walsh_scrapy.testing.hit import DEFAULT_PORTS
from walsh_scrapy.testing.politeness import robots_cached, robots_first, robots_obeyed, spaced
from walsh_scrapy.testing.reply import Fault, Reply, redirect
from walsh_scrapy.testing.site import Certificate, Site

if TYPE_CHECKING:
    from walsh_scrapy.testing.conformance.scenario import Judgement, Seen, TrialLog
    from walsh_scrapy.testing.hit import Hit

_DENIES: Final = "User-agent: *\nDisallow: /no/\n"
_FEEDS: Final = {"/feed.xml": feed(), "/no/feed.xml": feed()}
_MOST_TRIES: Final = 10
_DAY: Final = 86_400.0


def _robots_first(evidence: TrialLog) -> Judgement:
    if fault := failed_by(robots_first, evidence.everything):
        return fault
    if not evidence.everything:
        return not_applicable("it asked for nothing")
    origins = {each.hit.origin for each in evidence.everything}
    return passed(f"robots.txt was the first request to each of {len(origins)} origins")


def _robots_kept(evidence: TrialLog) -> Judgement:
    files = _files(evidence)
    reason = "it asked for an answered robots.txt again within a day"
    if fault := failed_by(robots_cached, files, reason, robots_ttl=_DAY):
        return fault
    if not files or len(evidence.pages(Run.FIRST)) < 2:
        return not_applicable("it never asked for robots.txt and for two pages")
    return passed("robots.txt was asked for once", files)


def _not_before_answer(evidence: TrialLog) -> Judgement:
    if not _files(evidence):
        return not_applicable("it never asked for robots.txt")
    reason = "it asked for a page before the answer of robots.txt"
    if fault := failed_by(robots_first, evidence.seen(), reason):
        return fault
    return passed("no page was asked for before robots.txt was answered", evidence.seen())


def _tried_gently(evidence: TrialLog) -> Judgement:
    files = _files(evidence)
    if not files:
        return not_applicable("it never asked for robots.txt")
    if len(files) > _MOST_TRIES:
        return failed(f"it asked {len(files)} times for a robots.txt that fails", files)
    if fault := failed_by(spaced, files, "it asked again within a second"):
        return fault
    return passed(f"requests for robots.txt: {len(files)}, with pauses", evidence.seen())


def _obeys_new_copy(evidence: TrialLog) -> Judgement:
    files = _files(evidence, Run.FORCED)
    if not files:
        return not_applicable("it did not ask for robots.txt again")
    later = [each for each in evidence.pages(Run.FORCED) if each.at > files[0].at]
    reason = "it asked for what the new robots.txt denies"
    denied = [f"http://{_LATER.host}/"]
    if fault := failed_by(robots_obeyed, later, reason, files[:1], denied=denied):
        return fault
    return passed("the new robots.txt was obeyed", evidence.seen(Run.FORCED))


def _files(evidence: TrialLog, *runs: Run) -> list[Seen]:
    return [each for each in evidence.seen(*runs) if each.is_robots]


def _by_scheme(hit: Hit) -> Reply:
    return Reply(f"User-agent: *\nDisallow: /no-{hit.scheme}/\n")


def _origins(evidence: TrialLog) -> Judgement:
    asked = evidence.pages()
    denied = [f"{scheme}://{_BOTH.host}/no-{scheme}/" for scheme in DEFAULT_PORTS]
    reason = "it asked for what the robots.txt of that scheme denies"
    if fault := failed_by(robots_obeyed, evidence.seen(), reason, denied=denied):
        return fault
    if {each.hit.scheme for each in asked} != {"http", "https"}:
        return not_applicable("it did not reach the host over both http and https")
    return passed("each scheme has its own robots.txt", evidence.seen())


def _ports(evidence: TrialLog) -> Judgement:
    denied = [f"{_AT_80}/no-80/", f"{_AT_8080}/no-8080/"]
    reason = "it asked for what the robots.txt of that port denies"
    if fault := failed_by(robots_obeyed, evidence.seen(), reason, denied=denied):
        return fault
    if len({each.hit.port for each in evidence.pages()}) < 2:
        return not_applicable("it did not reach the host at both ports")
    return passed("each port has its own robots.txt", evidence.seen())


def _at_port(name: str, port: int) -> Site:
    pages = dict.fromkeys(("/no-80/a.xml", "/no-8080/a.xml"), feed())
    return Site(name, f"User-agent: *\nDisallow: /no-{port}/\n", pages)


_PORTS: Final = (_at_port("ports.example", 80), _at_port("ports.example:8080", 8080))
_AT_80, _AT_8080 = (f"http://{site.name}" for site in _PORTS)
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
_KEPT_THERE: Final = Site("robots-kept-there.example", _DENIES)
_TO_PATH: Final = Site("to-path.example", _DENIES, {**_FEEDS, "/old.xml": redirect("/no/feed.xml")})
_TO_HOST: Final = Site(
    "to-host.example", "", {"/old.xml": redirect("http://denying.example/feed.xml")}
)
_DENYING: Final = Site(
    "denying.example", robots("User-agent: *\nDisallow: /\n"), {"/feed.xml": feed()}
)
_FAILS: Final = Site("robots-fails.example", Reply("Broken.\n", 500), {"/feed.xml": feed()})

SCENARIOS: Final = (
    scenario(
        "R2", "robots-first", "The first request to a scheme, host and port is for its robots.txt",
        _robots_first, _MISSING,
    ),
    scenario(
        "R2", "robots-kept",
        "A robots.txt is asked for once for all pages of its host, and kept for a day",
        _robots_kept, _ONCE, runs=(Run.FIRST, Run.AGAIN, Run.FORCED), level=Level.SHOULD,
    ),
    Scenario(
        "robots-of-each-scheme", "R2", "http and https have a robots.txt each", _origins, (_BOTH,),
        tuple(f"{scheme}://{_BOTH.host}{path}" for scheme in DEFAULT_PORTS for path in _BOTH.pages),
    ),
    Scenario(
        "robots-of-each-port", "R2", "Two ports of a host have a robots.txt each", _ports, _PORTS,
        tuple(f"http://{site.name}{path}" for site in _PORTS for path in site.pages),
    ),
    scenario(
        "R2", "robots-hangs", "No page is asked for while robots.txt is not answered",
        _not_before_answer, _HANGS,
    ),
    scenario(
        "R2", "robots-fails",
        "A robots.txt that answers 500 is asked for again only after a pause, and not endlessly",
        _tried_gently, _FAILS,
    ),
    scenario(
        "R2", "robots-redirected",
        "A robots.txt is followed through redirects, and counts for the host that was asked",
        obeys(["/no/feed.xml"], ["/feed.xml"], _REDIRECTED.host),
        _REDIRECTED, _KEPT_THERE, paths=_FEEDS,
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
    scenario(
        "R2", "opt-out-later", "Whoever asks for robots.txt anew obeys what it says now",
        _obeys_new_copy, _LATER, runs=(Run.FIRST, Run.FORCED),
    ),
)  # fmt: skip
