"""``scrapy attest``: the contract's checklist, judged by the record of this installation."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar

from walsh_scrapy.tools.command import OperatorCommand
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.state import State


class Command(OperatorCommand):
    """Audits the whole record, or compares it with an attestation."""

    headline = "Judge the whole record by the contract's checklist, with evidence"
    description = (
        "Judges every recorded request, denial and entry by each row of the contract's "
        "checklist: whether it holds, and the evidence. Nothing leaves this machine. `--json` "
        "prints an attestation that can be verified later with `--verify FILE`. Exit status: "
        "0 if no MUST is broken (with --verify: the record has what was judged), 1 if one is, "
        "or if it cannot be done, 2 for a wrong call. "
        "Examples: scrapy attest. scrapy attest --json > attestation.json. "
        "scrapy attest --verify attestation.json"
    )
    json = "one JSON object"
    arguments: ClassVar = {
        "--conformance": {
            "metavar": "FILE",
            "help": "take the JSON of a conformance run of this installation as evidence too",
        },
        "--try": {
            "dest": "tries",
            "action": "store_true",
            "help": (
                "make a conformance run of this project's crawls on this machine, which takes "
                "about three minutes, and take it as evidence too"
            ),
        },
        "--verify": {
            "metavar": "FILE",
            "help": "say whether the record still has what an attestation judged",
        },
    }

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:  # noqa: ARG002
        """Audit and print, or verify."""
        from walsh_scrapy.tools.attest.attestation import attestation_text

        if opts.verify and (opts.json or opts.conformance or opts.tries):
            self.refuse("--verify goes with no other option")
        if opts.tries and opts.conformance:
            self.refuse("--try makes a conformance run, and --conformance takes one; drop one")
        scorecard = _scorecard(opts)
        with self.state() as state:
            if opts.verify:
                return 0 if _verify(state, opts.verify) else 1
            attestation = _attest(state, scorecard)
        if opts.json:
            print(json.dumps(attestation, indent=1))
        else:
            print_lines(attestation_text(attestation))
        return 0 if attestation["holds"] else 1


def _scorecard(opts: argparse.Namespace) -> dict[str, Any] | None:
    """Return the scorecard of a conformance run, made or read; None if none is asked for."""
    if opts.conformance:
        from walsh_scrapy.tools.attest.owncrawl import read_scorecard

        return read_scorecard(opts.conformance)
    if not opts.tries:
        return None
    from walsh_scrapy.testing.conformance import TrialError, run_both_ways

    print("trying this project's crawls on a web of this machine ...", file=sys.stderr)
    try:
        return run_both_ways([sys.executable, "-m", "walsh_scrapy.tools.attest.owncrawl"]).as_dict()
    except TrialError as error:
        # What the crawls wrote has lines of its own, which a CommandError would escape.
        message = f"walsh-scrapy: this project's crawls cannot be tried: {error}"
        raise SystemExit(message) from None


def _attest(state: State, scorecard: dict[str, Any] | None) -> dict[str, Any]:
    from walsh_scrapy.tools.attest.attestation import attest

    with state.log() as log:
        attestation = attest(log, time.time(), scorecard)
    if not any(attestation["record"]["digests"].values()) and scorecard is None:
        raise CommandError("the record is empty, so there is nothing to attest")
    return attestation


def _verify(state: State, name: str) -> bool:
    from walsh_scrapy.tools.attest.digests import compare, read_attestation

    attestation = read_attestation(name)
    with state.log() as log:
        comparison = compare(log, attestation["record"], time.time())
    print_lines(comparison.lines())
    print("the record has changed" if comparison.changed else "the record is as it was judged")
    return not comparison.changed
