"""`python -m tests.fuzz TARGET --seconds 600`: fuzz one target, or `all` of them in turn.

Coverage needs Python 3.12 or later; on 3.11 documents are changed without it. Ends with 1 if there
was a finding. Each is written to a file whose name is printed.
"""

import argparse
import sys
from hashlib import sha256
from pathlib import Path
from random import Random

from tests.fuzz.campaign import Campaign
from tests.fuzz.targets import TARGETS

FINDINGS = Path("build/fuzz")


def main() -> int:
    """Run the campaigns that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--seconds", type=float, default=600, help="for each target (600)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (0)")
    parser.add_argument(
        "--seeds", type=Path, help="a folder with recorded documents in robots/, feeds/ and llms/"
    )
    given = parser.parse_args()
    names = list(TARGETS) if given.target == "all" else [given.target]
    found = [run(name, given.seconds, given.seed, given.seeds) for name in names]
    return int(any(found))


def run(name: str, seconds: float, seed: int, folder: Path | None) -> bool:
    """Run one campaign and print what came of it. Return True if there was a finding."""
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
    return bool(campaign.findings)


sys.exit(main())
