"""`python -m benchmarks.mutants [NAME...]`: the checks that find a broken crawler.

It prints a Markdown table with a row for each mutant, and at its end those that nothing found. A
test runs only on a mutant that nothing else finds. First the crawler as it is, is checked: if a
test fails, or no verdict is possible, the benchmark stops.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.mutants.judges import Findings, failed_test, simulated
from benchmarks.mutants.mutant import CONTROL, Mutant, PatchError, write_project
from benchmarks.mutants.patches import MUTANTS
from benchmarks.report import Figure, Report

#: The columns: the checks in simulated time, and the test that ran last.
_COLUMNS = ("trial", "days", "attest", "test")
_MAX_NAMED = 3


def main(words: Sequence[str]) -> int:
    """Check the mutants that the words name; return the exit status."""
    options = options_of(words)
    mutants = [mutant for mutant in MUTANTS if not options.names or mutant.name in options.names]
    report = Report("mutants", words, as_json=options.json)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        try:
            for mutant in mutants:
                mutant.sources()
            project = write_project(CONTROL, folder)
        except PatchError as error:
            print(error, file=sys.stderr)
            return 2
        control = simulated(project, folder / "control")
        tests = tuple({test: None for mutant in mutants for test in mutant.tests})
        if control.crash or (tests and (failed := failed_test(project, tests))):
            print(f"the crawler as it is: {control.crash or failed}", file=sys.stderr)
            return 1
        report.say(f"| rule | mutant | {' | '.join(_COLUMNS)} |\n|---|---|{'---|' * 4}")
        missed = []
        with ThreadPoolExecutor(options.jobs) as pool:
            find = partial(_findings, control=control, folder=folder)
            for mutant, findings in zip(mutants, pool.map(find, mutants), strict=True):
                cells = " | ".join(_cell(findings.get(column, [])) for column in _COLUMNS)
                report.say(f"| {mutant.rule} | `{mutant.name}`: {mutant.what} | {cells} |")
                missed += [] if any(findings.values()) else [mutant.name]
    report.say("")
    figure = Figure("found by nobody", len(missed), max_value=0)
    report.add(f"{len(mutants)} mutants", figure, note=", ".join(missed))
    report.end()
    return 0


def _findings(mutant: Mutant, control: Findings, folder: Path) -> dict[str, list[str]]:
    """Return the findings about a mutant by column."""
    place = folder / mutant.name
    project = write_project(mutant, place)
    findings = simulated(project, place / "record").worse_than(control)
    if not any(findings.values()) and mutant.tests:
        failed = failed_test(project, mutant.tests)
        findings["test"] = [f"`{failed.rpartition('::')[2]}`"] if failed else []
    return findings


def _cell(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMED
    named = [*names[:_MAX_NAMED], *([f"{more} more"] if more > 0 else [])]
    return ", ".join(named) or "-"


def options_of(words: Sequence[str]) -> argparse.Namespace:
    """Read the words of the call; a wrong one ends the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    names = [mutant.name for mutant in MUTANTS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--json", action="store_true", help="the figures as one object")
    jobs = 2 * (os.cpu_count() or 1)  # a test of a mutant mostly waits
    parser.add_argument("--jobs", type=int, default=jobs, metavar="N", help="mutants at once")
    options = parser.parse_args(words)
    if unknown := set(options.names).difference(names):
        parser.error(f"no mutant is called {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
