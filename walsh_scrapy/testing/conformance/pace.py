"""Scenarios of R4 (delays, one request at a time) and R5 (backoff after 429 and 503).

R4 demands one request and one connection at a time, at most one request per second to a host, and
Crawl-delay. R5 demands a pause after 429 and 503, with all forms of Retry-After (RFC 9110 10.2.3)
and without Retry-After. Delays are measured from the start of one request to the start of the next.

A scenario checks its hosts in all runs, over http and https and at every port. `one-a-second`,
`one-at-a-time`, `one-connection` and `serial` check all hosts of the trial. A connection without a
request is treated as a request, because the host was contacted.
"""

from __future__ import annotations

from dataclasses import replace
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
    Verdict,
    check_rule,
    everything,
    failed,
    failed_by,
    feed,
    lacks_pages,
    not_applicable,
    passed,
    robots,
    scenario,
    second_hop,
)
from walsh_scrapy.testing.hit import redirect_target
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
    if len(requests := evidence.seen(Run.FIRST)) < _MIN_REQUESTS:
        return not_applicable(f"it made fewer than {_MIN_REQUESTS} requests to a host")
    return passed(f"{len(evidence.contacts)} requests, a second apart at each host", requests)


def _delayed(seconds: float, origin: str = "") -> Callable[[TrialLog], Conclusion]:
    """Return a check that `seconds` pass before each page of a host.

    One second is enough before a robots.txt, because a crawler cannot know the Crawl-delay before
    it has read it. With an `origin` only requests to that origin matter.
    """

    def check(evidence: TrialLog) -> Conclusion:
        contacts = _without_failed_attempts(evidence.contacts_here(origin))
        delays = dict.fromkeys(evidence.hosts, seconds)
        if fault := failed_by(spaced, contacts, crawl_delays=delays):
            return fault
        if len(contacts) < 2 or all(contact.is_robots for contact in contacts):
            return not_applicable("it made fewer than two requests, or requested no page")
        if seconds > 1 and not any(contact.is_robots for contact in contacts):
            return not_applicable("it was slow, but not because of robots.txt: it never read it")
        shortest = min(b.hit.started - a.hit.started for a, b in pairwise(contacts))
        return passed(f"at least {shortest:.3f} s between requests", contacts)

    return check


def _without_failed_attempts(contacts: Sequence[Seen]) -> list[Seen]:
    """Return the contacts without connections that failed before robots.txt could be read.

    A crawler that trusts no certificate of the trial cannot know the Crawl-delay of an https host.
    """
    files = (contact for contact in contacts if contact.is_robots and contact.hit.status)
    read = min((file.hit.ended for file in files), default=inf)
    return [
        contact
        for contact in contacts
        if contact.hit.method != "CONNECT" or contact.hit.started >= read
    ]


def _one_connection(evidence: TrialLog) -> Conclusion:
    if evidence.has_proxy:
        return not_applicable("all connections go to the proxy; test it without --proxy")
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
        opened = evidence.connections
        if fault := failed_by(one_connection, evidence.contacts, connections=opened, serial=True):
            return fault
    if len(evidence.pages()) < 2:
        return not_applicable(_NO_SLOW_PAGES)
    return passed(f"never two of {len(evidence.everything)} requests at once")


def _after_kill(evidence: TrialLog) -> Conclusion:
    delays = dict.fromkeys(evidence.hosts, _RESTART_DELAY)
    if fault := failed_by(spaced, evidence.contacts_here(), crawl_delays=delays):
        return fault
    before = evidence.seen(Run.KILLED)
    after = evidence.pages(Run.RESTARTED)
    if not any(request.is_robots for request in before) or not after:
        return not_applicable("it read no robots.txt before it was killed, or no page afterwards")
    gap = after[0].hit.started - before[-1].hit.started
    reason = f"{gap:.3f} s after the last request before it was killed"
    return passed(reason, [before[-1], after[0]])


def _first_at_once(evidence: TrialLog) -> Conclusion:
    """Check the gaps before the first requests to hosts, in the first run.

    A crawler may be slow in general. So it fails only if it held back all first requests, but sent
    another request at once: one to a known host, directly after a request to a different host.
    """
    check = FirstRequests(_MIN_FIRST_REQUESTS)
    hosts: set[str] = set()
    last = ""
    requests = [request for request in evidence.everything if request.run is Run.FIRST]
    exchanges = exchanges_of([request.hit for request in requests], Manners(precision=TRIAL))
    for exchange in exchanges:
        check.see(exchange, is_first=exchange.host not in hosts, counts=exchange.host != last)
        hosts.add(exchange.host)
        last = exchange.host
    if check.shortest_wait is None:
        return not_applicable("it requested too few hosts, or sent no request at once")
    if check.are_held_back:
        reason = f"each first request to a host came {check.shortest_wait:.1f} s late or later"
        return failed(reason, requests)
    wait = max(0.0, check.shortest_wait)
    return passed(f"a first request came {wait:.3f} s after the request before it")


def _feeds(host: str, paths: Iterable[str], robots_txt: str = "", delay: float = 0.0) -> Site:
    pages = {
        path: Reply(feed().body, content_type="application/xml", delay=delay) for path in paths
    }
    return Site(host, robots(robots_txt), dict(pages))


def _slow(
    name: str,
    requirement: str,
    text: str,
    seconds: float,
    *,
    runs: tuple[Run, ...] = (Run.FIRST,),
    level: Level = Level.MUST,
) -> Scenario:
    """Return the scenario of a robots.txt that asks for a delay of so many seconds."""
    site = _feeds(f"{name}.example", _TWO, text)
    return scenario("R4", name, requirement, _delayed(seconds), site, runs=runs, level=level)


def _slow_in(name: str, requirement: str, **pages: Page) -> Scenario:
    """Return the scenario of a Crawl-delay before the second request for the page `a`."""
    text = f"User-agent: *\nCrawl-delay: {_DELAY:g}\n"
    site = Site(f"{name}.example", text, {f"/{path}": page for path, page in pages.items()})
    return scenario("R4", name, requirement, _delayed(_DELAY), site, paths=["/a"])


def _delayed_if_conditional(evidence: TrialLog) -> Conclusion:
    fields = ("If-None-Match", "If-Modified-Since")
    conclusion = _delayed(_SHORT_DELAY)(evidence)
    is_conditional = any(page.hit.header(name) for page in evidence.pages() for name in fields)
    if conclusion.verdict is Verdict.PASS and not is_conditional:
        return not_applicable("it sent no validators")
    return conclusion


def _slow_at_hop(kind: str) -> Scenario:
    """Return the scenario of two redirects; the target of the second one has a Crawl-delay."""
    text = f"User-agent: *\nCrawl-delay: {_DELAY:g}\n"
    origin, sites = second_hop("slow-hop", kind, text, "/slow.xml")
    return scenario(
        "R4", f"crawl-delay-hop-{kind}",
        f"The second hop of a redirect, to another {kind}, waits for the Crawl-delay there",
        _delayed(_DELAY, origin), *sites, paths=["/1"],
    )  # fmt: skip


_NO_SLOW_PAGES: Final = "it requested fewer than two slow pages"
#: The minimum of requests to the host of `one-a-second`, and of first requests to hosts, that a
#: verdict needs.
_MIN_REQUESTS: Final = 3
_MIN_FIRST_REQUESTS: Final = 8
#: Longer than a restarted crawler may leave the hosts of its predecessor alone for other reasons.
_RESTART_DELAY: Final = 60.0
#: Longer than the queue of a crawler that requests a page of each other host in between.
_DELAY: Final = 15.0
#: The same in a run with few hosts.
_SHORT_DELAY: Final = 5.0
_TWO: Final = ("/a.xml", "/b.xml")
_THREE: Final = (*_TWO, "/c.xml")
_QUICK: Final = _feeds("quick.example", (*_THREE, "/d.xml"))
_SLOW: Final = _feeds("slow.example", _TWO, delay=1.5)
_HOPS: Final = Site("hops.example", "", {"/old.xml": redirect("/new.xml"), "/new.xml": feed()})
_SLOW_PAGE: Final = Site(
    "page-crawl-delay.example",
    f"User-agent: *\nCrawl-delay: {_SHORT_DELAY:g}\n",
    {"/": Reply("# A page\n", content_type="text/markdown")},
)
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
    "restarted.example", _TWO[:1], f"User-agent: *\nCrawl-delay: {_RESTART_DELAY:g}\n"
)


#: The seconds in Retry-After: more than a crawler needs for one request to each of the other hosts.
_WAIT: Final = 15
#: The same where the crawler is killed: longer than the run after that.
_HOLD: Final = 120
_MAX_RETRIES: Final = 9
_HOSTS: Final = 8
#: The minimum of hosts with repeated requests, to judge growth and jitter.
_MIN_HOSTS: Final = 5
#: The minimum of gaps at each host, to recognize linear growth.
_MIN_GAPS: Final = 4
#: How many standard errors a difference must have to be certain despite jitter.
_STANDARD_ERRORS: Final = 6.0
#: The minimum growth from wait to wait, unless the waits have reached their maximum.
_MIN_STEP: Final = 1.1
#: The minimum growth from the first wait to the longest of two or more later ones. Constant waits
#: with jitter of up to a half grow by 1.1 on average; a factor of 1.5 from wait to wait gives 2.25.
_MIN_GROWTH: Final = 1.35
#: Seconds: the minimum difference that a server can see.
_MIN_DIFFERENCE: Final = 0.05
#: Seconds: the minimum wait, as a server sees it.
_MIN_WAIT: Final = 1.0 + _MIN_DIFFERENCE
#: Seconds until the first answer of a host of `always-503`. So a serial crawler begins its waits
#: one after the other, and few retries stand in a queue behind another one.
_FIRST_ANSWER_SECONDS: Final = 0.2
#: Seconds by which each of these hosts answers later than the one before it, for a crawler that
#: requests all of them at once.
_STEP_SECONDS: Final = 0.02
#: Seconds: the minimum silence that shows that a crawler is waiting.
_MIN_SILENCE: Final = 0.01
_HOUR: Final = 3600
_LONG_HOLDS: Final = {"long-hold": 429, "long-hold-503": 503}
#: The scenarios whose seeds come last. A crawler that sleeps through an hour of Retry-After has
#: then requested everything else.
LAST: Final = ("always-503", *_LONG_HOLDS)
_IMF: Final = "%a, %d %b %Y %H:%M:%S GMT"
_RFC850: Final = "%A, %d-%b-%y %H:%M:%S GMT"
_ASCTIME: Final = "%a %b %e %H:%M:%S %Y"


def _keeps_hold(evidence: TrialLog) -> Conclusion:
    """Check that no request comes before a Retry-After has ended."""
    requests = evidence.seen()
    refusals = [request for request in requests if retry_after(request.hit) is not None]
    if not refusals:
        return not_applicable("it was never answered with Retry-After")
    if fault := failed_by(holds_kept, requests):
        return fault
    if requests[-1] == refusals[-1]:
        return passed("it did not come back within the run", refusals)
    return passed("it came back after Retry-After", requests)


def _grows(evidence: TrialLog) -> Conclusion:
    """Check the waits after refusals without Retry-After, at hosts that always refuse.

    With full jitter a wait may be shorter than the one before it. But over eight hosts the last
    waits are longer than the first ones, and they differ from each other.
    """
    tries = [evidence.pages(host=host) for host in sorted(evidence.hosts)]
    if not any(tries):
        return not_applicable("it never requested the page")
    for pages in tries:
        if fault := failed_by(backed_off, pages, max_retries=_MAX_RETRIES):
            return fault
        if fault := failed_by(spaced, pages):
            return fault
    after_silence = _after_silence(evidence)
    gaps = [[b.hit.started - a.hit.ended for a, b in pairwise(pages)] for pages in tries]
    waits = [
        [gap if later in after_silence else None for gap, later in zip(row, pages[1:], strict=True)]
        for row, pages in zip(gaps, tries, strict=True)
    ]
    # The waits of all hosts after their first refusal, after their second one, and so on.
    steps = [[wait for wait in step if wait is not None] for step in zip_longest(*waits)]
    steps = [step if len(step) >= _MIN_HOSTS else [] for step in steps]
    # Waits of one second, the minimum, are alike even with jitter.
    long = [step for step in steps if step and max(step) > _MIN_WAIT]
    proof = [page for pages in tries for page in pages]
    description = "; ".join(_in_words(wait) for wait in waits)
    if _shrinks(gaps, waits):
        return failed(f"the waits did not grow: {description}", proof)
    if long and all(max(step) - min(step) < _MIN_DIFFERENCE for step in long):
        return failed(f"the waits at all hosts are alike, without jitter: {description}", proof)
    if len(steps) >= _MIN_GAPS and all(steps[:_MIN_GAPS]) and _is_linear(steps[:_MIN_GAPS]):
        return failed(f"the waits grow linearly, not exponentially: {description}", proof)
    return passed(f"the waits were {description}", proof)


def _in_words(waits: Sequence[float | None]) -> str:
    shown = ("in a queue" if wait is None else f"{wait:.1f} s" for wait in waits)
    return ", ".join(shown) or "none"


def _after_silence(evidence: TrialLog) -> frozenset[Seen]:
    """Return the requests before which the crawler was idle.

    A request directly after another one may have waited in a queue, so its gap does not show how
    long the crawler wanted to wait. Some crawlers pause between any two requests; how long is seen
    before the first requests to hosts, which need not wait.
    """
    silences: dict[Seen, float] = {}
    before_first: list[float] = []
    hosts: set[str] = set()
    end = -inf
    for request in evidence.everything:
        silences[request] = request.hit.started - end
        if hosts and request.hit.host not in hosts:
            before_first.append(silences[request])
        hosts.add(request.hit.host)
        end = max(end, request.hit.ended)
    usual = max(0.0, median(before_first)) if before_first else 0.0
    idle = usual + _MIN_SILENCE
    return frozenset(request for request, silence in silences.items() if silence > idle)


def _shrinks(gaps: Sequence[Sequence[float]], waits: Sequence[Sequence[float | None]]) -> bool:
    """Return True if the waits certainly do not grow after the first one.

    The longest later gap may include time in a queue: it is at least as long as the wait. It may be
    any of them, because waits that have reached their maximum do not grow any more.
    """
    ends: list[tuple[int, float, float]] = []  # number of later gaps, first wait, longest gap
    for row, host_waits in zip(gaps, waits, strict=True):
        if len(row) < 2:
            continue
        first = host_waits[0]
        if first is None:
            ends.append((0, _MIN_WAIT, max(row[1:])))  # no wait is shorter
        else:
            ends.append((len(row) - 1, first, max(row[1:])))
    if len(ends) >= _MIN_HOSTS and all(longest <= first for _, first, longest in ends):
        return True
    # With jitter, two waits may be in any order; on average the third is four times the first.
    firsts = [first for number, first, _ in ends if number > 1]
    lasts = [longest for number, _, longest in ends if number > 1]
    if len(firsts) < _MIN_HOSTS:
        return False
    # The median ignores pauses for other reasons; the mean is more certain. Both must agree.
    return all(average(lasts) < _MIN_GROWTH * average(firsts) for average in (fmean, median))


def _is_linear(steps: Sequence[Sequence[float]]) -> bool:
    """Return True if the waits certainly grow by smaller and smaller factors.

    Each step has the waits of many hosts. Exponential waits grow by the same factor until they
    reach their maximum. With full jitter nothing is certain.
    """
    means = [fmean(step) for step in steps]
    errors = [variance(step) / len(step) / fmean(step) ** 2 for step in steps]

    def is_less(weights: Sequence[float], bound: float = 0.0) -> bool:
        """Return True if a weighted sum of the means' logarithms is certainly below the bound."""
        total = sum(weight * log(mean) for weight, mean in zip(weights, means, strict=True))
        spread = sum(w * w * error for w, error in zip(weights, errors, strict=True))
        return total + _STANDARD_ERRORS * sqrt(spread) < bound

    slows_down = is_less((1, -2, 1, 0)) and is_less((1, -1, -1, 1))
    return slows_down and is_less((0, 0, 1, -1), -log(_MIN_STEP))


def _follows_later(evidence: TrialLog) -> Conclusion:
    """Check that a redirect with Retry-After is not followed before that (RFC 9110 10.2.3)."""
    requests = evidence.pages()
    redirects = [page for page in requests if page.hit.answered("Retry-After")]
    if not redirects:
        return not_applicable("it never requested the page that redirects")
    end = redirects[0].hit.ended + _WAIT
    targets = [page for page in requests if page.hit.url == redirect_target(redirects[0].hit)]
    if early := [page for page in targets if TRIAL.is_before(page.hit.started, end)]:
        return failed(
            "it followed a redirect before its Retry-After had passed", [*redirects, *early]
        )
    if not targets:
        return passed("it did not follow the redirect within the run", redirects)
    return passed("it followed the redirect after Retry-After", [*redirects, *targets])


def _keeps_hold_over_restart(evidence: TrialLog) -> Conclusion:
    if not evidence.seen(Run.RESTARTED):
        if any(retry_after(request.hit) for request in evidence.seen(Run.KILLED)):
            return passed("it did not come back after it was killed", evidence.seen(Run.KILLED))
        return not_applicable("it was never answered with Retry-After")
    return _keeps_hold(evidence)


def _date(date_format: str) -> Callable[[Hit], Reply]:
    """Return a page that refuses, with a Retry-After date some seconds from now."""

    def page(hit: Hit) -> Reply:
        moment = datetime.fromtimestamp(ceil(hit.wall) + _WAIT, UTC)
        return _busy(429, moment.strftime(date_format))

    return page


def _busy(status: int, wait: str) -> Reply:
    return Reply("Not now.\n", status, headers={"Retry-After": wait})


_REFUSALS: Final = {f"{status}": _busy(status, str(_WAIT)) for status in sorted(BUSY)}


def _once(name: str, requirement: str, refusal: Page) -> Scenario:
    """Return the scenario of a host that refuses the first request for each of two pages.

    Whichever page the crawler requests first, the other page must wait too.
    """
    pages: dict[str, Page] = {path: [refusal, feed()] for path in _TWO}
    return scenario("R5", name, requirement, _keeps_hold, Site(f"{name}.example", "", pages))


def _once_behind_redirect(status: str) -> Scenario:
    """Return the scenario of such a host, to which another host redirects."""
    name = f"{status}-behind-redirect"
    feeds: dict[str, Page] = {path: [_REFUSALS[status], feed()] for path in _TWO}
    there = Site(f"{name}-there.example", "", feeds)
    hops = {path: redirect(f"http://{there.host}{path}") for path in _TWO}
    requirement = f"Retry-After of a {status} behind a redirect is kept for the host that refused"
    return scenario("R5", name, requirement, _keeps_hold, Site(f"{name}.example", "", hops), there)


def _once_at_two_origins(kind: str, origin: str) -> Scenario:
    """Return the scenario of such a host, whose second page is at another scheme or port."""
    name = f"hold-of-{kind}"
    host = f"{name}.example"
    site = Site(host, "", {path: [_REFUSALS["429"], feed()] for path in _TWO}, tls=Certificate.GOOD)
    seeds = (f"http://{host}{_TWO[0]}", f"{origin.format(host)}{_TWO[1]}")
    requirement = f"A hold is for the whole host, at another {kind} too"
    return Scenario(name, "R5", requirement, _keeps_hold, (site,), seeds)


def _refused_for_hours(name: str, status: int) -> Scenario:
    """Return the scenario of a host that refuses for longer than a run."""
    requirement = f"The Retry-After of one hour of a {status} is not cut short, even in a later run"
    site = Site(f"{name}.example", "", {"/feed.xml": _busy(status, str(_HOUR))})
    return scenario("R5", name, requirement, _keeps_hold, site, runs=(Run.FIRST, Run.RESTARTED))


def _robots_refused(status: str) -> Scenario:
    """Return the scenario of a robots.txt that is refused at first."""
    name = f"robots-{status}"
    text = "User-agent: *\nDisallow: /no/\n"
    site = Site(f"{name}.example", [_REFUSALS[status], text], {"/feed.xml": feed()})
    requirement = f"The Retry-After of a {status} for robots.txt applies as for any page"
    return scenario("R5", name, requirement, _keeps_hold, site)


_NOT_NOW: Final = Reply("Not now.\n", 503)
#: The first answers come at different moments. Otherwise the retries of a crawler without jitter
#: would all become ready at the same one.
_ALWAYS: Final = [
    Site(
        f"always-503-{number}.example",
        "",
        {
            "/feed.xml": [
                replace(_NOT_NOW, delay=_FIRST_ANSWER_SECONDS + number * _STEP_SECONDS),
                _NOT_NOW,
            ]
        },
    )
    for number in range(_HOSTS)
]
_MOVED: Final = Site(
    "redirect-retry-after.example",
    "",
    {
        "/old.xml": replace(
            redirect("/new.xml", 302), headers={"Location": "/new.xml", "Retry-After": str(_WAIT)}
        ),
        "/new.xml": feed(),
    },
)
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
        "The Crawl-delay of the group that names the crawler applies, with its decimals",
        "User-agent: *\nCrawl-delay: 1\n\nUser-agent: {token}\nCrawl-delay: 15.5\n", 15.5,
    ),
    _slow(
        "crawl-delay-comment", "A Crawl-delay with a comment after it applies",
        f"User-agent: *\nCrawl-delay: {_DELAY:g} # seconds\n", _DELAY,
    ),
    _slow(
        "crawl-delay-case", "Crawl-delay is read in any case, with spaces around it",
        f"User-agent: *\ncRAWL-dELAY :{_DELAY:g}\n", _DELAY,
    ),
    _slow(
        "crawl-delay-largest", "Of several Crawl-delays for the crawler the largest applies",
        f"User-agent: {{token}}\nCrawl-delay: 2\nCrawl-delay: {_DELAY:g}\n\n"
        "User-agent: *\nCrawl-delay: 1\n\nUser-agent: {token}\nCrawl-delay: 1\n",
        _DELAY, level=Level.SHOULD,
    ),
    _slow_in(
        "crawl-delay-redirect", "A redirect within an origin waits for the Crawl-delay",
        a=redirect("/b"), b=feed(),
    ),
    _slow_in(
        "crawl-delay-retry", "A retry waits for the Crawl-delay", a=[_NOT_NOW, feed()],
    ),
    scenario(
        "R4", "crawl-delay-conditional", "A conditional request waits for the Crawl-delay",
        _delayed_if_conditional,
        Site(
            "crawl-delay-conditional.example",
            f"User-agent: *\nCrawl-delay: {_SHORT_DELAY:g}\n",
            {path: feed(etag='"1"') for path in _TWO},
        ),
        runs=(Run.FIRST, Run.FORCED),
    ),
    Scenario(
        "page-crawl-delay", "R4", "Crawl-delay passes before a page of a site without a feed",
        _delayed(_SHORT_DELAY), (_SLOW_PAGE,), pages=(f"http://{_SLOW_PAGE.host}/",),
    ),
    _slow(
        "request-rate", "Extended standard 2.0: Request-rate 1/3 is one request in three seconds",
        "User-agent: *\nRequest-rate: 1/3\n", 3.0, level=Level.MAY,
    ),
    *(_slow_at_hop(kind) for kind in HOPS),
    scenario(
        "R4", "redirect-paced", "A redirect on the same host waits like any other request",
        _delayed(1.0), _HOPS, paths=["/old.xml"],
    ),
    scenario(
        "R4", "no-answer", "After a connection without a response the next request waits too",
        _delayed(1.0), _NO_ANSWER,
    ),
    scenario(
        "R4", "one-at-a-time", "A host that is slow to answer gets no second request before that",
        check_rule(
            one_at_a_time, "each request began after the end of the last one", requests=everything,
            missing=lacks_pages(2, _NO_SLOW_PAGES), proof=TrialLog.seen,
            fail_reason="a request began before the last one to this host had ended",
        ),
        _SLOW,
    ),
    scenario(
        "R4", "one-connection", "A host has at most one open connection", _one_connection, _SLOW
    ),
    scenario(
        "R4", "serial",
        "The process has at most one request in flight and one open connection, to any host",
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
            f"After {status} the whole host is left alone for the seconds of Retry-After", refusal,
        )
        for status, refusal in _REFUSALS.items()
    ),
    _once("429-imf-date", "Retry-After may be a date as in RFC 9110", _date(_IMF)),
    _once("429-rfc850-date", "Retry-After may be a date as in RFC 850", _date(_RFC850)),
    _once("429-asctime-date", "Retry-After may be a date as asctime writes it", _date(_ASCTIME)),
    Scenario(
        "always-503", "R5",
        "After 503 without Retry-After the waits grow, with jitter, and the retries end",
        _grows, tuple(_ALWAYS), tuple(f"http://{site.host}/feed.xml" for site in _ALWAYS),
        runs=(Run.RESTARTED,),  # when few other hosts are requested
    ),
    *(_robots_refused(status) for status in _REFUSALS),
    *(_once_behind_redirect(status) for status in _REFUSALS),
    scenario(
        "R5", "redirect-retry-after", "A redirect is followed after its Retry-After has passed",
        _follows_later, _MOVED, paths=["/old.xml"], level=Level.SHOULD,
    ),
    _once_at_two_origins("scheme", "https://{}"),
    _once_at_two_origins("port", "http://{}:8080"),
    scenario(
        "R5", "hold-after-restart",
        "Retry-After is kept by a crawler that was killed and started again",
        _keeps_hold_over_restart, HELD, runs=(Run.KILLED, Run.RESTARTED),
    ),
    *(_refused_for_hours(name, status) for name, status in _LONG_HOLDS.items()),
)  # fmt: skip
