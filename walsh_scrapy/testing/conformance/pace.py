"""R4 and R5: how fast, and when not at all.

R4 demands one request and connection at a time, at most one request per second to a host, and
Crawl-delay. R5 demands a hold after 429 and 503, with Retry-After in each of its forms (RFC 9110
10.2.3) and without. Delays are measured from the start of one request to the start of the next, as
the contract has it. A scenario checks its hosts in all runs, over http and https and at every port;
`one-a-second`, `one-at-a-time`, `one-connection` and `serial` check every host of the trial. A
connection on which no request came counts as a request: the host was contacted.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise, zip_longest
from math import ceil, log, sqrt
from statistics import fmean, variance
from typing import TYPE_CHECKING, Final

from walsh_scrapy.checks import TRIAL, FirstRequests
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
    robots,
    scenario,
)
from walsh_scrapy.testing.politeness import (
    Manners,
    backed_off,
    exchanges_of,
    holds_kept,
    one_at_a_time,
    one_connection,
    retry_after,
    spaced,
)
from walsh_scrapy.testing.site import Fault, Reply, Site, redirect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from walsh_scrapy.testing.conformance.scenario import Conclusion
    from walsh_scrapy.testing.hit import Hit
    from walsh_scrapy.testing.site import Page


def _one_a_second(evidence: TrialLog) -> Conclusion:
    if fault := failed_by(spaced, evidence.contacts):
        return fault
    if len(seen := evidence.seen(Run.FIRST)) < _FEW:
        return not_applicable(f"it made {len(seen)} of {_FEW} requests that are needed")
    return passed(f"one second between {len(evidence.contacts)} requests, host by host", seen)


def _delayed(seconds: float) -> Callable[[TrialLog], Conclusion]:
    """Return a check of the delays of a host; before a page they are `seconds`.

    A crawler cannot know a Crawl-delay before it has read it, so a robots.txt comes after 1 s.
    """

    def check(evidence: TrialLog) -> Conclusion:
        seen = evidence.contacts_here()
        if fault := failed_by(spaced, seen, crawl_delays=dict.fromkeys(evidence.hosts, seconds)):
            return fault
        if len(seen) < 2 or not evidence.pages():
            return not_applicable("it made fewer than two requests, or requested no page")
        if seconds > 1 and not any(each.is_robots for each in seen):
            return not_applicable("it never requested robots.txt, and was slow by itself")
        least = min(b.hit.started - a.hit.started for a, b in pairwise(seen))
        return passed(f"at least {least:.3f} s between requests", seen)

    return check


def _one_connection(evidence: TrialLog) -> Conclusion:
    if evidence.has_proxy:
        return not_applicable("the hosts are behind a proxy, to which connections belong")
    if fault := failed_by(one_connection, evidence.contacts, connections=evidence.connections):
        return fault
    if len(evidence.pages()) < 2:
        return not_applicable(_NO_SLOW_PAGES)
    return passed("never two open connections to one host")


def _serial(evidence: TrialLog) -> Conclusion:
    reason = "requests to different hosts were in flight at once"
    if fault := failed_by(one_at_a_time, evidence.everything, reason, serial=True):
        return fault
    if not evidence.has_proxy:
        contacts, opened = evidence.contacts, evidence.connections
        if fault := failed_by(one_connection, contacts, connections=opened, serial=True):
            return fault
    if len(evidence.pages()) < 2:
        return not_applicable(_NO_SLOW_PAGES)
    return passed(f"never two of {len(evidence.everything)} requests at once")


def _after_kill(evidence: TrialLog) -> Conclusion:
    delays = dict.fromkeys(evidence.hosts, _RESTART_DELAY)
    if fault := failed_by(spaced, evidence.contacts_here(), crawl_delays=delays):
        return fault
    before, after = evidence.seen(Run.KILLED), evidence.pages(Run.RESTARTED)
    if not evidence.pages(Run.KILLED) or not after:
        return not_applicable("it requested no page both before and after it was killed")
    gap, lines = after[0].hit.started - before[-1].hit.started, [before[-1], after[0]]
    return passed(f"{gap:.3f} s after the last request before it was killed", lines)


def _first_at_once(evidence: TrialLog) -> Conclusion:
    """Check the gap before first requests to hosts, and before others, in the first run.

    A crawler may be slow by itself, so it fails only if it held back each first request, and let
    others go at once: those to hosts that it had requested before, after a request to another host.
    """
    check, hosts, last = FirstRequests(_ENOUGH), set[str](), ""
    seen = [each for each in evidence.everything if each.run is Run.FIRST]
    exchanges = exchanges_of([each.hit for each in seen], Manners(precision=TRIAL))
    for each in exchanges:
        check.see(each, is_first=each.host not in hosts, counts=each.host != last)
        hosts.add(each.host)
        last = each.host
    if check.least is None:
        return not_applicable("it requested too few hosts, or let no request go at once")
    if check.are_held_back:
        reason = f"each first request to a host came {check.least:.1f} s late or later"
        return failed(reason, seen)
    return passed(f"a first request came {max(0.0, check.least):.3f} s after the one before it")


def _feeds(host: str, paths: Iterable[str], robots_txt: str = "", delay: float = 0.0) -> Site:
    pages = {
        path: Reply(feed().body, content_type="application/xml", delay=delay) for path in paths
    }
    return Site(host, robots(robots_txt), dict(pages))


_NO_SLOW_PAGES: Final = "it requested fewer than two slow pages"
#: Requests to the host of `one-a-second`, and first requests to hosts, that show enough.
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


#: Seconds of a server's Retry-After.
_WAIT: Final = 4
_HOLD: Final = 8
_MOST_RETRIES: Final = 9
_HOSTS: Final = 8
#: Hosts with repeated requests that show growth and chance.
_ENOUGH_HOSTS: Final = 5
#: Gaps of each host that show linear growth.
_LONG_ROW: Final = 4
#: Standard errors between the log and the effects of chance.
_CERTAIN: Final = 6.0
#: The growth from gap to gap of a crawler whose gaps do not stay at their longest.
_GROWS: Final = 1.1
#: Seconds: the least difference that a server can see.
_ALIKE: Final = 0.05
_HOUR: Final = 3600
LONG_HOLD: Final = "long-hold"
_IMF: Final = "%a, %d %b %Y %H:%M:%S GMT"
_RFC850: Final = "%A, %d-%b-%y %H:%M:%S GMT"
_ASCTIME: Final = "%a %b %e %H:%M:%S %Y"


def _held(evidence: TrialLog) -> Conclusion:
    """Check that no request comes before the end of a Retry-After."""
    seen = evidence.seen()
    refusals = [each for each in seen if retry_after(each.hit) is not None]
    if not refusals:
        return not_applicable("it was never answered with Retry-After")
    if fault := failed_by(holds_kept, seen):
        return fault
    if seen[-1] == refusals[-1]:
        return passed("it did not come back within the run", refusals)
    return passed("it came back after Retry-After", seen)


def _grows(evidence: TrialLog) -> Conclusion:
    """Check the gaps after answers without Retry-After, over hosts that always refuse.

    Chance may make a single gap shorter than the one before it (full jitter). Over eight hosts the
    last gaps are longer than the first ones all the same, and no two are alike.
    """
    tries = [evidence.pages(host=host) for host in sorted(evidence.hosts)]
    if not any(tries):
        return not_applicable("it never requested the page")
    for each in tries:
        if fault := failed_by(backed_off, each, max_retries=_MOST_RETRIES):
            return fault
        if fault := failed_by(spaced, each):
            return fault
    gaps = [[b.hit.started - a.hit.started for a, b in pairwise(each)] for each in tries]
    steps = [[p for p in step if p is not None] for step in zip_longest(*gaps)]
    # At the least gap of one second all are alike, by chance or not.
    steps = [step for step in steps if len(step) >= _ENOUGH_HOSTS and max(step) > 1 + _ALIKE]
    proof = [each for of_host in tries for each in of_host]
    told = "; ".join(", ".join(f"{gap:.1f} s" for gap in each) or "none" for each in gaps)
    if _shrinks([each for each in gaps if len(each) > 1]):
        return failed(f"the gaps did not grow: {told}", proof)
    if steps and all(max(step) - min(step) < _ALIKE for step in steps):
        return failed(f"the gaps of all hosts are alike, without chance: {told}", proof)
    if _is_linear([each for each in gaps if len(each) >= _LONG_ROW]):
        return failed(f"the gaps grow linearly, and not by a factor: {told}", proof)
    return passed(f"the gaps were {told}", proof)


def _shrinks(gaps: Sequence[Sequence[float]]) -> bool:
    """Return whether the gaps of hosts, two or more each, certainly do not grow."""
    if len(gaps) < _ENOUGH_HOSTS:
        return False
    if all(each[-1] <= each[0] for each in gaps):
        return True
    # Two gaps by chance may be in any order; the third is four times the first on the average.
    long = [each for each in gaps if len(each) > 2]
    return len(long) >= _ENOUGH_HOSTS and sum(e[-1] for e in long) <= sum(e[0] for e in long)


def _is_linear(gaps: Sequence[Sequence[float]]) -> bool:
    """Return whether the gaps of hosts, four each, certainly grow by ever smaller factors.

    Exponential gaps grow by one factor, until they stay at their longest. With much chance in the
    gaps (full jitter) nothing is certain.
    """
    if len(gaps) < _ENOUGH_HOSTS:
        return False
    steps = list(zip(*(each[:_LONG_ROW] for each in gaps), strict=True))
    means = [fmean(step) for step in steps]
    errors = [variance(step) / len(step) / fmean(step) ** 2 for step in steps]

    def is_less(weights: Sequence[float], bound: float = 0.0) -> bool:
        """Return whether a sum of logarithms of the means is certainly below a bound."""
        total = sum(weight * log(mean) for weight, mean in zip(weights, means, strict=True))
        spread = sum(w * w * error for w, error in zip(weights, errors, strict=True))
        return total + _CERTAIN * sqrt(spread) < bound

    slows_down = is_less((1, -2, 1, 0)) and is_less((1, -1, -1, 1))
    return slows_down and is_less((0, 0, 1, -1), -log(_GROWS))


def _kept_over_restart(evidence: TrialLog) -> Conclusion:
    if not evidence.seen(Run.RESTARTED):
        if any(retry_after(each.hit) for each in evidence.seen(Run.KILLED)):
            return passed("it did not come back after it was killed", evidence.seen(Run.KILLED))
        return not_applicable("it was never answered with Retry-After")
    return _held(evidence)


def _date(form: str) -> Callable[[Hit], Reply]:
    """Return a page that names a moment some seconds from now."""

    def page(hit: Hit) -> Reply:
        moment = datetime.fromtimestamp(ceil(hit.wall) + _WAIT, UTC)
        return _busy(429, moment.strftime(form))

    return page


def _busy(status: int, wait: str) -> Reply:
    return Reply("Not now.\n", status, headers={"Retry-After": wait})


def _once(name: str, asks: str, refusal: Page) -> Scenario:
    """Return the scenario of a host that refuses the first request of each of two pages.

    So whichever a crawler requests first, the other one must wait too.
    """
    pages: dict[str, Page] = {"/a.xml": [refusal, feed()], "/b.xml": [refusal, feed()]}
    return scenario("R5", name, asks, _held, Site(f"{name}.example", "", pages))


_ALWAYS: Final = [
    Site(f"always-503-{number}.example", "", {"/feed.xml": Reply("Not now.\n", 503)})
    for number in range(_HOSTS)
]
_ROBOTS: Final = Site(
    "robots-503.example",
    [_busy(503, str(_WAIT)), "User-agent: *\nDisallow: /no/\n"],
    {"/feed.xml": feed()},
)
_LONG: Final = Site("held-an-hour.example", "", {"/feed.xml": _busy(429, str(_HOUR))})
HELD: Final = Site("held.example", "", {"/feed.xml": [_busy(429, str(_HOLD)), feed()]})

SCENARIOS: Final = (
    scenario(
        "R4", "one-a-second", "At most one request per second goes to a host, robots.txt included",
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
    _once(
        "429-seconds",
        "After 429 the whole host gets no request for Retry-After, in seconds",
        _busy(429, str(_WAIT)),
    ),
    _once(
        "503-seconds",
        "After 503 the whole host gets no request for Retry-After, in seconds",
        _busy(503, str(_WAIT)),
    ),
    _once("429-imf-date", "Retry-After may be a date as in RFC 9110", _date(_IMF)),
    _once("429-rfc850-date", "Retry-After may be a date as in RFC 850", _date(_RFC850)),
    _once("429-asctime-date", "Retry-After may be a date as asctime writes it", _date(_ASCTIME)),
    Scenario(
        "always-503", "R5",
        "After 503 without Retry-After the gaps grow, by chance too, and the tries end",
        _grows, tuple(_ALWAYS), tuple(f"http://{each.host}/feed.xml" for each in _ALWAYS),
    ),
    scenario(
        "R5", "robots-503", "A Retry-After of robots.txt binds as that of any page", _held, _ROBOTS
    ),
    scenario(
        "R5", "hold-after-restart",
        "Retry-After is kept by a crawler that was killed and started again",
        _kept_over_restart, HELD, runs=(Run.KILLED, Run.RESTARTED),
    ),
    scenario(
        "R5", LONG_HOLD, "A Retry-After of one hour is not cut short, even in a later run",
        _held, _LONG, runs=(Run.FIRST, Run.RESTARTED),
    ),
)  # fmt: skip
