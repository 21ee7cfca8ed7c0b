"""Scenarios of R3: domains that opted out, in a list of the format `walsh-research-blocklist/v1`.

The command is given the URL of the list. If a crawler never requests it, none of these scenarios
applies.
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
#: Tested only with names, because an address has no upper case.
_IN_OTHER_CASE: Final = "Opted-In-Other-Case.EXAMPLE"
_DOMAINS: Final = ("optedout.example", _IN_OTHER_CASE)
#: Listed from the second answer on.
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


#: The successive answers for the list's URL. The foreign and the invalid document must be ignored.
#: No answer is a server error (500): a polite crawler would then ask less and less often, and never
#: see the next answer.
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
#: So slow that its last pages are requested a minute after the list.
_OUT_SOON: Final = Site(
    _SOON, "User-agent: *\nCrawl-delay: 13\n", {f"/{number}.xml": feed() for number in range(5)}
)
#: The URLs of the listed domain to which the second redirect leads.
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


def _never_contacted(
    domain: str = _OUT.host, after: str = "", origin: str = ""
) -> Callable[[TrialLog], Conclusion]:
    """Return a check that fails if a listed domain was contacted in any run, even for robots.txt.

    The check does not apply if the path `after`, which redirects there, was not requested. With an
    `origin` only contacts with URLs below it matter.
    """

    def check(evidence: TrialLog) -> Conclusion:
        lists = _lists(evidence)
        if not lists:
            return not_applicable(f"it never requested the blocklist, {BLOCKLIST_URL}")
        contacts = evidence.contacts_here(origin)
        reason = "it contacted a domain on the blocklist"
        if fault := failed_by(blocklist_kept, contacts, reason, lists[:1], blocked=[domain]):
            return fault
        if after and all(page.hit.path != after for page in evidence.pages(host=_HOP.host)):
            return not_applicable(f"it never requested {after}, which redirects there")
        return passed("no request went to a domain on the blocklist", lists)

    return check


def _not_contacted_since(
    answer: str, domain: str, *runs: Run, was_open: bool = False
) -> Callable[[TrialLog], Conclusion]:
    """Return a check that fails if a domain was contacted after this answer of the list.

    The check does not apply unless the answer came in one of these runs (default: any). With
    `was_open` the answer is the first to list the domain, which must have been requested before.
    """
    number = [*_ANSWERS].index(answer)

    def check(evidence: TrialLog) -> Conclusion:
        lists = _lists(evidence)[number:]
        if not lists or (runs and lists[0].run not in runs):
            return not_applicable(f"it did not request the blocklist {number + 1} times")
        contacts = [contact for contact in evidence.contacts_here() if contact.hit.host == domain]
        later = [contact for contact in contacts if contact.hit.started > lists[0].hit.ended]
        reason = "it contacted a domain that was on the blocklist by then"
        if fault := failed_by(blocklist_kept, later, reason, lists[:1], blocked=[domain]):
            return fault
        if was_open and not contacts:
            return not_applicable(f"it never requested {domain}, even before it was listed")
        return passed("no request went to the domain after it was listed", [*contacts, *lists[:1]])

    return check


def _with_names(check: Callable[[TrialLog], Conclusion]) -> Callable[[TrialLog], Conclusion]:
    """Return a check that applies only if the hosts have names."""

    def check_names(evidence: TrialLog) -> Conclusion:
        if not evidence.has_proxy:
            return not_applicable("the hosts have addresses instead of names: use --proxy")
        return check(evidence)

    return check_names


_ALL_RUNS: Final = (Run.FIRST, Run.AGAIN, Run.FORCED, Run.RESTARTED)

SCENARIOS: Final = (
    scenario(
        "R3", "opted-out", "No request goes to a listed domain, not even for robots.txt",
        _never_contacted(), _OUT, _OPERATOR,
    ),
    scenario(
        "R3", "opted-out-subdomain", "No request goes to a subdomain of a listed domain",
        _with_names(_never_contacted()), _SUBDOMAIN, _OPERATOR,
    ),
    scenario(
        "R3", "opted-out-case", "A listed domain is the same in any case",
        _with_names(_never_contacted(_OTHER_CASE.host)), _OTHER_CASE, _OPERATOR,
    ),
    scenario(
        "R3", "redirect-to-opted-out", "No redirect is followed to a listed domain",
        _never_contacted(after="/a.xml"), _HOP, _OUT, _OPERATOR, paths=["/a.xml"],
    ),
    *(
        scenario(
            "R3", f"opted-out-hop-{kind}",
            f"The second hop of a redirect, to another {kind}, is not followed to a listed domain",
            _never_contacted(after=f"/2/{kind}", origin=_ORIGINS[kind]),
            _HOP, _OUT, _OPERATOR, paths=[f"/1/{kind}"],
        )
        for kind in HOPS
    ),
    scenario(
        "R3", "list-changed", "A domain that is listed during a run gets no request from then on",
        _not_contacted_since("changed", _SOON, Run.FIRST, was_open=True), _OUT_SOON, _OPERATOR,
    ),
    scenario(
        "R3", "list-retained",
        "The last good list stays while the list is of another contract, invalid or missing",
        _not_contacted_since("foreign", _OUT.host), _OUT, _OPERATOR, runs=_ALL_RUNS,
    ),
    scenario(
        "R3", "list-refreshed", "A domain that is listed later gets no request in later runs",
        _not_contacted_since("changed", _LATER, was_open=True), _OUT_LATER, _OPERATOR,
        runs=_ALL_RUNS,
    ),
)  # fmt: skip
