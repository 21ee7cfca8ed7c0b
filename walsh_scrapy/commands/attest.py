"""``scrapy attest``: the contract's checklist, judged by the record of this installation."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, ClassVar

from walsh_scrapy.tools.command import OperatorCommand
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.signing.keys import PrivateKey
    from walsh_scrapy.state import State


class Command(OperatorCommand):
    """Audits the whole record, or compares it with an attestation."""

    headline = "Judge the whole record by the contract's checklist, with evidence"
    description = (
        "Judges every recorded request, denial and entry by each row of the contract's "
        "checklist: whether it holds, and the evidence. A day that is over is judged once, and "
        "compared later. Nothing leaves this machine. `--json` "
        "prints an attestation that can be verified later with `--verify FILE`. Exit status: "
        "0 if no MUST is broken and no judged day was changed (with --verify: the record has "
        "what was judged), 1 if one is, "
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
        "--sign": {
            "action": "store_true",
            "help": "sign the JSON with the key of the bot (WALSH_SIGNING_KEY)",
        },
        "--directory": {
            "metavar": "FILE",
            "help": "with --verify: the keys that the bot publishes, which must have signed it",
        },
    }

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:  # noqa: ARG002
        """Audit and print, or verify."""
        from walsh_scrapy.tools.attest.attestation import attestation_text, has_changed

        if opts.verify and (opts.json or opts.conformance or opts.tries or opts.sign):
            self.refuse("--verify goes with no other option but --directory")
        if opts.tries and opts.conformance:
            self.refuse("--try makes a conformance run, and --conformance takes one; drop one")
        if opts.sign and not opts.json:
            self.refuse("--sign goes with --json")
        if opts.directory and not opts.verify:
            self.refuse("--directory goes with --verify")
        key = _key(self.options) if opts.sign else None
        scorecard = _scorecard(opts, self.options)
        with self.state() as state:
            if opts.verify:
                return 0 if _verify(state, opts.verify, opts.directory) else 1
            attestation = _attest(state, scorecard, self.options)
        if key is not None:
            from walsh_scrapy.tools.attest.digests import sign

            attestation = sign(attestation, key)
        if opts.json:
            print(json.dumps(attestation, indent=1))
        else:
            print_lines(attestation_text(attestation))
        return 0 if attestation["holds"] and not has_changed(attestation) else 1


def _key(options: Options) -> PrivateKey:
    from walsh_scrapy.tools.keys import keys_of

    if not options.signing_key:
        raise CommandError("--sign needs the key of the bot: set WALSH_SIGNING_KEY")
    return keys_of([options.signing_key])[0]


def _scorecard(opts: argparse.Namespace, options: Options) -> dict[str, Any] | None:
    """Return the scorecard of a conformance run, made or read; None if none is asked for."""
    from walsh_scrapy.tools.attest.owncrawl import OWN_CRAWL, read_scorecard

    if opts.conformance:
        return read_scorecard(opts.conformance, options.user_agent)
    if not opts.tries:
        return None
    from walsh_scrapy.testing.conformance import TrialError, run_both_ways

    print("trying this project's crawls on a web of this machine ...", file=sys.stderr)
    try:
        return run_both_ways(OWN_CRAWL).as_dict()
    except TrialError as error:
        # What the crawls wrote has lines of its own, which a CommandError would escape.
        message = f"walsh-scrapy: this project's crawls cannot be tried: {error}"
        raise SystemExit(message) from None


def _attest(state: State, scorecard: dict[str, Any] | None, options: Options) -> dict[str, Any]:
    from walsh_scrapy.policy.audit.record import Bot
    from walsh_scrapy.tools.attest.attestation import attest
    from walsh_scrapy.tools.attest.audit import audit

    bot = Bot(options.user_agent, options.ua_token)
    with state.log() as log:
        audited = audit(log, state.now(), bot, log.judgements())
        attestation = attest(log, audited, scorecard)
    state.judgements.keep(audited.judgements, audited.outdated)
    if not any(attestation["record"]["digests"].values()) and scorecard is None:
        raise CommandError("the record is empty, so there is nothing to attest")
    return attestation


def _verify(state: State, name: str, directory: str | None) -> bool:
    from walsh_scrapy.tools.attest.digests import check_signature, compare, read_attestation
    from walsh_scrapy.tools.files import read_file

    attestation = read_attestation(name)
    if directory:
        print(f"signed by {check_signature(attestation, read_file(directory))}")
    elif "signature" in attestation:
        print("its signature was not checked: name the published directory with --directory FILE")
    with state.log() as log:
        comparison = compare(log, attestation["record"], state.now())
    print_lines(comparison.lines())
    print("the record has changed" if comparison.changed else "the record is as it was judged")
    return not comparison.changed
