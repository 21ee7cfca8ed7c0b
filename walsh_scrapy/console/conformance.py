"""``scrapy conformance -- COMMAND...`` and ``walsh conformance``: a test for any crawler.

{description} Example: scrapy conformance --rules R1 -- wget -i {{seeds}}
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from walsh_scrapy.testing.conformance.commandline import (
    DESCRIPTION,
    SYNTAX,
    add_options,
    try_command,
)

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call

__doc__ = (__doc__ or "").format(description=DESCRIPTION)
USAGE = SYNTAX


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_options(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(call: Call) -> int:
    """Try the command and print its scorecard."""
    return try_command(call.arguments.command, call.arguments)
