"""`python -m benchmarks.mutants`: breaks the crawler in many ways, and asks who finds it.

It prints a Markdown table with a row for each mutant as it is judged, and at its end which were
found by nobody and by one judge alone. First the crawler as it is, is judged: a judge that accuses
it is worth nothing, and the benchmark stops.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks.mutants.judges import JUDGES, Crashed
from benchmarks.mutants.mutant import CONTROL, Mutant, PatchError, write_project
from benchmarks.mutants.patches import MUTANTS

_CRASH: Final = "crashed: "


def main(words: Sequence[str]) -> int:
    """Judge the mutants that the words name; return the exit status."""
    options = _options(words)
    wanted = [each for each in MUTANTS if not options.only or each.name in options.only]
    try:
        for mutant in wanted:
            mutant.sources()
    except PatchError as error:
        print(error, file=sys.stderr)
        return 2
    judges = options.judges
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        said = _opinions(CONTROL, judges, Path(folder))
        if any(opinion != "-" for opinion in said.values()):
            print(f"the crawler as it is, is accused: {said}", file=sys.stderr)
            return 1
        print(f"| rule | mutant | {' | '.join(judges)} |\n|---|---|{'---|' * len(judges)}")
        found: dict[str, list[str]] = {}
        with ThreadPoolExecutor(options.jobs) as pool:
            results = pool.map(lambda each: _opinions(each, judges, Path(folder)), wanted)
            for mutant, opinions in zip(wanted, results, strict=True):
                cells = " | ".join(opinions.values())
                print(f"| {mutant.rule} | `{mutant.name}`: {mutant.what} | {cells} |", flush=True)
                found[mutant.name] = [
                    judge
                    for judge, said in opinions.items()
                    if said != "-" and not said.startswith(_CRASH)
                ]
    print("\n".join(_summary(found)))
    return 0


def _options(words: Sequence[str]) -> argparse.Namespace:
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
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants judged at once")
    return parser.parse_args(words)


def _known(text: str, kinds: Sequence[str]) -> list[str]:
    given = text.split(",")
    if unknown := set(given).difference(kinds):
        raise argparse.ArgumentTypeError(f"no judge is called {', '.join(unknown)}")
    return given


def _opinions(mutant: Mutant, judges: Sequence[str], folder: Path) -> dict[str, str]:
    """Return what each judge says of a mutant."""
    project = write_project(mutant, folder / mutant.name)
    opinions = {}
    for judge in judges:
        try:
            opinions[judge] = str(JUDGES[judge](project, folder / mutant.name))
        except Crashed as error:
            opinions[judge] = f"{_CRASH}{error}"
    return opinions


def _summary(found: dict[str, list[str]]) -> Iterator[str]:
    nobody = [name for name, judges in found.items() if not judges]
    alone = [f"{name} ({judges[0]})" for name, judges in found.items() if len(judges) == 1]
    yield f"\n{len(found)} mutants. Found by nobody: {', '.join(nobody) or 'none'}."
    yield f"Found by one judge alone: {', '.join(alone) or 'none'}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
