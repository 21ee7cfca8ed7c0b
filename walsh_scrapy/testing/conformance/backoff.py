"""R5: 429 and 503, with Retry-After in each of its forms (RFC 9110 10.2.3) and without."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.scenario import (
    Run,
    failed,
    failed_by,
    feed,
    not_applicable,
    passed,
    scenario,
)
from walsh_scrapy.testing.manners import BUSY, retry_after
from walsh_scrapy.testing.reply import Reply
from walsh_scrapy.testing.site import Site
from walsh_scrapy.testing.timing import backed_off, holds_kept, spaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from walsh_scrapy.testing.conformance.scenario import Judgement, Scenario, TrialLog
    from walsh_scrapy.testing.hit import Hit
    from walsh_scrapy.testing.reply import Page

#: Seconds that a server asks for.
_WAIT: Final = 4
_HOLD: Final = 8
_MOST_RETRIES: Final = 9
_IMF: Final = "%a, %d %b %Y %H:%M:%S GMT"
_RFC850: Final = "%A, %d-%b-%y %H:%M:%S GMT"
_ASCTIME: Final = "%a %b %e %H:%M:%S %Y"


def _held(evidence: TrialLog) -> Judgement:
    """Judge that no request comes before the end of a Retry-After."""
    seen = evidence.seen()
    refusals = [each for each in seen if each.hit.status in BUSY and retry_after(each.hit)]
    if not refusals:
        return not_applicable("it was never answered with Retry-After")
    if fault := failed_by(holds_kept, seen):
        return fault
    if seen[-1] == refusals[-1]:
        return passed("it did not come back within the run", refusals)
    return passed("it came back after Retry-After", seen)


def _grows(evidence: TrialLog) -> Judgement:
    """Judge the pauses after answers without Retry-After."""
    tries = [each for each in evidence.pages() if each.hit.status in BUSY]
    if not tries:
        return not_applicable("it never asked for the page")
    pauses = [b.hit.started - a.hit.started for a, b in pairwise(tries)]
    told = ", ".join(f"{pause:.1f} s" for pause in pauses)
    if fault := failed_by(backed_off, tries, max_retries=_MOST_RETRIES):
        return fault
    if fault := failed_by(spaced, tries, f"the pauses were {told}"):
        return fault
    if len(pauses) > 1 and pauses[-1] <= pauses[0]:
        return failed(f"the pauses did not grow: {told}", tries)
    if not pauses:
        return passed("it did not come back within the run", tries)
    return passed(f"the pauses were {told}", tries)


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


_ALWAYS: Final = Site("always-503.example", "", {"/feed.xml": Reply("Not now.\n", 503)})
_ROBOTS: Final = Site(
    "robots-503.example",
    [_busy(503, str(_WAIT)), "User-agent: *\nDisallow: /no/\n"],
    {"/feed.xml": feed()},
)
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
    scenario(
        "R5", "always-503", "After 503 without Retry-After the pauses grow, and the tries end",
        _grows, _ALWAYS,
    ),
    scenario(
        "R5", "robots-503", "A Retry-After of robots.txt binds as that of any page", _held, _ROBOTS
    ),
    scenario(
        "R5", "hold-after-restart",
        "Retry-After is kept by a crawler that was killed and started again",
        _kept_over_restart, HELD, runs=(Run.KILLED, Run.RESTARTED),
    ),
)  # fmt: skip
