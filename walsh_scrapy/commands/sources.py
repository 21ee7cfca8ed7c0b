"""``scrapy sources``: the last visit and the next one of each source; forget and resume."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand
from scrapy.settings import Settings

from walsh_scrapy.tools.exits import clean_exit, usage_error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from walsh_scrapy.options import Options
    from walsh_scrapy.tools.sources.overview import Overview, SourceRow

_EXAMPLE = "Example: scrapy sources resume https://blog.example/feed.xml"


class Command(ScrapyCommand):
    """Lists sources. It may run beside a crawl, which does not wait for it."""

    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        """Return what follows the command's name."""
        return "[options] [forget URL [URL ...] | resume URL [URL ...]]"

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return "List the sources: last visit, outcome, next due and why"

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        return (
            "Lists every declared source with what the state knows of it: last visit, outcome, "
            "failures in a row, next due and why, where it moved, entries. Sources in trouble come "
            "first. `forget URL` deletes what the state knows of a source, except its entries, so "
            "that its next visit is its first. `resume URL` makes a source due that is gone (410) "
            "or failing. Exit status: 0, 1 if something cannot be done, 2 for a wrong call. "
            "Examples: scrapy sources --due. scrapy sources --json. "
            "scrapy sources resume https://blog.example/feed.xml"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what this command takes."""
        super().add_options(parser)
        parser.add_argument(
            "--sources", metavar="FILE", help="sources file to use instead of WALSH_SOURCES"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON array")
        parser.add_argument(
            "--due",
            action="store_true",
            help="only sources that a run would visit now, in its order",
        )
        parser.add_argument(
            "--failing", action="store_true", help="only sources that are gone, failing or denied"
        )
        parser.add_argument(
            "--stale",
            metavar="DURATION",
            help="only sources that gave nothing new for so long: 90d, 12w, P90D",
        )
        parser.add_argument("--moved", action="store_true", help="only sources that moved")
        parser.add_argument(
            "--all", action="store_true", help="also sources that are no longer declared"
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """List, forget or resume."""
        from walsh_scrapy.options import Options

        for word in args:
            if word.startswith("-"):
                usage_error(f"there is no option {word}; see scrapy sources --help")
        if args and (args[0] not in ("forget", "resume") or len(args) == 1):
            usage_error(f"`sources` takes `forget URL`, `resume URL` or nothing. {_EXAMPLE}")
        opts.stale = _duration(opts.stale)
        with clean_exit():
            options = Options.from_settings(self.settings or Settings())
            file = opts.sources or options.sources
            if args:
                self.exitcode = _change(args[0], args[1:], options, file)
            else:
                _list(options, file, opts)


def _duration(text: str | None) -> timedelta | None:
    from walsh_scrapy.policy.durations import parse_typed_duration

    if text is None:
        return None
    try:
        return parse_typed_duration(text.strip())
    except ValueError:
        usage_error(f"--stale: {text[:40]!r} is not a duration; write for example 90d, 12w or P90D")


def _list(options: Options, file: str, opts: argparse.Namespace) -> None:
    from walsh_scrapy.sources import load_sources
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.sources.overview import build_overview

    sources, now = load_sources(file), time.time()
    with State.existing(options.state_url) as state:
        found = build_overview(sources, state, options, now)
        intervals = state.ledger.intervals(above=options.min_interval) if state and opts.due else {}
    rows = found.due(intervals) if opts.due else found.by_urgency(undeclared=opts.all)
    rows = _chosen(rows, opts, now)
    if opts.json:
        from walsh_scrapy.tools.printable import json_array

        _print(json_array(row.as_dict() for row in rows))
    else:
        _show(rows, found, opts)
    hidden = 0 if opts.all or opts.due else len(found.undeclared)
    if hidden:
        from walsh_scrapy.tools.sources.table import hidden_line

        print(hidden_line(hidden), file=sys.stderr if opts.json else sys.stdout)


def _chosen(rows: list[SourceRow], opts: argparse.Namespace, now: float) -> list[SourceRow]:
    """Return the rows that every option asks for."""
    return [
        row
        for row in rows
        if (not opts.failing or row.is_in_trouble)
        and (not opts.moved or row.record.move is not None)
        and (opts.stale is None or row.is_stale(now - opts.stale.total_seconds()))
    ]


def _show(rows: Sequence[SourceRow], found: Overview, opts: argparse.Namespace) -> None:
    from rich.console import Console

    from walsh_scrapy.tools.screen import show
    from walsh_scrapy.tools.sources.table import sources_screen, sources_text, totals

    if rows and sys.stdout.isatty():
        show(sources_screen(rows, Console().width))
    elif rows:
        _print(sources_text(rows))
    if opts.due or opts.failing or opts.moved or opts.stale is not None:
        print(f"{len(rows)} listed of {totals(found.declared)}")
    else:
        print(totals(rows))


def _change(action: str, urls: list[str], options: Options, file: str) -> int:
    """Forget or resume each URL; return 1 if one of them is not a source, else 0."""
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.sources.changes import Changes
    from walsh_scrapy.tools.sources.lookup import UnknownSource

    status = 0
    with State.existing(options.state_url) as state:
        changes = Changes(state, file, options)
        change = changes.forget if action == "forget" else changes.resume
        for url in urls:
            try:
                _print(change(url))
            except UnknownSource as error:
                print(f"walsh-scrapy: {error}", file=sys.stderr)
                status = 1
    return status


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
