"""``scrapy why URL|HOST``: why a host was asked on one day, as a letter."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from scrapy.commands import ScrapyCommand
from scrapy.settings import Settings

from walsh_scrapy.tools.exits import CommandError, clean_exit, usage_error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from walsh_scrapy.sources import Source

_EXAMPLE: Final = "Example: scrapy why blog.example --on 2026-11-17"


class Command(ScrapyCommand):
    """Answers a site owner from the record. It may run beside a crawl, and sends nothing."""

    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        """Return what follows the command's name."""
        return "[options] URL|HOST"

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return "Say why a host was asked on one day, in words that can be mailed"

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        return (
            "Prints a letter to the owner of a site: each request of one day with the line of "
            "robots.txt that allowed it, the pause before it and the pause asked for, what was "
            "kept back and why, what robots.txt said, what the operator changed by hand, when we "
            "ask again and what keeps us from it now, who we are, and how to keep us out. "
            "Without --on it is the last day in the record. Exit status: 0, 1 if nothing is "
            "known, 2 for a wrong call. "
            "Examples: scrapy why blog.example --on 2026-11-17. "
            "scrapy why https://blog.example/feed.xml --json"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what this command takes."""
        super().add_options(parser)
        parser.add_argument("--on", metavar="DATE", help="a day in UTC: 2026-11-17")
        parser.add_argument(
            "--sources", metavar="FILE", help="sources file to use instead of WALSH_SOURCES"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Read the record and print the letter."""
        from walsh_scrapy.options import Options
        from walsh_scrapy.state import State
        from walsh_scrapy.tools.printable import printable
        from walsh_scrapy.tools.why.account import give_account
        from walsh_scrapy.tools.why.letter import letter
        from walsh_scrapy.tools.why.record import record_of

        for word in args:
            if word.startswith("-"):
                usage_error(f"there is no option {word}; see scrapy why --help")
        if len(args) != 1:
            usage_error(f"`why` takes one URL or host. {_EXAMPLE}")
        day = None if opts.on is None else _day(opts.on)
        with clean_exit():
            options = Options.from_settings(self.settings or Settings())
            with State.existing(options.state_url) as state:
                if state is None:
                    raise CommandError("nothing is known: there is no state, so no crawl was run")
                sources = _sources(opts.sources or options.sources)
                with state.log() as log:
                    account = give_account(state, log, options, args[0], day, sources)
            lines = [json.dumps(record_of(account))] if opts.json else letter(account)
            for line in lines:
                print(printable(line))


def _sources(file: str) -> Sequence[Source] | None:
    """Return what is declared; None, and say why, if that cannot be read: a letter needs it not."""
    from walsh_scrapy.sources import SourcesError, load_sources

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
