"""``scrapy attest``: the contract's checklist, judged by the record of this installation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from walsh_scrapy.tools.command import OperatorCommand
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse


class Command(OperatorCommand):
    """Audits the record."""

    headline = "Judge the whole record by the contract's checklist, with evidence"
    description = (
        "Judges every recorded request, denial and entry by each row of the contract's "
        "checklist: whether it holds, and the evidence. Nothing leaves this machine. "
        "Exit status: 0 if no MUST is broken, 1 if one is, or if it cannot be done, 2 for a wrong "
        "call. Examples: scrapy attest. scrapy attest --since 2026-11-01 --json > attestation.json"
    )
    since = "judge the record as if it began then"
    json = "one JSON object"

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:  # noqa: ARG002
        """Audit and print."""
        from walsh_scrapy.policy.audit.record import Bot
        from walsh_scrapy.tools.attest.attestation import attest, attestation_text
        from walsh_scrapy.tools.attest.audit import audit

        bot = Bot(self.options.user_agent, self.options.ua_token)
        with self.state() as state, state.log() as log:
            attestation = attest(log, audit(log, state.now(), bot, opts.since or 0.0))
        if not any(
            attestation["record"][name] for name in ("runs", "requests", "denials", "entries")
        ):
            raise CommandError("the record is empty, so there is nothing to attest")
        if opts.json:
            print(json.dumps(attestation, indent=1))
        else:
            print_lines(attestation_text(attestation))
        return 0 if attestation["holds"] else 1
