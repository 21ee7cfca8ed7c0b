"""``walsh completion``: a script by which a shell completes command lines of this program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from walsh_scrapy.tools.completion import DESCRIPTION, SHELLS, script

if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the program."""
    parser = commands.add_parser(
        "completion",
        help="print a script that completes command lines",
        description=DESCRIPTION.format("walsh"),
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    from walsh_scrapy.console.program import parser_of

    print(script(parser_of(), options.shell))
    return 0
