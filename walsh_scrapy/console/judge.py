"""``walsh judge``: how politely the bots in the log of a server behaved."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from walsh_scrapy.testing.tallies import HASTY, MOST_A_SECOND, MOST_RETRIES, PERIOD, SOON
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    import argparse
    from typing import Any


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    """Add this command to the program."""
    parser = commands.add_parser(
        "judge",
        help="say how politely the bots in a log behaved",
        description="Reads the logs of one host, also packed by gzip, bzip2 or xz, and says of "
        "each bot whether it was polite. Common and Combined Log Format and lines of JSON (Caddy, "
        "Traefik, nginx) are read as they are. A bot is a User-Agent that names itself and a "
        "page, or else a User-Agent at one address; browsers are people. Nobody is accused "
        "unless it is certain: of what two readers of robots.txt deny; of pauses that were "
        "shorter than it asks for, and of requests outside its Visit-time; of more than "
        f"{MOST_A_SECOND} requests a second for {PERIOD} s; of the same URL within {HASTY} s "
        f"after 429 or 503; of more than {MOST_RETRIES} requests in a row that each came within "
        f"{SOON} s after 429 or 503. Less than 10 % of 304 among 20 or more repeated requests "
        "are said. Exit status: 0 nobody is accused, 1 somebody is, 2 wrong call, no line that "
        "can be read, or a log that is cut or damaged.",
        epilog="example: walsh judge --robots robots.txt --format '$remote_addr [$time_local] "
        '"$request" $status "$http_user_agent" $request_time\' access.log',
    )
    parser.add_argument("log", nargs="+", metavar="LOG", help="'-' for standard input")
    parser.add_argument(
        "--robots", metavar="FILE", required=True, help="the robots.txt of the host"
    )
    parser.add_argument(
        "--agent",
        metavar="TEXT",
        default="",
        help="only User-Agents with this text: browsers too, and at private addresses",
    )
    parser.add_argument(
        "--format",
        metavar="WORDS",
        help="what LogFormat (Apache) or log_format (nginx) says, or common, combined or "
        "vhost_combined; time, request, status and User-Agent are needed",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the judgement; return 1 if a bot broke a rule, else 2 if a log is damaged.

    Raises CommandError if nothing can be judged.
    """
    from walsh_scrapy.testing.judgelog.judge import Judge
    from walsh_scrapy.testing.judgelog.logfile import open_log
    from walsh_scrapy.testing.judgelog.report import records, report, unreadable
    from walsh_scrapy.tools.files import read_file
    from walsh_scrapy.tools.output import json_array

    robots, is_whole = read_file(options.robots), True
    try:
        judge = Judge(robots, options.agent, options.format)
    except ValueError as error:
        raise CommandError(str(error)) from error
    for name in options.log:
        before = judge.read
        try:
            with open_log(name) as file:
                judge.read_log(file, name)
        except OSError as error:
            said = CommandError(str(error))
            if judge.read == before:
                raise said from error
            is_whole = False
            print(f"walsh-scrapy: {said}; what stands before that is judged", file=sys.stderr)
    if judge.unread and not judge.read:
        raise CommandError(unreadable(judge))
    lines = json_array(records(judge)) if options.json else report(judge, every=bool(options.agent))
    for line in lines:
        print(line)
    if not all(agent.is_polite for agent in judge.agents()):
        return 1
    return 0 if is_whole else 2
