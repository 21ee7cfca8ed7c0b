"""R3: opt-outs that reached the operator, as a list in the form `walsh-research-blocklist/v1`.

The list is served at a URL that the command is given. A crawler that never requests it cannot know
opt-outs, so nothing here applies to it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.scenario import (
    HOPS,
    Run,
    failed_by,
    feed,
    not_applicable,
    passed,
    scenario,
)
from walsh_scrapy.testing.politeness import blocklist_kept
from walsh_scrapy.testing.site import Certificate, Reply, Site, redirect

if TYPE_CHECKING:
    from collections.abc import Callable

    from walsh_scrapy.testing.conformance.scenario import Conclusion, Seen, TrialLog

BLOCKLIST_URL: Final = "http://operator.example/blocklist.json"
_FORMAT: Final = "walsh-research-blocklist/v1"
#: A domain whose seeds are at addresses has no upper case: only names show that.
_IN_OTHER_CASE: Final = "Opted-In-Other-Case.EXAMPLE"
_DOMAINS: Final = ("optedout.example", _IN_OTHER_CASE)
#: Listed by the second answer.
_SOON: Final = "optedsoon.example"
_LATER: Final = "optedlater.example"


def _list(*domains: str, contract: str = _FORMAT) -> Reply:
    blocked = [{"domain": name, "added": "2026-01-01", "reason": "by mail"} for name in domains]
    return _json(
        {
            "contract": contract,
            "updated": "2026-01-01T00:00:00Z",
            "operator": "the conformance test",
            "contact": "test@operator.example.org",
            "policy": "https://operator.example.org/bot/",
            "refresh": "PT1S",
            "blocked": blocked,
        }
    )


def _json(document: object) -> Reply:
    return Reply(json.dumps(document), content_type="application/json")


#: The answers of the list. A document of another contract and one without `blocked` must not be
#: adopted. A polite crawler requests a host with server errors (500) less and less often, and would
#: never see another answer.
_ANSWERS: Final = {
    "first": _list(*_DOMAINS),
    "changed": _list(*_DOMAINS, _SOON, _LATER),
    "foreign": _list(contract="other-blocklist/v1"),
    "invalid": _json({"contract": _FORMAT, "refresh": "PT1S"}),
    "missing": Reply("Not here.\n", 404),
}
_OPERATOR: Final = Site("operator.example", "", {"/blocklist.json": list(_ANSWERS.values())})
_OUT: Final = Site("optedout.example", "", {"/feed.xml": feed()}, tls=Certificate.GOOD)
_OTHER_CASE: Final = Site(_IN_OTHER_CASE.lower(), "", {"/feed.xml": feed()})
_SUBDOMAIN: Final = Site("www.optedout.example", "", {"/feed.xml": feed()})
_OUT_LATER: Final = Site(_LATER, "", {"/feed.xml": feed()})
#: So slow that its last pages are due when a list is a minute old.
_OUT_SOON: Final = Site(
    _SOON,
    "User-agent: *\nCrawl-delay: 13\n",
    {f"/{number}.xml": feed() for number in range(5)},
)
#: The origins to which redirects and second hops lead.
_ORIGINS: Final = {
    "host": f"http://{_OUT.host}/",
    "scheme": f"https://{_OUT.host}/",
    "port": f"http://{_OUT.host}:8080/",
}
_HOP: Final = Site(
    "to-optedout.example",
    "",
    {"/a.xml": redirect(f"http://{_OUT.host}/b.xml")}
    | {f"/1/{kind}": redirect(f"/2/{kind}") for kind in HOPS}
    | {f"/2/{kind}": redirect(f"{_ORIGINS[kind]}b.xml") for kind in HOPS},
)


def _lists(evidence: TrialLog) -> list[Seen]:
    return evidence.pages(host=_OPERATOR.host)


def _left_alone(
    domain: str = _OUT.host, after: str = "", origin: str = ""
) -> Callable[[TrialLog], Conclusion]:
    """Return a check that fails if a listed domain was contacted in any run, for robots.txt too.

    The path `after`, which leads there, must have been requested. With an origin only the contacts
    with that origin count.
    """

    def check(evidence: TrialLog) -> Conclusion:
        lists = _lists(evidence)
        if not lists:
            return not_applicable(f"it never requested the list of opt-outs ({BLOCKLIST_URL})")
        seen = [
            contact for contact in evidence.contacts_here() if contact.hit.url.startswith(origin)
        ]
        reason = "it requested from a host that has opted out"
        if fault := failed_by(blocklist_kept, seen, reason, lists[:1], blocked=[domain]):
            return fault
        if after and all(page.hit.path != after for page in evidence.pages(host=_HOP.host)):
            return not_applicable(f"it never requested {after}, which redirects there")
        return passed("no request reached a listed domain", lists)

    return check


def _left_alone_since(
    answer: str, domain: str, *runs: Run, was_open: bool = False
) -> Callable[[TrialLog], Conclusion]:
    """Return a check that fails if a domain was contacted after that answer of the list.

    The answer must have come in one of these runs (default: any). With `was_open` the domain must
    have been requested before: the answer is the first to list it.
    """
    number = [*_ANSWERS].index(answer)

    def check(evidence: TrialLog) -> Conclusion:
        lists = _lists(evidence)[number:]
        if not lists or (runs and lists[0].run not in runs):
            return not_applicable(f"it did not request the list of opt-outs {number + 1} times")
        contacts = [contact for contact in evidence.contacts_here() if contact.hit.host == domain]
        later = [contact for contact in contacts if contact.hit.started > lists[0].hit.ended]
        reason = "it requested from a host that had opted out"
        if fault := failed_by(blocklist_kept, later, reason, lists[:1], blocked=[domain]):
            return fault
        if was_open and not contacts:
            return not_applicable(f"it never requested {domain}, even before it was listed")
        return passed("no request reached the domain after that list", [*contacts, *lists[:1]])

    return check


def _with_names(check: Callable[[TrialLog], Conclusion]) -> Callable[[TrialLog], Conclusion]:
    """Return a check that applies only where the hosts have names."""

    def check_names(evidence: TrialLog) -> Conclusion:
        if not evidence.has_proxy:
            return not_applicable("the hosts are addresses and have no names: try --proxy")
        return check(evidence)

    return check_names


_ALL_RUNS: Final = (Run.FIRST, Run.AGAIN, Run.FORCED, Run.RESTARTED)

SCENARIOS: Final = (
    scenario(
        "R3", "opted-out", "No request goes to a listed domain, not even for robots.txt",
        _left_alone(), _OUT, _OPERATOR,
    ),
    scenario(
        "R3", "opted-out-subdomain", "No request goes to a subdomain of a listed domain",
        _with_names(_left_alone()), _SUBDOMAIN, _OPERATOR,
    ),
    scenario(
        "R3", "opted-out-case", "A listed domain is the same in any case",
        _with_names(_left_alone(_OTHER_CASE.host)), _OTHER_CASE, _OPERATOR,
    ),
    scenario(
        "R3", "redirect-to-opted-out", "No redirect is followed to a listed domain",
        _left_alone(after="/a.xml"), _HOP, _OUT, _OPERATOR, paths=["/a.xml"],
    ),
    *(
        scenario(
            "R3", f"opted-out-hop-{kind}",
            f"The second hop of a redirect, to another {kind}, is not followed to a listed domain",
            _left_alone(after=f"/2/{kind}", origin=_ORIGINS[kind]),
            _HOP, _OUT, _OPERATOR, paths=[f"/1/{kind}"],
        )
        for kind in HOPS
    ),
    scenario(
        "R3", "list-changed", "A domain that is listed during a run gets no request from then on",
        _left_alone_since("changed", _SOON, Run.FIRST, was_open=True), _OUT_SOON, _OPERATOR,
    ),
    scenario(
        "R3", "list-retained",
        "The last good list stays while the list is of another contract, invalid or missing",
        _left_alone_since("foreign", _OUT.host), _OUT, _OPERATOR, runs=_ALL_RUNS,
    ),
    scenario(
        "R3", "list-refreshed", "A domain that is listed later gets no request in later runs",
        _left_alone_since("changed", _LATER, was_open=True), _OUT_LATER, _OPERATOR, runs=_ALL_RUNS,
    ),
)  # fmt: skip
