"""The audit of pauses and holds: whose hold it is, for how long, and what ends it (R4, R5)."""

import pytest

from walsh_scrapy.policy.audit.checklist import Findings
from walsh_scrapy.policy.audit.pauses import HostAudit
from walsh_scrapy.policy.audit.record import (
    DAY,
    Basis,
    Documents,
    LoggedAct,
    LoggedRequest,
    RunFacts,
    RunTerms,
)
from walsh_scrapy.policy.audit.visits import FrequencyAudit

YEAR = 365 * DAY
TERMS = RunTerms(0.0, None, RunFacts("", "", "", ""))


def sent(at, url="http://a.example/feed", host="a.example", **columns):
    """A request that took a second."""
    empty = dict.fromkeys(LoggedRequest._fields)
    given = {"id": at, "sent_at": at, "host": host, "url": url, "seconds": 1.0, "status": 200}
    return LoggedRequest(
        **empty | given | {"purpose": "target", "pause": 0.0, "hold": 0.0} | columns
    )


def released(at, host="a.example"):
    return LoggedAct(1, at, host, "release", 0.0, "")


def kinds(*requests, acts=(), list_hosts=frozenset()):
    findings = Findings()
    audit = HostAudit(findings, Basis({}, acts, list_hosts, Documents({}.get)))
    for each in requests:
        audit.see(each)
    audit.end()
    return {kind.label: found.count for kind, found in findings.found.items()}


def test_a_hold_counts_for_the_list_for_a_day_from_its_begin():
    """Also for the second request after that day, whose record says what is left of the hold."""
    refused = sent(0.0, status=429, hold=YEAR)
    robots = sent(DAY + 1.0, "http://a.example/robots.txt", purpose="robots", hold=YEAR - DAY - 1)
    the_list = sent(DAY + 3.0, purpose="blocklist", hold=YEAR - DAY - 3)
    hosts = frozenset({"a.example"})
    assert kinds(refused, robots, the_list, list_hosts=hosts) == {}
    assert kinds(refused, robots, list_hosts=frozenset()) == {"too-early": 1}
    assert kinds(refused, sent(9.0, purpose="blocklist"), list_hosts=hosts) == {"too-early": 1}
    assert kinds(refused, sent(DAY + 1.0), list_hosts=hosts) == {"too-early": 1}, "no target"


def test_a_release_ends_the_hold_before_it_and_no_later_one():
    refused, acts = sent(0.0, status=429, hold=YEAR), [released(10.0)]
    again = sent(12.0, status=429, hold=100.0)
    assert kinds(refused, sent(9.0), sent(12.0), acts=acts) == {"too-early": 1}
    assert kinds(refused, again, sent(20.0), acts=acts) == {"too-early": 1}
    assert kinds(refused, again, sent(113.0), acts=acts) == {}


@pytest.mark.parametrize(
    ("act", "found"), [("b.example.com.", {"too-early": 1}), ("a.example.com.", {})]
)
def test_by_domain_a_pause_is_that_of_the_domain_and_a_hold_that_of_a_host(act, found):
    """The name of such a hold ends in a dot (decision 5)."""
    a, b = ("http://a.example.com/", "example.com"), ("http://b.example.com/", "example.com")
    refused = sent(0.0, *a, status=429, hold=100.0)
    assert kinds(refused, sent(1.5, *b)) == {"short-pause": 1}
    acts = [released(1.0, act)]
    assert kinds(refused, sent(2.0, *b), sent(5.0, *a), acts=acts) == found


@pytest.mark.parametrize(
    ("purpose", "status", "found"),
    [
        ("target", 500, {}),
        ("robots", 500, {"no-hold": 1}),
        ("target", 503, {"no-hold": 1}),
        ("blocklist", 429, {"no-hold": 1}),
        ("target", None, {}),
    ],
)
def test_a_refusal_needs_a_hold(purpose, status, found):
    assert kinds(sent(0.0, purpose=purpose, status=status)) == found


@pytest.mark.parametrize(("error", "found"), [("", 1), ("given up: the crawl ended", 0)])
def test_an_answer_that_was_given_up_is_no_visit(error, found):
    findings = Findings()
    basis = Basis({1: TERMS, 2: TERMS}, (), frozenset(), Documents({}.get))
    audit = FrequencyAudit(findings, basis)
    for each in (sent(0.0, run=1, error=error), sent(9.0, run=2, error="")):
        audit.see(each)
    assert sum(each.count for each in findings.found.values()) == found
