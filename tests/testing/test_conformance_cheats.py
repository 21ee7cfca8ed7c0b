"""The conformance test passes a polite stranger, and no crawler that cheats."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers import ROOT
from walsh_scrapy.testing.conformance import Verdict, run
from walsh_scrapy.testing.conformance.trial import UNAVOIDABLE

pytestmark = pytest.mark.crawl
CHEAT = [sys.executable, str(ROOT / "tests" / "helpers" / "cheat.py"), "{seeds}", "{folder}"]
POLITE = [sys.executable, str(ROOT / "benchmarks" / "conformance" / "polite.py"), *CHEAT[2:]]


def test_a_polite_crawler_that_knows_nothing_of_this_project_passes():
    card = run(POLITE, [*UNAVOIDABLE, "429-seconds", "long-hold", "wildcard-over-segments"])
    assert {each.finding.verdict for each in card.results} == {Verdict.PASS}, card.results
    assert card.keeps_what_was_tried
    assert not card.is_conformant, "these are not all scenarios"


@pytest.mark.parametrize(
    "how",
    [
        *("one-robots", "ten-requests", "first-host", "browser", "follows-entries", "images"),
        *("no-robots-later", "two-names", "page-first", "hasty", "as-anybody"),
    ],
)
def test_a_crawler_that_cheats_does_not_pass(how):
    card = run([*CHEAT, how], UNAVOIDABLE)
    assert card.failed or card.not_shown
    assert not card.keeps_what_was_tried


@pytest.mark.parametrize(
    ("how", "rules", "failed"),
    [
        ("fast-https", ["robots-of-each-scheme", "one-a-second"], "one-a-second"),
        ("fast-later", ["robots-kept", "one-a-second"], "one-a-second"),
        ("fast-at-ports", ["robots-of-each-port", "one-a-second"], "one-a-second"),
        ("idle", ["one-a-second", "one-connection"], "one-connection"),
        ("idle", ["one-a-second", "serial"], "serial"),
        ("at-once-again", ["no-answer"], "no-answer"),
        ("four-at-once", ["no-answer"], "no-answer"),
    ],
)
def test_a_crawler_that_is_polite_only_where_it_expects_a_look_does_not_pass(how, rules, failed):
    """`polite.py`, on which it is built, passes all of these."""
    card = run([*CHEAT, how], rules)
    assert failed in [each.scenario.name for each in card.failed], card.results
    assert not card.keeps_what_was_tried


def test_the_crawler_that_the_cheats_are_built_on_passes_there():
    names = ["robots-of-each-scheme", "robots-of-each-port", "robots-kept", "one-a-second"]
    card = run(POLITE, [*names, "one-connection", "serial", "no-answer"])
    assert not card.failed, [each.finding for each in card.failed]


def test_what_a_command_leaves_behind_is_ended_and_counted(tmp_path):
    card = run([*CHEAT, "daemon", str(tmp_path / "pids")], ["robots-first"])
    assert card.calls[0].daemons == 1
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            pytest.fail(f"process {pid} still runs")
    assert not list(Path.cwd().glob("nohup.out"))


def test_of_what_a_command_writes_the_end_is_kept():
    card = run([*CHEAT, "floods"], ["robots-first"])
    assert card.output.endswith("the end\n")
    assert len(card.output) <= 4000


def test_a_command_that_was_killed_says_so():
    card = run([*CHEAT, "kills-itself"], ["robots-first"])
    assert card.calls[0].exit_status == -signal.SIGKILL
