"""``walsh judge``: how politely the bots in the log of a server behaved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    import argparse
    from typing import Any


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the program."""
    parser = commands.add_parser(
        "judge",
        help="say how politely the bots in a log behaved",
        description="Reads the logs of one host in Common or Combined Log Format, also packed by "
        "gzip, and says of each User-Agent whether it kept to robots.txt. Exit status: 0 all "
        "did, 1 at least one did not, 2 wrong call, or no line that can be read.",
    )
    parser.add_argument("log", nargs="+", metavar="LOG", help="'-' for standard input")
    parser.add_argument(
        "--robots", metavar="FILE", required=True, help="the robots.txt of the host"
    )
    parser.add_argument(
        "--agent", metavar="TEXT", default="", help="only User-Agents with this text, browsers too"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the judgement; return 1 if a bot broke a rule. Raises CommandError."""
    from walsh_scrapy.console.files import read
    from walsh_scrapy.tools.judgelog.judge import Judge
    from walsh_scrapy.tools.judgelog.lines import open_log
    from walsh_scrapy.tools.judgelog.report import records, report
    from walsh_scrapy.tools.printable import json_array

    judge = Judge(read(options.robots), options.agent)
    for name in options.log:
        with open_log(name) as file:
            judge.read_log(file, name)
    if judge.unread and not judge.read:
        raise CommandError("no line is in Common or Combined Log Format")
    lines = json_array(records(judge)) if options.json else report(judge, every=bool(options.agent))
    for line in lines:
        print(line)
    return 0 if all(agent.is_polite for _, agent in judge.agents()) else 1
