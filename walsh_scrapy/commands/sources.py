"""``scrapy sources``: the last visit and the next one of each source; the sources file edited."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand
from scrapy.settings import Settings

from walsh_scrapy.policy.wording import counted, printable
from walsh_scrapy.tools.exits import clean_exit

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.tools.sources.overview import Overview, SourceRow

#: Seconds; a request of `add` that has to wait longer is deferred, and nothing is declared.
_LONGEST_WAIT = 60


class Command(ScrapyCommand):
    """Lists sources. It may run beside a crawl, which does not wait for it."""

    requires_project = True
    requires_crawler_process = False  # `add` needs one

    def syntax(self) -> str:
        """Return what follows the command's name."""
        return (
            "[options] [add URL ... | remove URL ... | prune [--yes] | rewrite --moved | "
            "forget URL ... | resume URL ...]"
        )

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return "List the sources: last visit, outcome, next due and why; edit the sources file"

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        return (
            "Lists every declared source with what the state knows of it: last visit, outcome, "
            "failures in a row, next due and why, where it moved, entries. Sources in trouble come "
            "first. Four actions edit the sources file: `add URL` asks what is there, as "
            "`scrapy discover` does, and declares it; `remove URL`; `prune` removes what is gone "
            "(410), and only names it without --yes; `rewrite --moved` declares sources where they "
            "settled after a move. Two change the state: `forget URL` deletes what it knows of a "
            "source, except its entries, so that its next visit is its first; `resume URL` makes a "
            "source due that is gone (410) or failing. Exit status: 0, 1 if something cannot be "
            "done, 2 for a wrong call. Examples: scrapy sources --due. scrapy sources --failing. "
            "scrapy sources add https://news.example/feed.xml"
        )

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Have Scrapy make what runs a crawl, for `add` alone."""
        from walsh_scrapy.tools.urlcommand import prepare

        super().process_options(args, opts)
        if args[:1] == ["add"] and self.settings is not None:
            self.requires_crawler_process = True
            prepare(self.settings, opts, _LONGEST_WAIT)

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
        parser.add_argument("--yes", action="store_true", help="`prune` removes, and not only says")
        parser.add_argument(
            "--all", action="store_true", help="also sources that are no longer declared"
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """List the sources, or do what the first argument says."""
        from walsh_scrapy.options import Options
        from walsh_scrapy.tools.sources.usage import check_usage, duration_of

        check_usage(args, opts)
        opts.stale = duration_of(opts.stale)
        with clean_exit():
            options = Options.from_settings(self.settings or Settings())
            file = opts.sources or options.sources
            if not args:
                _list(options, file, opts)
            elif args[0] == "add":
                self.exitcode = self._add(args[1:], file)
            elif args[0] in ("forget", "resume"):
                self.exitcode = _change(args[0], args[1:], options, file)
            else:
                _edit(args[0], args[1:], options, file, really=opts.yes)

    def _add(self, urls: list[str], file: str) -> int:
        """Ask what is at each URL, and declare it; return 1 if one of them cannot be."""
        from walsh_scrapy.runtime.startup import check_gates
        from walsh_scrapy.tools.discover.candidates import offers_for
        from walsh_scrapy.tools.discover.spider import DiscoverSpider
        from walsh_scrapy.tools.sources.adding import choose
        from walsh_scrapy.tools.sources.declared import DeclaredSources
        from walsh_scrapy.tools.urlcommand import run_spider

        declared = DeclaredSources(file, None)
        offers = offers_for(urls)
        new = declared.undeclared(offer.url for offer in offers)
        if len(new) < len(offers):
            print(f"declared already: {counted(len(offers) - len(new), 'source')}")
        offers = tuple(offer for offer in offers if offer.url in new)
        if not offers or self.crawler_process is None:
            return 0
        check_gates(self.crawler_process.settings)
        if sys.stderr.isatty():
            print("sending requests, with the pauses of each host ...", file=sys.stderr)
        run_spider(self.crawler_process, DiscoverSpider, name="sources add", offers=offers)
        choices = [choose(offer) for offer in offers]
        found = [each.source for each in choices if each.source]
        if found:
            _print(map(printable, declared.add(found)))
        for line in (line for each in choices for line in each.lines):
            print(f"walsh-scrapy: {printable(line)}", file=sys.stderr)
        return 0 if len(found) == len(offers) else 1


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


def _edit(action: str, urls: list[str], options: Options, file: str, *, really: bool) -> None:
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.sources.declared import DeclaredSources

    with State.existing(options.state_url) as state:
        declared = DeclaredSources(file, state)
        if action == "remove":
            lines = declared.remove(urls)
        else:
            lines = declared.prune(really=really) if action == "prune" else declared.rewrite_moved()
        _print(map(printable, lines))


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
