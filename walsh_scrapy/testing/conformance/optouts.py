"""Scenarios of R3: domains that opted out, in a list of the format `walsh-research-blocklist/v1`.

The command is given the URL of the list. If a crawler never requests it, none of these scenarios
applies.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.scenario import (
    HOPS,
    Run,
    Scenario,
    failed,
    failed_by,
    feed,
    not_applicable,
    passed,
    scenario,
)
from walsh_scrapy.testing.politeness import blocklist_kept
from walsh_scrapy.testing.site import Certificate, Fault, Reply, Site, redirect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from walsh_scrapy.testing.conformance.scenario import Conclusion, Seen, TrialLog

BLOCKLIST_URL: Final = "http://operator.example/blocklist.json"
_FORMAT: Final = "walsh-research-blocklist/v1"
#: Tested only with names, because an address has no upper case.
_IN_OTHER_CASE: Final = "Opted-In-Other-Case.EXAMPLE"
_DOMAINS: Final = ("optedout.example", _IN_OTHER_CASE, "optedout-page.example")
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


#: The successive answers for the list's URL. All but the first two must be ignored. The server
#: error comes last: a polite crawler then asks less and less often, and would see no other answer.
_ANSWERS: Final = {
    "first": _list(*_DOMAINS),
    "changed": _list(*_DOMAINS, _SOON, _LATER),
    "foreign": _list(contract="other-blocklist/v1"),
    "invalid": _json({"contract": _FORMAT, "refresh": "PT1S"}),
    "missing": Reply("Not here.\n", 404),
    "cut": replace(_list(*_DOMAINS), fault=Fault.TRUNCATE),
    "error": Reply("Broken.\n", 500),
}
#: How many answers are lists that a crawler may use.
_GOOD: Final = 2
#: Seconds for which a list is used at most. Its refresh is one second, but some crawlers have a
#: minimum of a minute, and a request may have waited for its turn.
_MAX_AGE_SECONDS: Final = 90.0
_OPERATOR: Final = Site("operator.example", "", {"/blocklist.json": list(_ANSWERS.values())})
_OUT: Final = Site("optedout.example", "", {"/feed.xml": feed()}, tls=Certificate.GOOD)
_OUT_PAGE: Final = Site("optedout-page.example", "", {"/": "A page.\n"})
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
_OUT_FEED: Final = f"http://{_OUT.host}/feed.xml"
#: Leads to the listed domain every few seconds: so a list that was lost is noticed within a run.
_SLOW_HOP: Final = Site(
    "to-optedout-slowly.example",
    "User-agent: *\nCrawl-delay: 8\n",
    {f"/{number}.xml": redirect(_OUT_FEED) for number in range(9)},
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
            return _takes_no_list()
        contacts = evidence.contacts_here(origin)
        reason = "it contacted a domain on the blocklist"
        if fault := failed_by(blocklist_kept, contacts, reason, lists[:1], blocked=[domain]):
            return fault
        if after and all(page.hit.path != after for page in evidence.pages(host=_HOP.host)):
            return not_applicable(f"it never requested {after}, which redirects there")
        return passed("no request went to a domain on the blocklist", lists)

    return check


def _takes_no_list() -> Conclusion:
    # The list comes before everything else, so a longer run would not show it.
    return not_applicable(f"it never requested the blocklist, {BLOCKLIST_URL}", is_final=True)


def _not_contacted_since(
    answer: str, domain: str, *runs: Run, until: str | None = None, was_open: bool = False
) -> Callable[[TrialLog], Conclusion]:
    """Return a check that fails if a domain was contacted after this answer of the list.

    Contacts after the answer `until` do not matter. The check does not apply unless the answer came
    in one of these runs (default: any). With `was_open` the answer is the first to list the domain,
    which must have been requested before.
    """
    names = [*_ANSWERS]
    number = names.index(answer)
    next_number = len(names) if until is None else names.index(until)

    def check(evidence: TrialLog) -> Conclusion:
        lists = _lists(evidence)
        end = inf if until is None else _begin_of(next_number, lists)
        lists = lists[number:]
        if not lists or (runs and lists[0].run not in runs):
            reason = f"it did not request the blocklist {number + 1} times"
            return not_applicable(reason, is_final=True)
        contacts = [contact for contact in evidence.contacts_here() if contact.hit.host == domain]
        later = [contact for contact in contacts if lists[0].hit.ended < contact.hit.started < end]
        reason = "it contacted a domain that was on the blocklist by then"
        if fault := failed_by(blocklist_kept, later, reason, lists[:1], blocked=[domain]):
            return fault
        if was_open and not contacts:
            return not_applicable(f"it never requested {domain}, even before it was listed")
        return passed("no request went to the domain after it was listed", [*contacts, *lists[:1]])

    return check


def _begin_of(number: int, lists: Sequence[Seen]) -> float:
    """Return when the list was requested for that time, counted from 0."""
    return lists[number].hit.started if number < len(lists) else inf


def _renewed(evidence: TrialLog) -> Conclusion:
    """Check that no request relies on a good list that is much older than its refresh."""
    lists = _lists(evidence)
    if not lists:
        return _takes_no_list()
    for contact in evidence.contacts_here():
        earlier = [request for request in lists if request.hit.ended <= contact.hit.started]
        if not 0 < len(earlier) <= _GOOD or contact.hit.host == _OPERATOR.host:
            continue
        if contact.hit.started - earlier[-1].hit.ended > _MAX_AGE_SECONDS:
            reason = f"it used a list of PT1S for more than {_MAX_AGE_SECONDS:g} s"
            return failed(reason, [earlier[-1], contact])
    if len(lists) < 2:
        reason = "it requested the blocklist once, and nothing a minute or more later"
        return not_applicable(reason)
    return passed("it requested the list again", lists)


def _with_names(check: Callable[[TrialLog], Conclusion]) -> Callable[[TrialLog], Conclusion]:
    """Return a check that applies only if the hosts have names."""

    def check_names(evidence: TrialLog) -> Conclusion:
        if not evidence.has_proxy:
            reason = "the hosts have addresses instead of names: use --proxy"
            return not_applicable(reason, is_final=True)
        return check(evidence)

    return check_names


_ALL_RUNS: Final = (Run.FIRST, Run.AGAIN, Run.FORCED, Run.RESTARTED)
_LONG_RUNS: Final = (Run.FIRST, Run.RESTARTED)


def _retained(name: str, answer: str, requirement: str, until: str | None = None) -> Scenario:
    """Return the scenario of a list that is answered so after it was adopted."""
    return Scenario(
        name, "R3", f"The last good list stays {requirement}",
        _not_contacted_since(answer, _OUT.host, until=until), (_SLOW_HOP, _OUT, _OPERATOR),
        (*(f"http://{_SLOW_HOP.host}{path}" for path in _SLOW_HOP.pages), _OUT_FEED),
        runs=_LONG_RUNS,
    )  # fmt: skip


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
    _retained(
        "list-retained", "foreign", "while the list is of another contract, invalid or missing",
        until="cut",
    ),
    _retained("list-cut", "cut", "while the list is cut off", until="error"),
    _retained("list-error", "error", "while the list answers 500"),
    scenario(
        "R3", "list-refreshed", "A domain that is listed later gets no request in later runs",
        _not_contacted_since("changed", _LATER, was_open=True), _OUT_LATER, _OPERATOR,
        runs=_ALL_RUNS,
    ),
    scenario(
        "R3", "list-expired", "A list is requested again after its refresh has passed",
        _renewed, _SLOW_HOP, _OPERATOR, runs=_LONG_RUNS,
    ),
    Scenario(
        "page-opted-out", "R3", "No page of a listed domain without a feed is requested",
        _never_contacted(_OUT_PAGE.host), (_OUT_PAGE, _OPERATOR), pages=(f"http://{_OUT_PAGE.host}/",),
    ),
)  # fmt: skip
