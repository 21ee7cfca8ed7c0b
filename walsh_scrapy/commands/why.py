"""``scrapy why URL|HOST``: why a host was asked on one day, as a letter."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from walsh_scrapy.tools.command import OperatorCommand
from walsh_scrapy.tools.exits import usage_error
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from walsh_scrapy.sources.source import Source

_EXAMPLE: Final = "Example: scrapy why blog.example --on 2026-11-17"


class Command(OperatorCommand):
    """Answers a site owner from the record, and sends nothing."""

    usage = "[options] URL|HOST"
    headline = "Say why a host was asked on one day, in words that can be mailed"
    description = (
        "Prints a letter to the owner of a site: each request of one day with the line of "
        "robots.txt that allowed it, the pause before it and the pause asked for, what was "
        "kept back and why, what robots.txt said, what the operator changed by hand, when we "
        "ask again and what keeps us from it now, who we are, and how to keep us out. "
        "Without --on it is the last day in the record. Exit status: 0, 1 if nothing is "
        "known, 2 for a wrong call. "
        "Examples: scrapy why blog.example --on 2026-11-17. "
        "scrapy why https://blog.example/feed.xml --json"
    )
    takes_words = True
    has_sources = True
    json = "one JSON object"
    arguments: ClassVar = {
        "--on": {"metavar": "DATE", "help": "a day in UTC: 2026-11-17"},
    }

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:
        """Read the record and print the letter."""
        from walsh_scrapy.tools.why.account import give_account
        from walsh_scrapy.tools.why.letter import letter, record_of

        if len(args) != 1:
            self.refuse(f"`why` takes one URL or host. {_EXAMPLE}")
        day = None if opts.on is None else _day(opts.on)
        with self.state() as state, state.log() as log:
            sources = self._sources(opts.sources)
            account = give_account(state, log, self.options, args[0], day, sources)
        lines = [json.dumps(record_of(account))] if opts.json else letter(account)
        print_lines(lines)
        return 0

    def _sources(self, given: str | None) -> Sequence[Source] | None:
        file = given or self.options.sources
        if not given and self.options.scope == "any" and not Path(file).exists():
            return None  # a project that follows links needs no such file
        return _sources(file)


def _sources(file: str) -> Sequence[Source] | None:
    """Return the declared sources; None, and say why, if they cannot be read."""
    from walsh_scrapy.sources.loading import load_sources
    from walsh_scrapy.sources.source import SourcesError

    try:
        return load_sources(file)
    except SourcesError as error:
        print(f"walsh-scrapy: what is declared is left out: {error}", file=sys.stderr)
        return None


def _day(text: str) -> int:
    """Return the days since 1970 of a date; exit with status 2 if it is none."""
    try:
        moment = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        usage_error(f"--on takes a day in UTC, such as 2026-11-17. {_EXAMPLE}")
    return int(moment.timestamp() // 86_400)
