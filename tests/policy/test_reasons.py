"""Failures are grouped by their reasons, whatever the hosts are called."""

import pytest

from walsh_scrapy.policy.reasons import ReasonGroups, kind_of, shorten


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
