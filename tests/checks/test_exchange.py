"""An exchange, its Retry-After, and how exactly its times are known."""

from pathlib import Path

import pytest

from walsh_scrapy.checks import PRECISIONS, Exchange

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
NOW = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC


def refused(*values, status=429):
    headers = tuple(("Retry-After", value) for value in values)
    return Exchange(4.0, 5.0, "a.example", "http://a.example/", status, headers)


@pytest.mark.parametrize(
    ("values", "until"),
    [
        (["120"], 125.0),
        ([" 120\t"], 125.0),
        (["120", "7200", "soon"], 7205.0),
        (["Mon, 21 Sep 2026 14:13:30 GMT"], 10.0),
        (["Monday, 21-Sep-26 14:13:30 GMT"], 10.0),
        (["Mon Sep 21 14:13:30 2026"], 10.0),
        (["Tue Sep  1 14:13:30 2026"], 10.0 - 20 * 86_400),
        (["Mon, 31 Feb 2026 14:13:30 GMT"], None),
        (["Mon, 21 Sep 2026 14:13:30 +0200"], None),
        (["2026-09-21"], None),
        (["-5"], None),
        (["\uff11\uff12\uff10"], None),
        ([""], None),
        ([], None),
    ],
)  # fmt: skip
def test_a_retry_after_in_each_form(values, until):
    assert refused(*values).held_until(offset=NOW) == until


def test_an_endless_number_is_for_ever():
    assert refused("9" * 5000).held_until() == float("inf")


def test_only_a_refusal_has_one():
    assert refused("120", status=503).held_until() == 125.0
    assert refused("120", status=301).held_until() is None


def test_a_moment_is_certain_beyond_the_tolerance():
    for precision in PRECISIONS:
        assert precision.is_before(1.0, 1.001 + precision.tolerance)
        assert not precision.is_before(1.0, 1.0 + precision.tolerance)


def test_the_docs_have_a_table_of_these():
    """It is made from the code: print it, where this fails."""
    rows = [
        f"| {each.evidence} | {each.tolerance:g} s | {each.slack:g} s | {each.date:g} s |"
        for each in PRECISIONS
    ]
    assert "\n".join(["|---|---|---|---|", *rows, ""]) in PAGE.read_text(encoding="utf-8")
