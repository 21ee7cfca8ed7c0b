"""The mutants of `python -m benchmarks.mutants` fit the code, so none is the crawler itself."""

import re
import shlex
import subprocess
import sys

import pytest

from benchmarks.mutants.__main__ import options_of
from benchmarks.mutants.judges import ENDLESS, Findings
from benchmarks.mutants.mutant import CONTROL, ROOT, Mutant, Patch, PatchError, write_project
from benchmarks.mutants.patches import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_patch_applies_once_and_the_module_knows_its_names(mutant):
    changed = mutant.sources()
    assert changed.keys() == {patch.module for patch in mutant.patches}
    for module, source in changed.items():
        assert source != (ROOT / module).read_text("utf-8")
        names = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", "-"]
        found = subprocess.run(names, input=source, capture_output=True, text=True, check=False)
        assert found.returncode in (0, 1), found.stderr
        assert not found.returncode, f"{module} would crash: {found.stdout}"


def test_there_are_enough_of_them_and_each_rule_is_broken():
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) >= 40
    assert len({*names, CONTROL.name}) == len(names) + 1
    assert {mutant.rule for mutant in MUTANTS} == {f"R{number}" for number in range(1, 10)}


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (Patch("walsh_scrapy/policy/pacing.py", "delay_after", "no such text", ""), "0 times"),
        (Patch("walsh_scrapy/policy/pacing.py", "HostTimes.after", "times", ""), "not once"),
        (Patch("walsh_scrapy/policy/pacing.py", "nobody", "", ""), "has no nobody"),
        (
            Patch("walsh_scrapy/policy/pacing.py", "delay_after", "return max", "return ("),
            "compile",
        ),
        (Patch("nothing.py", "f", "", ""), "No such file"),
        (Patch("walsh_scrapy/feeds/attest/record.py", "f", "", ""), "belongs to the checks"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.place,
)
def test_a_patch_that_does_not_fit_is_named_with_the_reason(patch, why):
    with pytest.raises(PatchError, match=why) as caught:
        Mutant("broken", "R4", "", (patch,)).sources()
    assert str(caught.value).startswith("broken: ")


def test_a_mutant_differs_from_the_project_in_its_patches(tmp_path):
    project = write_project(MUTANTS[0], tmp_path)
    different = {
        str(path.relative_to(project))
        for path in project.rglob("*")
        if path.is_file() and path.read_bytes() != (ROOT / path.relative_to(project)).read_bytes()
    }
    assert different == {patch.module for patch in MUTANTS[0].patches}


def test_a_check_that_only_the_crawler_passes_is_found():
    known = {"trial": {"case": "pass", "visit-time": "fail"}, "attest": {"2 (days)": "holds"}}
    control = Findings(known, {})
    assert control.worse_than(control) == {"trial": [], "attest": []}
    verdicts = {"trial": {"case": "not applicable"}, "attest": {"2 (days)": "does not hold"}}
    mutant = Findings(verdicts, {"attest 2 (days)": "denied"})
    assert mutant.worse_than(control) == {"trial": ["case"], "attest": ["2 (days) denied"]}
    assert Findings({}, {}, ENDLESS).worse_than(control) == {"trial": [f"crashed: {ENDLESS}"]}


@pytest.mark.parametrize(
    "mutant", [mutant for mutant in MUTANTS if mutant.tests], ids=lambda mutant: mutant.name
)
def test_the_tests_that_are_asked_are_there(mutant):
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text("utf-8")


def test_the_calls_in_the_docs_are_right():
    text = (ROOT / "docs" / "conformance.md").read_text("utf-8")
    calls = re.findall(r"`python -m benchmarks\.mutants\b([^`]*)`", text)
    assert calls
    for call in calls:
        options_of(shlex.split(call))


def test_the_table_of_results_has_each_mutant():
    table = (ROOT / "benchmarks" / "mutants" / "RESULTS.md").read_text("utf-8")
    rows = re.findall(r"^\| (R\d) \| `([\w-]+)`: (.+?) \|(?: .+ \|){4}$", table, re.MULTILINE)
    assert rows == [(mutant.rule, mutant.name, mutant.what) for mutant in MUTANTS]
