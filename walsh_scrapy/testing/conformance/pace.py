"""R4: how fast. One request and connection at a time, at most one a second to a host, Crawl-delay.

Delays are measured from the start of one request to the start of the next, as the contract has it.
A scenario judges its hosts in all runs, over http and https and at every port; `one-a-second`,
`one-at-a-time`, `one-connection` and `serial` judge every host of the trial. A connection on which
no request came counts as a request: the host was contacted.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from walsh_scrapy.checks.exchange import TRIAL
from walsh_scrapy.checks.pace import FirstRequests
from walsh_scrapy.testing.conformance.scenario import (
    Level,
    Run,
    TrialLog,
    everything,
    failed,
    failed_by,
    feed,
    kept,
    needs_pages,
    not_applicable,
    passed,
    robots,
    scenario,
)
from walsh_scrapy.testing.manners import Manners, exchanges_of
from walsh_scrapy.testing.politeness import one_at_a_time, one_connection, spaced
from walsh_scrapy.testing.site import Fault, Reply, Site, redirect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from walsh_scrapy.testing.conformance.scenario import Judgement


def _one_a_second(evidence: TrialLog) -> Judgement:
    if fault := failed_by(spaced, evidence.contacts):
        return fault
    if len(seen := evidence.seen(Run.FIRST)) < _FEW:
        return not_applicable(f"it made {len(seen)} of {_FEW} requests that are needed")
    return passed(f"a second between {len(evidence.contacts)} requests, host by host", seen)


def _delayed(seconds: float) -> Callable[[TrialLog], Judgement]:
    """Return a judge of the delays of a host; before a page they are `seconds`.

    A crawler cannot know a Crawl-delay before it has read it, so a robots.txt comes after 1 s.
    """

    def judge(evidence: TrialLog) -> Judgement:
        seen = evidence.contacts_here()
        if fault := failed_by(spaced, seen, crawl_delays=dict.fromkeys(evidence.hosts, seconds)):
            return fault
        if len(seen) < 2 or not evidence.pages():
            return not_applicable("it made fewer than two requests, or asked for no page")
        if seconds > 1 and not any(each.is_robots for each in seen):
            return not_applicable("it never asked for robots.txt, and was slow by itself")
        least = min(b.hit.started - a.hit.started for a, b in pairwise(seen))
        return passed(f"at least {least:.3f} s between requests", seen)

    return judge


def _one_connection(evidence: TrialLog) -> Judgement:
    if evidence.has_proxy:
        return not_applicable("the hosts are behind a proxy, to which connections belong")
    if fault := failed_by(one_connection, evidence.contacts, connections=evidence.connections):
        return fault
    if len(evidence.pages()) < 2:
        return not_applicable(_NO_SLOW_PAGES)
    return passed("never two open connections to one host")


def _serial(evidence: TrialLog) -> Judgement:
    reason = "requests to different hosts were under way at once"
    if fault := failed_by(one_at_a_time, evidence.everything, reason, serial=True):
        return fault
    if not evidence.has_proxy:
        contacts, opened = evidence.contacts, evidence.connections
        if fault := failed_by(one_connection, contacts, connections=opened, serial=True):
            return fault
    if len(evidence.pages()) < 2:
        return not_applicable(_NO_SLOW_PAGES)
    return passed(f"never two of {len(evidence.everything)} requests at once")


def _after_kill(evidence: TrialLog) -> Judgement:
    delays = dict.fromkeys(evidence.hosts, _RESTART_DELAY)
    if fault := failed_by(spaced, evidence.contacts_here(), crawl_delays=delays):
        return fault
    before, after = evidence.seen(Run.KILLED), evidence.pages(Run.RESTARTED)
    if not evidence.pages(Run.KILLED) or not after:
        return not_applicable("it asked for no page both before and after it was killed")
    pause, lines = after[0].hit.started - before[-1].hit.started, [before[-1], after[0]]
    return passed(f"{pause:.3f} s after the last request before it was killed", lines)


def _first_at_once(evidence: TrialLog) -> Judgement:
    """Judge the silence before first requests to hosts, and before others, in the first run.

    A crawler may be slow by itself, so it fails only if it held back each first request, and let
    others go at once: those to hosts that it had asked before, after a request to another host.
    """
    check, hosts, last = FirstRequests(_ENOUGH), set[str](), ""
    seen = [each for each in evidence.everything if each.run is Run.FIRST]
    exchanges = exchanges_of([each.hit for each in seen], Manners(precision=TRIAL))
    for each in exchanges:
        check.see(each, is_first=each.host not in hosts, counts=each.host != last)
        hosts.add(each.host)
        last = each.host
    if check.least is None:
        return not_applicable("it asked too few hosts, or let no request go at once")
    if check.are_held_back:
        reason = f"each first request to a host came {check.least:.1f} s late or later"
        return failed(reason, seen)
    return passed(f"a first request came {max(0.0, check.least):.3f} s after the one before it")


def _feeds(host: str, paths: Iterable[str], robots_txt: str = "", delay: float = 0.0) -> Site:
    pages = {
        path: Reply(feed().body, content_type="application/xml", delay=delay) for path in paths
    }
    return Site(host, robots(robots_txt), dict(pages))


_NO_SLOW_PAGES: Final = "it asked for fewer than two slow pages"
#: Requests to the host of `one-a-second`, and first requests to hosts, that say enough.
_FEW: Final = 3
_ENOUGH: Final = 8
_RESTART_DELAY: Final = 7.0
_THREE: Final = ("/a.xml", "/b.xml", "/c.xml")
_QUICK: Final = _feeds("quick.example", (*_THREE, "/d.xml"))
_SLOW: Final = _feeds("slow.example", ("/a.xml", "/b.xml"), delay=1.5)
_DELAY: Final = _feeds("crawl-delay.example", _THREE, "User-agent: *\nCrawl-delay: 3\n")
_LONG_DELAY: Final = _feeds(
    "long-crawl-delay.example", _THREE[:2], "User-agent: *\nCrawl-delay: 20\n"
)
_OWN_DELAY: Final = _feeds(
    "own-crawl-delay.example",
    ("/a.xml", "/b.xml"),
    "User-agent: *\nCrawl-delay: 1\n\nUser-agent: {token}\nCrawl-delay: 2.5\n",
)
_RATE: Final = _feeds(
    "request-rate.example", ("/a.xml", "/b.xml"), "User-agent: *\nRequest-rate: 1/3\n"
)
_HOPS: Final = Site("hops.example", "", {"/old.xml": redirect("/new.xml"), "/new.xml": feed()})
_NO_ANSWER: Final = Site(
    "no-answer.example",
    "",
    {
        "/a.xml": [Reply(delay=0.5, fault=Fault.RESET), feed()],
        "/b.xml": Reply(fault=Fault.RESET),
        "/c.xml": Reply(fault=Fault.CLOSE),
    },
)
RESTARTED: Final = _feeds(
    "restarted.example", _THREE[:2], f"User-agent: *\nCrawl-delay: {_RESTART_DELAY:g}\n"
)

SCENARIOS: Final = (
    scenario(
        "R4", "one-a-second", "At most one request a second goes to a host, robots.txt included",
        _one_a_second, _QUICK, runs=(Run.FIRST, Run.FORCED),
    ),
    scenario(
        "R4", "crawl-delay", "Crawl-delay passes before each page", _delayed(3.0), _DELAY,
        runs=(Run.FIRST, Run.FORCED),
    ),
    scenario(
        "R4", "long-crawl-delay", "A Crawl-delay of 20 s is not cut short",
        _delayed(20.0), _LONG_DELAY,
    ),
    scenario(
        "R4", "crawl-delay-of-group",
        "The Crawl-delay of the group that names the crawler counts, with its decimals",
        _delayed(2.5), _OWN_DELAY,
    ),
    scenario(
        "R4", "request-rate",
        "Extended standard 2.0: Request-rate 1/3 is one request in three seconds",
        _delayed(3.0), _RATE, level=Level.MAY,
    ),
    scenario(
        "R4", "redirect-paced", "A redirect on the same host waits as any other request",
        _delayed(1.0), _HOPS, paths=["/old.xml"],
    ),
    scenario(
        "R4", "no-answer", "Where a connection ends without an answer, the next request waits too",
        _delayed(1.0), _NO_ANSWER,
    ),
    scenario(
        "R4", "one-at-a-time", "A host that is slow to answer gets no second request meanwhile",
        kept(
            one_at_a_time, "each request began after the end of the last one", of=everything,
            needs=needs_pages(2, _NO_SLOW_PAGES), shows=TrialLog.seen,
            why="a request began before the last one to this host had ended",
        ),
        _SLOW,
    ),
    scenario(
        "R4", "one-connection", "A host has at most one open connection", _one_connection, _SLOW
    ),
    scenario(
        "R4", "serial",
        "The process has one request under way, and one open connection, whatever the host",
        _serial, _SLOW,
    ),
    scenario(
        "R4", "first-request", "The first request to a host is not held back",
        _first_at_once, _QUICK,
    ),
    scenario(
        "R4", "pacing-after-restart",
        "Crawl-delay is kept by a crawler that was killed and started again",
        _after_kill, RESTARTED, runs=(Run.KILLED, Run.RESTARTED),
    ),
)  # fmt: skip
