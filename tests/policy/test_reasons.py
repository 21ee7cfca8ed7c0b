"""Failures are grouped by their reasons, and whose failure it is (decision 29)."""

import pytest

from walsh_scrapy.policy.reasons import Connectivity, ReasonGroups, kind_of, shorten

WORKED = None


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("a.example answered 404", "answered 404"),
        ("a.example timed out: Getting http://a.example/feed took long", "timed out"),
        ("the DNS has no address for a.example", "the DNS has no address for the host"),
        (
            "TLS: the certificate of a.example expired on 2025-01-01",
            "TLS: the certificate of the host expired on …",
        ),
        ("Not a feed but HTML (served as text/html; charset=utf-8).", "Not a feed but HTML"),
        ("no response from a.example: lost", "no response from the host: lost"),
        ("aa.example.org answered 404", "aa.example.org answered 404"),
        ("", ""),
    ],
)
def test_a_kind_of_failure_names_no_host(reason, kind):
    assert kind_of(reason, "a.example") == kind


def test_hosts_of_one_reason_are_one_line():
    groups = ReasonGroups()
    for number in range(12):
        groups.add(f"h{number}.example", f"h{number}.example timed out: after {number} s")
    for name in ("x", "y", "x"):
        groups.add(f"{name}.example", f"{name}.example answered 404")
    slow, lost = groups.largest_first()
    assert slow.line() == "12 timed out: h0.example, h1.example and 10 more hosts"
    assert lost.line() == "3 answered 404: x.example, y.example"


def test_a_list_of_one_more_than_is_shown():
    assert shorten(("a", "b", "c"), 2) == "a, b and 1 more host"
    assert shorten((), 2) == ""


@pytest.mark.parametrize(
    ("events", "found", "offline"),
    [
        ([], [], False),
        ([WORKED], [], False),
        (["a"], ["unknown"], True),
        (["a", "a", "a", "a"], ["unknown"] * 4, True),  # one host proves nothing
        (["a", "b", "a", "b"], ["unknown"] * 4, True),
        ([*"abcde"], [*["unknown"] * 4, "machine"], True),
        ([*"abcdea"], [*["unknown"] * 4, "machine", "machine"], True),
        ([WORKED, "a", "b", "c"], ["host"] * 3, False),
        (["a", "b", WORKED, "c", "a"], ["unknown", "unknown", "host", "host"], False),
    ],
)
def test_whose_failure_it_is(events, found, offline):
    """A machine that is offline fails no source, and a dead name server no machine."""
    connectivity = Connectivity()
    verdicts = []
    for event in events:
        if event is WORKED:
            connectivity.record_success()
        else:
            verdicts.append(connectivity.fault_of(event))
    assert verdicts == found
    assert connectivity.offline is offline
