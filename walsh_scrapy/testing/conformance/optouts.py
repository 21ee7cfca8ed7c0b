"""R3: opt-outs that reached the operator, as a list in the form `walsh-research-blocklist/v1`.

The list is served at a URL that the command is given. A crawler that never requests it cannot know
opt-outs, so nothing here applies to it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.scenario import (
    Run,
    failed_by,
    feed,
    not_applicable,
    passed,
    scenario,
)
from walsh_scrapy.testing.politeness import blocklist_kept
from walsh_scrapy.testing.site import Reply, Site, redirect

if TYPE_CHECKING:
    from collections.abc import Callable

    from walsh_scrapy.testing.conformance.scenario import Conclusion, TrialLog

BLOCKLIST_URL: Final = "http://operator.example/blocklist.json"
_LIST: Final = {
    "contract": "walsh-research-blocklist/v1",
    "updated": "2026-01-01T00:00:00Z",
    "operator": "the conformance test",
    "contact": "test@operator.example.org",
    "policy": "https://operator.example.org/bot/",
    "refresh": "PT1S",
    "blocked": [{"domain": "optedout.example", "added": "2026-01-01", "reason": "by mail"}],
}
#: The later answers of the list: a document that must not be adopted (no `blocked`), then none, and
#: last one with another domain. A polite crawler requests a host with server errors (500) less and
#: less often, and would never see another answer.
_BAD_LIST: Final = json.dumps({"contract": "walsh-research-blocklist/v1", "refresh": "PT1S"})
_LATER_DOMAIN: Final = {"domain": "optedlater.example", "added": "2026-01-02", "reason": "by mail"}
_LATER_LIST: Final = _LIST | {"blocked": [*_LIST["blocked"], _LATER_DOMAIN]}
#: Requests for the list of which the last gets the invalid one.
_WITH_BAD: Final = 2
#: The one that gets the list with another domain.
_WITH_LATER: Final = 4
_JSON: Final = "application/json"
_OPERATOR: Final = Site(
    "operator.example",
    "",
    {
        "/blocklist.json": [
            Reply(json.dumps(_LIST), content_type=_JSON),
            Reply(_BAD_LIST, content_type=_JSON),
            Reply("Not here.\n", 404),
            Reply(json.dumps(_LATER_LIST), content_type=_JSON),
        ]
    },
)
_OUT: Final = Site("optedout.example", "", {"/feed.xml": feed()})
_OUT_LATER: Final = Site("optedlater.example", "", {"/feed.xml": feed()})
_SUBDOMAIN: Final = Site("www.optedout.example", "", {"/feed.xml": feed()})
_HOP: Final = Site("to-optedout.example", "", {"/a.xml": redirect("http://optedout.example/b.xml")})


def _left_alone(after: str | None = None, *, bad: bool = False) -> Callable[[TrialLog], Conclusion]:
    """Return a check that fails if a listed host was contacted in any run, for robots.txt too.

    With `bad` the list must be fetched when it is invalid, and later requests are checked.
    """

    def check(evidence: TrialLog) -> Conclusion:
        lists = evidence.pages(host=_OPERATOR.host)
        if not lists:
            return not_applicable(f"it never requested the list of opt-outs ({BLOCKLIST_URL})")
        seen, reason = evidence.contacts_here(), "it requested from a host that has opted out"
        seen = [each for each in seen if not bad or each.run not in (Run.FIRST, Run.AGAIN)]
        if fault := failed_by(blocklist_kept, seen, reason, lists[:1], blocked=[_OUT.host]):
            return fault
        if bad and len(lists) < _WITH_BAD:
            return not_applicable("it never requested the list again, which is invalid then")
        if after and not evidence.pages(host=after):
            return not_applicable(f"it never requested {after}, which redirects there")
        return passed("no request reached a listed domain", lists)

    return check


def _refreshed(evidence: TrialLog) -> Conclusion:
    """Check the requests after the answer that has another domain."""
    lists = evidence.pages(host=_OPERATOR.host)[_WITH_LATER - 1 :]
    requested = [each for each in evidence.contacts_here() if each.hit.host == _OUT_LATER.host]
    if not lists:
        return not_applicable("it did not request the list once more in a later run")
    adopted = lists[0].hit.ended
    after = [each for each in requested if each.hit.started > adopted]
    reason = "it requested from a host that had opted out meanwhile"
    if fault := failed_by(blocklist_kept, after, reason, lists[:1], blocked=[_OUT_LATER.host]):
        return fault
    if not requested:
        return not_applicable(f"it never requested {_OUT_LATER.host}, even before it was listed")
    return passed("no request reached the domain once it was listed", [*requested, *lists[:1]])


def _subdomain_left_alone(evidence: TrialLog) -> Conclusion:
    if not evidence.has_proxy:
        return not_applicable("the hosts are addresses, which have no subdomains: try --proxy")
    return _left_alone()(evidence)


SCENARIOS: Final = (
    scenario(
        "R3", "opted-out", "No request goes to a listed domain, not even for robots.txt",
        _left_alone(), _OUT, _OPERATOR,
    ),
    scenario(
        "R3", "opted-out-subdomain", "No request goes to a subdomain of a listed domain",
        _subdomain_left_alone, _SUBDOMAIN, _OPERATOR,
    ),
    scenario(
        "R3", "redirect-to-opted-out", "No redirect is followed to a listed domain",
        _left_alone(_HOP.host), _HOP, _OUT, _OPERATOR,
    ),
    scenario(
        "R3", "list-retained",
        "The last good list stays in force while the list is invalid or cannot be fetched",
        _left_alone(bad=True), _OUT, _OPERATOR, runs=(Run.FIRST, Run.FORCED),
    ),
    scenario(
        "R3", "list-refreshed", "A domain gets no request once the list has it",
        _refreshed, _OUT_LATER, _OPERATOR,
        runs=(Run.FIRST, Run.AGAIN, Run.FORCED, Run.RESTARTED),
    ),
)  # fmt: skip
