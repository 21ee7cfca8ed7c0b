"""``walsh lint``: what in a robots.txt means nothing, or not what it seems."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from typing import Any


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the program."""
    parser = commands.add_parser(
        "lint",
        help="say what in a robots.txt means nothing",
        description="Prints what in a robots.txt means nothing, or not what it seems. Exit "
        "status: 0 no error, 1 at least one, 2 wrong call.",
    )
    parser.add_argument("file", nargs="+", metavar="FILE", help="'-' for standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the findings; return 1 if one is an error. Raises CommandError."""
    from walsh_scrapy.policy.robots.lint import lint
    from walsh_scrapy.tools.files import read_file
    from walsh_scrapy.tools.lint.report import count_errors, records, report
    from walsh_scrapy.tools.printable import json_array

    found = [(name, lint(read_file(name))) for name in options.file]
    if options.json:
        lines = json_array(each for name, findings in found for each in records(name, findings))
    else:
        lines = (line for name, findings in found for line in report(name, findings))
    for line in lines:
        print(line)
    return 1 if any(count_errors(findings) for _, findings in found) else 0
