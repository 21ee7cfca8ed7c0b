"""``scrapy attest``: the contract's checklist, judged by the record of this installation.

Judges every recorded request and entry by each row of the contract's checklist: whether it
holds, and the evidence. Nothing leaves this machine. Exit status: 0 if no MUST is broken, 1 if one
is, or if it cannot be done, 2 for a wrong call. Examples: scrapy attest. scrapy attest --since
2026-11-01 --json > attestation.json
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from walsh_scrapy.tools.call import CommandError, add_json, add_since

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.tools.call import Call


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_since(parser, "judge the record as if it began then")
    add_json(parser, "one JSON object")


def run(call: Call) -> int:
    """Audit and print; return 1 if a MUST is broken. Raises CommandError for an empty record."""
    from walsh_scrapy.policy.audit.record import Bot
    from walsh_scrapy.tools.attest.attestation import attest, attestation_text
    from walsh_scrapy.tools.output import print_lines

    bot = Bot(call.options.user_agent, call.options.ua_token)
    with call.state() as state, state.log() as log:
        attestation = attest(log, state.now(), bot, call.arguments.since or 0.0)
    if not any(attestation["record"][name] for name in ("runs", "requests", "denials", "entries")):
        raise CommandError("the record is empty, so there is nothing to attest")
    if call.arguments.json:
        print(json.dumps(attestation, indent=1))
    else:
        print_lines(attestation_text(attestation))
    return 0 if attestation["holds"] else 1
