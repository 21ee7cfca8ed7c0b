"""`python -m tests.fuzz all --seconds 600`: fuzz one target, or all of them in turn.

`properties` are the property tests of Hypothesis, with new examples in each round. Coverage needs
Python 3.12 or later; on 3.11 documents are changed without it. Ends with 1 if there was a finding.
Each is printed, and a document also written to a file.
"""

import argparse
import sys
import time
from hashlib import sha256
from pathlib import Path
from random import Random, SystemRandom

import pytest

from tests.fuzz.campaign import Campaign
from tests.fuzz.targets import TARGETS

FINDINGS = Path("build/fuzz")
PROPERTIES = "properties"


def main() -> int:
    """Run the campaigns that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=[*TARGETS, PROPERTIES, "all"])
    parser.add_argument("--seconds", type=float, default=600, help="for all together (600)")
    parser.add_argument(
        "--seed", type=int, default=SystemRandom().getrandbits(32), help="of the documents (new)"
    )
    parser.add_argument(
        "--seeds", type=Path, help="a folder with recorded documents in robots/, feeds/ and llms/"
    )
    given = parser.parse_args()
    if given.target == PROPERTIES:
        return search_properties(given.seconds)
    print(f"--seed {given.seed}", flush=True)
    if given.target != "all":
        return run(given.target, given.seconds, given.seed, given.seeds)
    half = given.seconds / 2
    found = [run(name, half / len(TARGETS), given.seed, given.seeds) for name in TARGETS]
    return max(*found, search_properties(half))


class _Bound:
    """A plugin of pytest: no test begins after the end."""

    def __init__(self, end: float) -> None:
        self._end = end

    def pytest_runtest_setup(self) -> None:
        if time.monotonic() > self._end:
            pytest.skip("the time is up")


def search_properties(seconds: float) -> int:
    """Run all property tests in rounds, until one fails or the time is up."""
    end, status = time.monotonic() + seconds, 0
    while not status and time.monotonic() < end:
        search = ["-m", "hypothesis", "--hypothesis-profile=search"]
        # pytest wants to rewrite the asserts of Hypothesis, which is imported here.
        quiet = ["-q", "-p", "no:cacheprovider", "-W", "ignore:Module already imported"]
        status = int(pytest.main([*search, *quiet], plugins=[_Bound(end)]))
    return status


def run(name: str, seconds: float, seed: int, folder: Path | None) -> int:
    """Run one campaign and print what came of it. Return 1 if there was a finding."""
    target = TARGETS[name]
    recorded = sorted((folder / target.folder).iterdir()) if folder and target.folder else []
    seeds = (*target.seeds, *(file.read_bytes() for file in recorded))
    campaign = Campaign(target, seeds, Random(f"{name} {seed}"))
    campaign.run(seconds)
    lines, possible = len(campaign.coverage.lines), campaign.coverage.possible()
    print(
        f"{name}: {campaign.executions:,} executions, {len(seeds)} seeds, "
        f"{len(campaign.corpus)} documents kept, {lines} of {possible} lines, "
        f"slowest {campaign.slowest:.2f} s, {len(campaign.findings)} findings",
        flush=True,
    )
    for why, body in campaign.findings.items():
        file = FINDINGS / f"{name}-{sha256(body).hexdigest()[:8]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
        print(f"  {why}\n    {file}: {body[:300]!r}", flush=True)
    return int(bool(campaign.findings))


sys.exit(main())
