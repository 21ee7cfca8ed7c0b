"""`python -m benchmarks.mutants`: breaks the crawler in many ways, and asks who finds it.

It prints a Markdown table with a row for each mutant as it is judged, and at its end which were
found by nobody and by one judge alone. First the crawler as it is, is judged: a judge that accuses
it is worth nothing, and the benchmark stops.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.mutants.judges import JUDGES, Opinion, judge
from benchmarks.mutants.mutant import CONTROL, ROOT, Mutant, PatchError, write_project
from benchmarks.mutants.patches import MUTANTS
from benchmarks.report import Figure, Report


def main(words: Sequence[str]) -> int:
    """Judge the mutants that the words name; return the exit status."""
    options = options_of(words)
    # The process of a simulation imports the mutant from its folder, and its web from here.
    os.environ["PYTHONPATH"] = str(ROOT)
    wanted = [each for each in MUTANTS if not options.only or each.name in options.only]
    try:
        for mutant in wanted:
            mutant.sources()
    except PatchError as error:
        print(error, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:

        def opinions(mutant: Mutant) -> dict[str, Opinion]:
            place = Path(folder, mutant.name)
            project = write_project(mutant, place)
            return {name: judge(name, project, place) for name in options.judges}

        said = opinions(CONTROL)
        if any(opinion != Opinion() for opinion in said.values()):
            accused = "; ".join(f"{name}: {opinion}" for name, opinion in said.items())
            print(f"the crawler as it is, is accused: {accused}", file=sys.stderr)
            return 1
        report = Report("mutants", words, as_json=options.json)
        report.say(f"| rule | mutant | {' | '.join(said)} |\n|---|---|{'---|' * len(said)}")
        found: dict[str, list[str]] = {}
        with ThreadPoolExecutor(options.jobs) as pool:
            for mutant, said in zip(wanted, pool.map(opinions, wanted), strict=True):
                cells = " | ".join(map(str, said.values()))
                report.say(f"| {mutant.rule} | `{mutant.name}`: {mutant.what} | {cells} |")
                found[mutant.name] = [name for name, opinion in said.items() if opinion.breaches]
    report.say("")
    for judges, names in summary(found).items():
        most = 3 if judges == "nobody" else None
        report.add(
            f"{len(found)} mutants",
            Figure(f"found by {judges}", len(names), most=most),
            note=", ".join(names),
        )
    report.end()
    return 0


def options_of(words: Sequence[str]) -> argparse.Namespace:
    """Read the words of the call; a wrong one ends the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    names, kinds = [each.name for each in MUTANTS], list(JUDGES)
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=names, help=f"these only: {', '.join(names)}"
    )
    parser.add_argument(
        "--judges",
        type=lambda text: _known(text, kinds),
        default=kinds[:3],
        help=f"separated by commas: {', '.join(kinds)}; default: all but the last",
    )
    parser.add_argument("--json", action="store_true", help="the figures as one object")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants judged at once")
    return parser.parse_args(words)


def _known(text: str, kinds: Sequence[str]) -> list[str]:
    given = text.split(",")
    if unknown := set(given).difference(kinds):
        raise argparse.ArgumentTypeError(f"no judge is called {', '.join(unknown)}")
    return given


def summary(found: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return which mutants no judge found, and which one judge alone."""
    return {
        "nobody": [name for name, judges in found.items() if not judges],
        "one judge alone": [
            f"{name} ({judges[0]})" for name, judges in found.items() if len(judges) == 1
        ],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
