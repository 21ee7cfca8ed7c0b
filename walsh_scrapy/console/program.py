"""``walsh``: init, mayfetch, lint and conformance, without a project.

No command sends a request: a request has to name its sender (R1), and without a project there is
none. So robots.txt is a file or standard input here; ``scrapy mayfetch`` asks for it.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

from walsh_scrapy import __version__
from walsh_scrapy.tools.exits import CommandError, clean_exit, usage_error

if TYPE_CHECKING:
    from collections.abc import Sequence

_DESCRIPTION: Final = (
    "Writes a project of your own, and says how crawlers read a robots.txt. Example: walsh init "
    "my-feeds"
)
_CONFORMANCE: Final = "conformance"
_COMMANDS: Final = ("init", "mayfetch", "lint")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as those of the other commands."""

    def error(self, message: str) -> NoReturn:
        usage_error(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 yes, 1 no, 2 for a wrong call or a file that cannot be read."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == [_CONFORMANCE]:
        _hand_over(given[1:])
    options = parser_of(given[:1]).parse_args(given)
    with clean_exit():
        try:
            status = options.run(options)
        except CommandError as error:
            usage_error(str(error))
    raise SystemExit(status)


def parser_of(called: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser of all commands, or only of the one that is called."""
    parser = _Parser(prog="walsh", description=_DESCRIPTION)
    version = f"walsh-scrapy {__version__}"
    parser.add_argument(
        "--version", action="version", version=version, help="print the version and exit"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in set(_COMMANDS).intersection(called) or _COMMANDS:
        import_module(f"walsh_scrapy.console.{name}").add_to(commands)
    commands.add_parser(_CONFORMANCE, help="test how polite any crawler is")
    return parser


def _hand_over(arguments: Sequence[str]) -> NoReturn:
    """Become ``python -m walsh_scrapy.testing.conformance``."""
    import runpy

    sys.argv[1:] = arguments
    with clean_exit():
        runpy.run_module("walsh_scrapy.testing.conformance", run_name="__main__", alter_sys=True)
    raise SystemExit(0)
