"""What `python -m walsh_scrapy.testing.conformance` and `scrapy conformance` have in common.

It is no part of the judge, so it may use what other commands print with.
"""

from __future__ import annotations

import json
import sys
from math import inf
from typing import TYPE_CHECKING, Final

from walsh_scrapy.testing.conformance.trial import TrialError, run
from walsh_scrapy.tools.exits import clean_exit, usage_error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

SYNTAX: Final = "[options] -- COMMAND..."
DESCRIPTION: Final = (
    "Lets any command crawl a web on this machine, and judges by the log of its servers how it "
    "kept the rules R1 to R9. In COMMAND {seeds} is a file with one URL a line, {pages} the same "
    "for pages without a feed, {folder} a folder that is kept between the runs, {ca} the CA "
    "certificate to trust, {key} an Ed25519 key to sign requests with, {blocklist} the URL of a "
    "list of opt-outs, {proxy} that of the proxy; CONFORMANCE_SEEDS and so on are the same in "
    "its environment. The command is called up to five times, and gets less than five minutes "
    "in all. Exit status: 0 no MUST failed, 1 at least one failed, could not run, or was not "
    "shown though no crawler can avoid it, or nothing passed, 2 a wrong call, or a command that "
    "makes no request."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--rules",
        metavar="RULES",
        help="judge these only, separated by commas: R1 to R9, or names of scenarios",
    )
    parser.add_argument(
        "--user-agent", metavar="TEXT", help="the exact User-Agent that has to be sent"
    )
    parser.add_argument(
        "--patience",
        metavar="N",
        type=_at_least_one,
        default=1.0,
        help="give each run N times as long, for a crawler that needs more time",
    )
    parser.add_argument(
        "--proxy",
        action="store_true",
        default=None,
        help="give the hosts names behind a proxy, not addresses (the default except on Linux)",
    )


def _at_least_one(text: str) -> float:
    number = float(text)
    if not 1 <= number < inf:
        raise ValueError(text)
    return number


def try_command(words: Sequence[str], options: argparse.Namespace) -> int:
    """Try the command, print its scorecard, and return the exit status."""
    command = list(words[1:] if words[:1] == ["--"] else words)
    if not command:
        usage_error("name the command to try: conformance -- COMMAND...")
    rules = None if options.rules is None else [word.strip() for word in options.rules.split(",")]
    with clean_exit():
        try:
            card = run(
                command,
                rules,
                user_agent=options.user_agent,
                proxy=options.proxy,
                patience=options.patience,
                told=lambda sentence: print(f"{sentence} ...", file=sys.stderr, flush=True),
            )
        except (TrialError, ValueError) as error:
            usage_error(str(error))
        if options.json:
            print(json.dumps(card.as_dict(), indent=1).replace("\x7f", "\\u007f"))
        else:
            from rich.console import Console  # noqa: PLC0415 - not needed for JSON

            from walsh_scrapy.tools.conformance import show  # noqa: PLC0415 - the same

            show(card, Console())
    return 0 if card.keeps_what_was_tried else 1
