"""R4: how fast. One request at a time, at most one a second to a host, Crawl-delay.

Pauses are measured from the start of one request to the start of the next, as the contract has it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.scenario import (
    Level,
    Run,
    failed,
    failed_by,
    feed,
    not_applicable,
    passed,
    robots,
    scenario,
)
from walsh_scrapy.testing.politeness import one_at_a_time, one_connection, spaced
from walsh_scrapy.testing.reply import Reply, redirect
from walsh_scrapy.testing.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from walsh_scrapy.testing.conformance.scenario import Judgement, TrialLog


def _spaced(seconds: float, at_least: int = 2) -> Callable[[TrialLog], Judgement]:
    """Return a judge of the pauses at the first host; before a page they are `seconds`.

    A crawler cannot know a Crawl-delay before it has read it, so a robots.txt comes after 1 s.
    """

    def judge(evidence: TrialLog) -> Judgement:
        seen = evidence.seen(Run.FIRST)
        if len(seen) < at_least:
            return not_applicable(f"it made {len(seen)} of {at_least} requests that are needed")
        delays = dict.fromkeys(evidence.hosts, seconds)
        if fault := failed_by(spaced, seen, crawl_delays=delays):
            return fault
        if seconds > 1 and not any(each.is_robots for each in seen):
            return not_applicable("it never asked for robots.txt, and was slow by itself")
        least = min(b.hit.started - a.hit.started for a, b in pairwise(seen))
        return passed(f"at least {least:.3f} s between requests", seen)

    return judge


def _one_at_a_time(evidence: TrialLog) -> Judgement:
    seen = evidence.seen(Run.FIRST)
    reason = "a request began before the last one to this host had ended"
    if fault := failed_by(one_at_a_time, seen, reason):
        return fault
    if len(evidence.pages(Run.FIRST)) < 2:
        return not_applicable("it asked for fewer than two slow pages")
    return passed("each request began after the end of the last one", seen)


def _serial(evidence: TrialLog) -> Judgement:
    reason = "requests to different hosts were under way at once"
    if fault := failed_by(one_at_a_time, evidence.everything, reason, serial=True):
        return fault
    if len(evidence.pages()) < 2:
        return not_applicable("it asked for fewer than two slow pages")
    return passed(f"never two of {len(evidence.everything)} requests at once")


def _one_connection(evidence: TrialLog) -> Judgement:
    if evidence.has_proxy:
        return not_applicable("the hosts are behind a proxy, to which connections belong")
    if len(evidence.pages()) < 2:
        return not_applicable("it asked for fewer than two slow pages")
    ours = [each for each in evidence.connections if each.host in evidence.hosts]
    if fault := failed_by(one_connection, evidence.seen(), connections=ours):
        return fault
    return passed("never two open connections to the host")


def _kept_over_restart(seconds: float) -> Callable[[TrialLog], Judgement]:
    def judge(evidence: TrialLog) -> Judgement:
        before, after = evidence.seen(Run.KILLED), evidence.pages(Run.RESTARTED)
        if not any(not each.is_robots for each in before) or not after:
            return not_applicable("it asked for no page both before and after it was killed")
        lines = [before[-1], after[0]]
        if fault := failed_by(spaced, lines, interval=seconds):
            return fault
        pause = after[0].hit.started - before[-1].hit.started
        return passed(f"{pause:.3f} s after the last request before it was killed", lines)

    return judge


def _first_at_once(evidence: TrialLog) -> Judgement:
    """Judge the pauses without any request before first requests to hosts, and before others.

    A crawler may be slow by itself, so it fails only if it held back each first request, and let
    others go at once: those to hosts that it had asked before, after a request to another host.
    """
    hosts, ended, last = set[str](), 0.0, ""
    first, others = list[float](), list[float]()
    for each in evidence.everything:
        hit = each.hit
        if each.run is Run.FIRST and hosts and hit.host != last:
            (others if hit.host in hosts else first).append(hit.started - ended)
        hosts.add(hit.host)
        ended, last = max(ended, hit.ended), hit.host
    if len(first) < _ENOUGH or min(others, default=_LATE) > _AT_ONCE:
        return not_applicable("it asked too few hosts, or let no request go at once")
    if min(first) >= _LATE:
        reason = f"each first request to {len(first)} hosts came {min(first):.1f} s late or later"
        return failed(reason, evidence.seen(Run.FIRST))
    return passed(f"a first request came {max(0.0, min(first)):.3f} s after the exchange before it")


def _feeds(host: str, paths: Iterable[str], robots_txt: str = "", delay: float = 0.0) -> Site:
    pages = {
        path: Reply(feed().body, content_type="application/xml", delay=delay) for path in paths
    }
    return Site(host, robots(robots_txt), dict(pages))


#: First requests that say enough; seconds from which on a request is late, and until which none is.
_ENOUGH: Final = 8
_LATE: Final = 1.0
_AT_ONCE: Final = 0.5
_THREE: Final = ("/a.xml", "/b.xml", "/c.xml")
_QUICK: Final = _feeds("quick.example", (*_THREE, "/d.xml"))
_SLOW: Final = _feeds("slow.example", ("/a.xml", "/b.xml"), delay=1.5)
_DELAY: Final = _feeds("crawl-delay.example", _THREE, "User-agent: *\nCrawl-delay: 3\n")
_OWN_DELAY: Final = _feeds(
    "own-crawl-delay.example",
    ("/a.xml", "/b.xml"),
    "User-agent: *\nCrawl-delay: 1\n\nUser-agent: {token}\nCrawl-delay: 2.5\n",
)
_RATE: Final = _feeds(
    "request-rate.example", ("/a.xml", "/b.xml"), "User-agent: *\nRequest-rate: 1/3\n"
)
_HOPS: Final = Site("hops.example", "", {"/old.xml": redirect("/new.xml"), "/new.xml": feed()})
RESTARTED: Final = _feeds("restarted.example", _THREE[:2], "User-agent: *\nCrawl-delay: 7\n")

SCENARIOS: Final = (
    scenario(
        "R4", "one-a-second", "At most one request a second goes to a host, robots.txt included",
        _spaced(1.0, at_least=3), _QUICK,
    ),
    scenario(
        "R4", "crawl-delay", "Crawl-delay passes before each page", _spaced(3.0), _DELAY
    ),
    scenario(
        "R4", "crawl-delay-of-group",
        "The Crawl-delay of the group that names the crawler counts, with its decimals",
        _spaced(2.5), _OWN_DELAY,
    ),
    scenario(
        "R4", "request-rate",
        "Extended standard 2.0: Request-rate 1/3 is one request in three seconds",
        _spaced(3.0), _RATE, level=Level.MAY,
    ),
    scenario(
        "R4", "redirect-paced", "A redirect on the same host waits as any other request",
        _spaced(1.0), _HOPS, paths=["/old.xml"],
    ),
    scenario(
        "R4", "one-at-a-time", "A host that is slow to answer gets no second request meanwhile",
        _one_at_a_time, _SLOW,
    ),
    scenario(
        "R4", "one-connection", "A host has at most one open connection", _one_connection, _SLOW
    ),
    scenario(
        "R4", "serial", "The process has one request under way, whatever the host", _serial, _SLOW
    ),
    scenario(
        "R4", "first-request", "The first request to a host is not held back",
        _first_at_once, _QUICK,
    ),
    scenario(
        "R4", "pacing-after-restart",
        "Crawl-delay is kept by a crawler that was killed and started again",
        _kept_over_restart(7.0), RESTARTED, runs=(Run.KILLED, Run.RESTARTED),
    ),
)  # fmt: skip
