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
from math import ceil, inf, log, sqrt
from statistics import fmean, median, variance
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.checks import BUSY, TRIAL, FirstRequests
from walsh_scrapy.testing.conformance.scenario import (
    HOPS,
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
    second_hop,
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
from walsh_scrapy.testing.site import Certificate, Fault, Reply, Site, redirect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from walsh_scrapy.testing.conformance.scenario import Conclusion, Seen
    from walsh_scrapy.testing.hit import Hit
    from walsh_scrapy.testing.site import Page


def _one_a_second(evidence: TrialLog) -> Conclusion:
    if fault := failed_by(spaced, evidence.contacts):
        return fault
    if len(seen := evidence.seen(Run.FIRST)) < _FEW:
        return not_applicable(f"it made {len(seen)} of {_FEW} requests that are needed")
    return passed(f"one second between {len(evidence.contacts)} requests, host by host", seen)


def _delayed(seconds: float, origin: str = "") -> Callable[[TrialLog], Conclusion]:
    """Return a check of the delays of a host; before a page they are `seconds`.

    A crawler cannot know a Crawl-delay before it has read it, so a robots.txt comes after 1 s. With
    an origin only the requests to that origin count.
    """

    def check(evidence: TrialLog) -> Conclusion:
        seen = [
            contact for contact in evidence.contacts_here() if contact.hit.origin.startswith(origin)
        ]
        if fault := failed_by(spaced, seen, crawl_delays=dict.fromkeys(evidence.hosts, seconds)):
            return fault
        if len(seen) < 2 or all(contact.is_robots for contact in seen):
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


def _slow(
    name: str,
    asks: str,
    text: str,
    seconds: float,
    *,
    runs: tuple[Run, ...] = (Run.FIRST,),
    level: Level = Level.MUST,
) -> Scenario:
    """Return the scenario of a robots.txt that asks for so many seconds before each page."""
    site = _feeds(f"{name}.example", _TWO, text)
    return scenario("R4", name, asks, _delayed(seconds), site, runs=runs, level=level)


def _slow_at_hop(kind: str) -> Scenario:
    """Return the scenario of a redirect whose second hop has a Crawl-delay at its origin."""
    text = f"User-agent: *\nCrawl-delay: {_HOP_DELAY:g}\n"
    origin, sites = second_hop("slow-hop", kind, text, "/slow.xml")
    return scenario(
        "R4", f"crawl-delay-hop-{kind}",
        f"The second hop of a redirect, to another {kind}, waits for the Crawl-delay there",
        _delayed(_HOP_DELAY, origin), *sites, paths=["/1"],
    )  # fmt: skip


_NO_SLOW_PAGES: Final = "it requested fewer than two slow pages"
#: Requests to the host of `one-a-second`, and first requests to hosts, that show enough.
_FEW: Final = 3
_ENOUGH: Final = 8
_RESTART_DELAY: Final = 7.0
_HOP_DELAY: Final = 3.0
_TWO: Final = ("/a.xml", "/b.xml")
_THREE: Final = (*_TWO, "/c.xml")
_QUICK: Final = _feeds("quick.example", (*_THREE, "/d.xml"))
_SLOW: Final = _feeds("slow.example", _TWO, delay=1.5)
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
    "restarted.example", _TWO, f"User-agent: *\nCrawl-delay: {_RESTART_DELAY:g}\n"
)


#: Seconds of a server's Retry-After: more than a crawler needs for a round of the other hosts.
_WAIT: Final = 8
_HOLD: Final = 8
_MAX_RETRIES: Final = 9
_HOSTS: Final = 8
#: Hosts with repeated requests that show growth and chance.
_ENOUGH_HOSTS: Final = 5
#: Gaps of each host that show linear growth.
_LONG_ROW: Final = 4
#: Standard errors between the log and the effects of chance.
_CERTAIN: Final = 6.0
#: The growth from wait to wait of a crawler whose waits do not stay at their longest.
_GROWS: Final = 1.1
#: The least growth over two waits or more; a factor of 1.5 from wait to wait gives 2.25.
_GROWTH: Final = 1.25
#: Seconds: the least difference that a server can see.
_ALIKE: Final = 0.05
#: Seconds: no wait is shorter, as a server sees it.
_SHORTEST: Final = 1.0 + _ALIKE
#: Seconds by which each host of `always-503` answers later than the one before it.
_SLOWER: Final = 0.02
#: Seconds: the least silence that shows a crawler which waits.
_SILENCE: Final = 0.01
_HOUR: Final = 3600
_LONG_HOLDS: Final = {"long-hold": 429, "long-hold-503": 503}
#: The scenarios whose seeds come last: a crawler that sleeps for an hour has then requested all
#: others, and one that makes its requests in their order has not lost time before a hold ends.
LAST: Final = ("always-503", *_LONG_HOLDS)
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
    """Check the waits after answers without Retry-After, over hosts that always refuse.

    Chance may make a single wait shorter than the one before it (full jitter). Over eight hosts the
    last waits are longer than the first ones all the same, and no two are alike.
    """
    tries = [evidence.pages(host=host) for host in sorted(evidence.hosts)]
    if not any(tries):
        return not_applicable("it never requested the page")
    for each in tries:
        if fault := failed_by(backed_off, each, max_retries=_MAX_RETRIES):
            return fault
        if fault := failed_by(spaced, each):
            return fault
    known = _after_silence(evidence)
    gaps = [[b.hit.started - a.hit.ended for a, b in pairwise(each)] for each in tries]
    waits = [
        [gap if later in known else None for gap, later in zip(row, each[1:], strict=True)]
        for row, each in zip(gaps, tries, strict=True)
    ]
    # The waits of all hosts after their first refusal, after their second one, and so on.
    steps = [[wait for wait in step if wait is not None] for step in zip_longest(*waits)]
    steps = [step if len(step) >= _ENOUGH_HOSTS else [] for step in steps]
    # At the shortest wait of one second all are alike, by chance or not.
    long = [step for step in steps if step and max(step) > _SHORTEST]
    proof = [each for of_host in tries for each in of_host]
    told = "; ".join(_in_words(wait) for wait in waits)
    if _shrinks(gaps, waits):
        return failed(f"the waits did not grow: {told}", proof)
    if long and all(max(step) - min(step) < _ALIKE for step in long):
        return failed(f"the waits of all hosts are alike, without chance: {told}", proof)
    if len(steps) >= _LONG_ROW and all(steps[:_LONG_ROW]) and _is_linear(steps[:_LONG_ROW]):
        return failed(f"the waits grow linearly, and not by a factor: {told}", proof)
    return passed(f"the waits were {told}", proof)


def _in_words(waits: Sequence[float | None]) -> str:
    shown = ("in a queue" if wait is None else f"{wait:.1f} s" for wait in waits)
    return ", ".join(shown) or "none"


def _after_silence(evidence: TrialLog) -> frozenset[Seen]:
    """Return the requests before which the crawler was idle.

    A request that came directly after another one may have waited for its turn, so its gap does not
    show how long the crawler wanted to wait. Some crawlers are slow between any two requests: the
    silence before the first requests to hosts, which need no wait, shows that.
    """
    silences: dict[Seen, float] = {}
    before_first, hosts, end = list[float](), set[str](), -inf
    for each in evidence.everything:
        silences[each] = each.hit.started - end
        if hosts and each.hit.host not in hosts:
            before_first.append(silences[each])
        hosts.add(each.hit.host)
        end = max(end, each.hit.ended)
    usual = max(0.0, median(before_first)) if before_first else 0.0
    return frozenset(each for each, silence in silences.items() if silence > usual + _SILENCE)


def _shrinks(gaps: Sequence[Sequence[float]], waits: Sequence[Sequence[float | None]]) -> bool:
    """Return whether the waits of hosts certainly do not grow from the first to the last one.

    A gap is at least as long as the wait in it, so the last one may be of a request that had to
    wait for its turn.
    """
    ends: list[tuple[int, float, float]] = []  # refusals between the two waits, and both of them
    for row, known in zip(gaps, waits, strict=True):
        first = next((place for place, wait in enumerate(known[:-1]) if wait is not None), None)
        if first is not None:
            ends.append((len(row) - 1 - first, row[first], row[-1]))
        elif len(row) > 1:
            ends.append((0, _SHORTEST, row[-1]))  # no wait is shorter
    if len(ends) >= _ENOUGH_HOSTS and all(last <= first for _, first, last in ends):
        return True
    # Two waits by chance may be in any order; the third is four times the first on the average.
    firsts = [first for number, first, _ in ends if number > 1]
    lasts = [last for number, _, last in ends if number > 1]
    if len(firsts) < _ENOUGH_HOSTS:
        return False
    # A median ignores the crawler's pauses for other reasons, and a mean has more certainty.
    return all(average(lasts) < _GROWTH * average(firsts) for average in (fmean, median))


def _is_linear(steps: Sequence[Sequence[float]]) -> bool:
    """Return whether waits, those of many hosts for each step, certainly grow by smaller factors.

    Exponential waits grow by one factor, until they stay at their longest. With much chance in the
    waits (full jitter) nothing is certain.
    """
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


_REFUSALS: Final = {f"{status}": _busy(status, str(_WAIT)) for status in sorted(BUSY)}


def _once(name: str, asks: str, refusal: Page) -> Scenario:
    """Return the scenario of a host that refuses the first request of each of two pages.

    So whichever a crawler requests first, the other one must wait too.
    """
    pages: dict[str, Page] = {path: [refusal, feed()] for path in _TWO}
    return scenario("R5", name, asks, _held, Site(f"{name}.example", "", pages))


def _once_behind_redirect(status: str) -> Scenario:
    """Return the same for a host to which another one redirects."""
    name, refusal = f"{status}-behind-redirect", _REFUSALS[status]
    there = Site(f"{name}-there.example", "", {path: [refusal, feed()] for path in _TWO})
    hops = {path: redirect(f"http://{there.host}{path}") for path in _TWO}
    asks = f"After {status} behind a redirect the host that refused gets no request for Retry-After"
    return scenario("R5", name, asks, _held, Site(f"{name}.example", "", hops), there)


def _once_at_two_origins(kind: str, origin: str) -> Scenario:
    """Return the same for a host that has another scheme or port, where the second page is."""
    name = f"hold-of-{kind}"
    host = f"{name}.example"
    site = Site(host, "", {path: [_REFUSALS["429"], feed()] for path in _TWO}, tls=Certificate.GOOD)
    seeds = (f"http://{host}{_TWO[0]}", f"{origin.format(host)}{_TWO[1]}")
    asks = f"A hold is for the whole host, at another {kind} too"
    return Scenario(name, "R5", asks, _held, (site,), seeds)


def _refused_for_hours(name: str, status: int) -> Scenario:
    """Return the scenario of a host that refuses for longer than a run."""
    asks = f"The Retry-After of one hour of a {status} is not cut short, even in a later run"
    site = Site(f"{name}.example", "", {"/feed.xml": _busy(status, str(_HOUR))})
    return scenario("R5", name, asks, _held, site, runs=(Run.FIRST, Run.RESTARTED))


def _robots_refused(status: str) -> Scenario:
    """Return the scenario of a robots.txt that is refused at first."""
    name = f"robots-{status}"
    text = "User-agent: *\nDisallow: /no/\n"
    site = Site(f"{name}.example", [_REFUSALS[status], text], {"/feed.xml": feed()})
    asks = f"The Retry-After of a {status} for robots.txt binds as that of any page"
    return scenario("R5", name, asks, _held, site)


#: They answer more and more slowly. So the retries of a crawler that always waits equally long
#: do not become ready at the same moment.
_ALWAYS: Final = [
    Site(
        f"always-503-{number}.example",
        "",
        {"/feed.xml": Reply("Not now.\n", 503, delay=number * _SLOWER)},
    )
    for number in range(_HOSTS)
]
HELD: Final = Site("held.example", "", {"/feed.xml": [_busy(429, str(_HOLD)), feed()]})

SCENARIOS: Final = (
    scenario(
        "R4", "one-a-second", "At most one request per second goes to a host, robots.txt included",
        _one_a_second, _QUICK, runs=(Run.FIRST, Run.FORCED),
    ),
    _slow(
        "crawl-delay", "Crawl-delay passes before each page",
        "User-agent: *\nCrawl-delay: 3\n", 3.0, runs=(Run.FIRST, Run.FORCED),
    ),
    _slow(
        "long-crawl-delay", "A Crawl-delay of 20 s is not cut short",
        "User-agent: *\nCrawl-delay: 20\n", 20.0,
    ),
    _slow(
        "crawl-delay-of-group",
        "The Crawl-delay of the group that names the crawler counts, with its decimals",
        "User-agent: *\nCrawl-delay: 1\n\nUser-agent: {token}\nCrawl-delay: 2.5\n", 2.5,
    ),
    _slow(
        "crawl-delay-comment", "A Crawl-delay counts with a comment after it",
        "User-agent: *\nCrawl-delay: 3 # seconds\n", 3.0,
    ),
    _slow(
        "crawl-delay-case", "Crawl-delay counts in any case, with spaces around it",
        "User-agent: *\ncRAWL-dELAY :3\n", 3.0,
    ),
    _slow(
        "crawl-delay-largest", "Of several Crawl-delays for the crawler the largest counts",
        "User-agent: {token}\nCrawl-delay: 2\nCrawl-delay: 4\n\n"
        "User-agent: *\nCrawl-delay: 1\n\nUser-agent: {token}\nCrawl-delay: 1\n",
        4.0, level=Level.SHOULD,
    ),
    _slow(
        "request-rate", "Extended standard 2.0: Request-rate 1/3 is one request in three seconds",
        "User-agent: *\nRequest-rate: 1/3\n", 3.0, level=Level.MAY,
    ),
    *(_slow_at_hop(kind) for kind in HOPS),
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
    *(
        _once(
            f"{status}-seconds",
            f"After {status} the whole host gets no request for Retry-After, in seconds", refusal,
        )
        for status, refusal in _REFUSALS.items()
    ),
    _once("429-imf-date", "Retry-After may be a date as in RFC 9110", _date(_IMF)),
    _once("429-rfc850-date", "Retry-After may be a date as in RFC 850", _date(_RFC850)),
    _once("429-asctime-date", "Retry-After may be a date as asctime writes it", _date(_ASCTIME)),
    Scenario(
        "always-503", "R5",
        "After 503 without Retry-After the gaps grow, by chance too, and the tries end",
        _grows, tuple(_ALWAYS), tuple(f"http://{each.host}/feed.xml" for each in _ALWAYS),
        runs=(Run.RESTARTED,),  # when few other hosts are requested
    ),
    *(_robots_refused(status) for status in _REFUSALS),
    *(_once_behind_redirect(status) for status in _REFUSALS),
    _once_at_two_origins("scheme", "https://{}"),
    _once_at_two_origins("port", "http://{}:8080"),
    scenario(
        "R5", "hold-after-restart",
        "Retry-After is kept by a crawler that was killed and started again",
        _kept_over_restart, HELD, runs=(Run.KILLED, Run.RESTARTED),
    ),
    *(_refused_for_hours(name, status) for name, status in _LONG_HOLDS.items()),
)  # fmt: skip
