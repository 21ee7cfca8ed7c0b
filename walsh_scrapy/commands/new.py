"""``scrapy new``: what is new, as a list to read."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand
from scrapy.settings import Settings

from walsh_scrapy.tools.exits import clean_exit, usage_error

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.state import State


class Command(ScrapyCommand):
    """Lists new entries. It may run beside a crawl, which does not wait for it."""

    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        """Return what follows the command's name."""
        return "[options]"

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return "List what is new: the entries of the last run that found something"

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        return (
            "Lists new entries by source, the newest first: when they were published, their title "
            "and their URL. Without --since these are the entries since the begin of the last run "
            "that found something. Exit status: 0, also if nothing is new; 1 if it cannot be done, "
            "2 for a wrong call. Examples: scrapy new. scrapy new --since yesterday. "
            "scrapy new --since 7d --json"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what this command takes."""
        super().add_options(parser)
        parser.add_argument(
            "--since",
            metavar="WHEN",
            help="entries first seen since then: today, yesterday, 1d (a day ago), a date, an RFC "
            "3339 time",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON array")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Check the call, and list."""
        from walsh_scrapy.options import Options
        from walsh_scrapy.policy.timestamps import parse_since
        from walsh_scrapy.state import State
        from walsh_scrapy.tools.new.listing import default_since

        if args:
            usage_error(f"new does not take {args[0]}; see scrapy new --help")
        now = time.time()
        try:
            given = None if opts.since is None else parse_since(opts.since, now)
        except ValueError as error:
            usage_error(f"--since: {error}")
        with clean_exit():
            options = Options.from_settings(self.settings or Settings())
            with State.existing(options.state_url) as state:
                since = default_since(state, now) if state and given is None else given
                if state is None or since is None:
                    _say_none(as_json=opts.json)
                elif opts.json:
                    _print_json(state, since)
                else:
                    _show(state, since, is_run=given is None)


def _say_none(*, as_json: bool) -> None:
    if as_json:
        print("[]")
    words = "no recorded run has found anything; --since WHEN lists by time"
    print(words, file=sys.stderr if as_json else sys.stdout)


def _print_json(state: State, since: float) -> None:
    from walsh_scrapy.tools.new.listing import new_items
    from walsh_scrapy.tools.printable import json_array

    for line in json_array(new_items(state, since)):
        print(line)


def _show(state: State, since: float, *, is_run: bool) -> None:
    from rich.console import Console

    from walsh_scrapy.tools.new.listing import NewEntry, new_items, new_lines, totals
    from walsh_scrapy.tools.screen import show

    found = [NewEntry.of(item) for item in new_items(state, since)]
    show(new_lines(found, Console().width if sys.stdout.isatty() else None))
    print(totals(found, since, is_run=is_run))
