"""R5: 429 and 503, with Retry-After in each of its forms (RFC 9110 10.2.3) and without."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise, zip_longest
from math import ceil, log, sqrt
from statistics import fmean, variance
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.scenario import (
    Run,
    Scenario,
    failed,
    failed_by,
    feed,
    not_applicable,
    passed,
    scenario,
)
from walsh_scrapy.testing.manners import retry_after
from walsh_scrapy.testing.politeness import backed_off, holds_kept, spaced
from walsh_scrapy.testing.site import Reply, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from walsh_scrapy.testing.conformance.scenario import Judgement, TrialLog
    from walsh_scrapy.testing.hit import Hit
    from walsh_scrapy.testing.site import Page

#: Seconds that a server asks for.
_WAIT: Final = 4
_HOLD: Final = 8
_MOST_RETRIES: Final = 9
_HOSTS: Final = 8
#: Hosts that have to be asked again before growth and chance can be told.
_ENOUGH: Final = 5
#: Pauses of each host by which linear growth can be told.
_LONG_ROW: Final = 4
#: Standard errors between what is seen and what chance may do.
_CERTAIN: Final = 6.0
#: The growth from pause to pause of a crawler whose pauses do not stay at their longest.
_GROWS: Final = 1.1
#: Seconds: what a server can tell apart.
_ALIKE: Final = 0.05
_HOUR: Final = 3600
LONG_HOLD: Final = "long-hold"
_IMF: Final = "%a, %d %b %Y %H:%M:%S GMT"
_RFC850: Final = "%A, %d-%b-%y %H:%M:%S GMT"
_ASCTIME: Final = "%a %b %e %H:%M:%S %Y"


def _held(evidence: TrialLog) -> Judgement:
    """Judge that no request comes before the end of a Retry-After."""
    seen = evidence.seen()
    refusals = [each for each in seen if retry_after(each.hit) is not None]
    if not refusals:
        return not_applicable("it was never answered with Retry-After")
    if fault := failed_by(holds_kept, seen):
        return fault
    if seen[-1] == refusals[-1]:
        return passed("it did not come back within the run", refusals)
    return passed("it came back after Retry-After", seen)


def _grows(evidence: TrialLog) -> Judgement:
    """Judge the pauses after answers without Retry-After, over hosts that always refuse.

    Chance may make a single pause shorter than the one before it (full jitter). Over eight hosts
    the last pauses are longer than the first ones all the same, and no two are alike.
    """
    tries = [evidence.pages(host=host) for host in sorted(evidence.hosts)]
    if not any(tries):
        return not_applicable("it never asked for the page")
    for each in tries:
        if fault := failed_by(backed_off, each, max_retries=_MOST_RETRIES):
            return fault
        if fault := failed_by(spaced, each):
            return fault
    pauses = [[b.hit.started - a.hit.started for a, b in pairwise(each)] for each in tries]
    steps = [[p for p in step if p is not None] for step in zip_longest(*pauses)]
    # At the least pause of a second all are alike, by chance or not.
    steps = [step for step in steps if len(step) >= _ENOUGH and max(step) > 1 + _ALIKE]
    proof = [each for of_host in tries for each in of_host]
    told = "; ".join(", ".join(f"{pause:.1f} s" for pause in each) or "none" for each in pauses)
    if _shrinks([each for each in pauses if len(each) > 1]):
        return failed(f"the pauses did not grow: {told}", proof)
    if steps and all(max(step) - min(step) < _ALIKE for step in steps):
        return failed(f"the pauses of all hosts are alike, without chance: {told}", proof)
    if _is_linear([each for each in pauses if len(each) >= _LONG_ROW]):
        return failed(f"the pauses grow linearly, and not by a factor: {told}", proof)
    return passed(f"the pauses were {told}", proof)


def _shrinks(pauses: Sequence[Sequence[float]]) -> bool:
    """Return whether the pauses of hosts, two or more each, certainly do not grow."""
    if len(pauses) < _ENOUGH:
        return False
    if all(each[-1] <= each[0] for each in pauses):
        return True
    # Two pauses by chance may be in any order; the third is four times the first on the average.
    long = [each for each in pauses if len(each) > 2]
    return len(long) >= _ENOUGH and sum(e[-1] for e in long) <= sum(e[0] for e in long)


def _is_linear(pauses: Sequence[Sequence[float]]) -> bool:
    """Return whether the pauses of hosts, four each, certainly grow by ever smaller factors.

    Exponential pauses grow by one factor, until they stay at their longest. With much chance in the
    pauses (full jitter) nothing is certain.
    """
    if len(pauses) < _ENOUGH:
        return False
    steps = list(zip(*(each[:_LONG_ROW] for each in pauses), strict=True))
    means = [fmean(step) for step in steps]
    errors = [variance(step) / len(step) / fmean(step) ** 2 for step in steps]

    def is_less(weights: Sequence[float], bound: float = 0.0) -> bool:
        """Return whether a sum of logarithms of the means is certainly below a bound."""
        total = sum(weight * log(mean) for weight, mean in zip(weights, means, strict=True))
        spread = sum(w * w * error for w, error in zip(weights, errors, strict=True))
        return total + _CERTAIN * sqrt(spread) < bound

    slows_down = is_less((1, -2, 1, 0)) and is_less((1, -1, -1, 1))
    return slows_down and is_less((0, 0, 1, -1), -log(_GROWS))


def _kept_over_restart(evidence: TrialLog) -> Judgement:
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

    So whichever a crawler asks for first, the other one has to wait too.
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
    _once(
        "429-seconds",
        "After 429 the whole host is left alone for Retry-After, in seconds",
        _busy(429, str(_WAIT)),
    ),
    _once(
        "503-seconds",
        "After 503 the whole host is left alone for Retry-After, in seconds",
        _busy(503, str(_WAIT)),
    ),
    _once("429-imf-date", "Retry-After may be a date as in RFC 9110", _date(_IMF)),
    _once("429-rfc850-date", "Retry-After may be a date as in RFC 850", _date(_RFC850)),
    _once("429-asctime-date", "Retry-After may be a date as asctime writes it", _date(_ASCTIME)),
    Scenario(
        "always-503", "R5",
        "After 503 without Retry-After the pauses grow, by chance too, and the tries end",
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
        "R5", LONG_HOLD, "A Retry-After of an hour is not cut short, in no later run",
        _held, _LONG, runs=(Run.FIRST, Run.RESTARTED),
    ),
)  # fmt: skip
