"""``scrapy why URL|HOST``: the requests to a host on one day, as a letter to its owner.

Prints a letter to the owner of a site. It has each request of one day, with the line of robots.txt
that allowed it, the gap before it and the delay in force. It has the requests that were kept back,
the robots.txt, the operator's changes by hand, the next request, our identity, and the way to keep
us out. Without --on it is the last day in the state. Exit status: 0, 1 if nothing is known, 2 for a
wrong call. Examples: scrapy why blog.example --on 2026-11-17. scrapy why
https://blog.example/feed.xml --json
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from walsh_scrapy.tools.call import add_json, add_sources, typed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.tools.call import Call

USAGE = "[options] URL|HOST"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("subject", metavar="URL|HOST", help="such as blog.example")
    parser.add_argument("--on", metavar="DATE", type=typed(_day), help="a day in UTC: 2026-11-17")
    add_sources(parser)
    add_json(parser, "one JSON object")


def run(call: Call) -> int:
    """Read the state and print the letter."""
    from walsh_scrapy.tools.output import print_lines
    from walsh_scrapy.tools.why.account import give_account
    from walsh_scrapy.tools.why.letter import letter, record_of

    given = call.arguments
    with call.state() as state, state.log() as log:
        account = give_account(state, log, call.options, given.subject, given.on, _sources(call))
    print_lines([json.dumps(record_of(account))] if given.json else letter(account))
    return 0


def _sources(call: Call) -> Sequence[Source] | None:
    """Return the declared sources; None, with a message, if they cannot be read."""
    from walsh_scrapy.sources.loading import load_sources
    from walsh_scrapy.sources.source import SourcesError

    file, is_given = call.sources_file, call.arguments.sources
    if not is_given and call.options.scope == "any" and not Path(file).exists():
        return None  # a project that follows links needs no such file
    try:
        return load_sources(file)
    except SourcesError as error:
        print(f"walsh-scrapy: the declared sources are left out: {error}", file=sys.stderr)
        return None


def _day(text: str) -> int:
    """Return the days since 1970 of a date."""
    try:
        moment = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"{text!r} is not a day in UTC, such as 2026-11-17") from None
    return int(moment.timestamp() // 86_400)
