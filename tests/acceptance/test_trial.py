"""Each scenario of the conformance test, by this project's own crawls in simulated time."""

import fcntl
import json
import os
import subprocess
import sys

import pytest

from walsh_scrapy.feeds.attest.record import CHECKLIST
from walsh_scrapy.testing.conformance import SCENARIOS

#: What has no place in simulated time, or needs days: test_days and the tests on sockets have it.
NOT_HERE = {"opt-out-later", "one-connection", "pacing-after-restart"}
#: What the contract of Walsh-Research leaves open, and RFC 9309 does not.
OF_OTHER_BOTS = {"robots-error", "robots-reset", "robots-silent"}
#: Rows of which one day of forced runs shows nothing.
NOT_SHOWN = {"8"}


@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
def test_a_scenario_passes(found, name):
    finding = found("trial")[name]
    verdict = "not applicable" if name in NOT_HERE | OF_OTHER_BOTS else "pass"
    assert finding["verdict"] == verdict, finding["reason"]


@pytest.mark.parametrize("row", [row.number for row in CHECKLIST])
def test_the_audit_says_the_same(found, row):
    finding = found("trial")[f"row {row}"]
    verdict = "not shown" if row in NOT_SHOWN else "holds"
    assert finding["verdict"] == verdict, finding["reason"]


def test_no_log_has_a_traceback(found):
    assert "crash" not in found("trial"), found("trial")["crash"]["reason"]


# Twelve days of this project's crawls in simulated time: what their web saw, and the audit.

RULES = [f"R{number}" for number in range(1, 9)]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_kept(found, rule):
    assert found("days")[rule]["verdict"] == "pass", found("days")[rule]["reason"]


@pytest.mark.parametrize("row", [row.number for row in CHECKLIST])
def test_the_audit_shows_each_row(found, row):
    finding = found("days")[f"row {row}"]
    assert finding["verdict"] == "holds", finding["reason"]


def test_no_log_has_a_traceback_days(found):
    assert "crash" not in found("days"), found("days")["crash"]["reason"]


# What the process of `tests.acceptance.crawls` found, run once for all workers.


@pytest.fixture(scope="session")
def found(tmp_path_factory, pytestconfig):
    """Return a function: the name of a part -> its findings by their names."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def run(part):
        folder = shared / "acceptance"
        result = folder / f"{part}.json"
        with (shared / f"{part}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                command = [sys.executable, "-m", "tests.acceptance.crawls", folder, part]
                done = subprocess.run(
                    command, cwd=pytestconfig.rootpath, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, done.stderr
        return {finding["name"]: finding for finding in json.loads(result.read_text("utf-8"))}

    return run
