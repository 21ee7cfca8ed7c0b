"""``walsh``: init, mayfetch, lint and conformance, without a project.

No command sends a request: a request must name its sender (R1), and without a project there is
none. So robots.txt is a file or standard input here; ``scrapy mayfetch`` requests it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

from walsh_scrapy import __version__
from walsh_scrapy.tools import open_closed_streams
from walsh_scrapy.tools.call import Call, Parser, run_tool

if TYPE_CHECKING:
    from collections.abc import Sequence

_DESCRIPTION: Final = (
    "Writes a new project, and shows how crawlers read a robots.txt. Example: walsh init my-feeds"
)
#: The module and the headline of each tool; only the one that is called is imported.
_TOOLS: Final = {
    "init": ("tools.init", "write a new project, with a crawler for feeds"),
    "mayfetch": ("tools.mayfetch", "show the URLs that a robots.txt allows to any bots"),
    "lint": ("tools.lint", "show lines of a robots.txt that mean nothing"),
    "conformance": ("testing.conformance.conformance", "test how polite any crawler is"),
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one tool and exit with its status."""
    open_closed_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = Parser(prog="walsh", description=_DESCRIPTION)
    version = f"walsh-scrapy {__version__}"
    parser.add_argument(
        "--version", action="version", version=version, help="print the version and exit"
    )
    tools = parser.add_subparsers(required=True, metavar="COMMAND", dest="tool")
    for name, (path, headline) in _TOOLS.items():
        if given[:1] != [name]:
            tools.add_parser(name, help=headline)
            continue
        tool = import_module(f"walsh_scrapy.{path}")
        help_text = " ".join((tool.__doc__ or "").partition("\n\n")[2].split())
        tool.options(tools.add_parser(name, help=headline, description=help_text))
    options = parser.parse_args(given)
    tool = import_module(f"walsh_scrapy.{_TOOLS[options.tool][0]}")
    raise SystemExit(run_tool(tool, Call(options)))
