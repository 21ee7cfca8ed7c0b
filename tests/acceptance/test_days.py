"""Twelve days of this project's crawls in simulated time: what their web saw, and the audit."""

import pytest

from walsh_scrapy.policy.audit.checklist import CHECKLIST

RULES = [f"R{number}" for number in range(1, 9)]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_kept(found, rule):
    assert found("days")[rule]["verdict"] == "pass", found("days")[rule]["reason"]


@pytest.mark.parametrize("row", [row.number for row in CHECKLIST])
def test_the_audit_shows_each_row(found, row):
    finding = found("days")[f"row {row}"]
    assert finding["verdict"] == "holds", finding["reason"]


def test_no_log_has_a_traceback(found):
    assert "crash" not in found("days"), found("days")["crash"]["reason"]
