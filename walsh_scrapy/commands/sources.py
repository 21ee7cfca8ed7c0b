"""``scrapy sources``: the last visit and the next one of each source; sources added to the file."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, ClassVar, Final

from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.tools.command import OperatorCommand, announce_requests
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.sources.overview import Overview, SourceRow

_WITH_URLS: Final = ("show", "add", "resume")
#: Options that say what is listed.
_LISTING: Final = ("due", "failing", "stale", "all")
#: The value of --failing without one.
_ANY: Final = "0d"
_EXAMPLE: Final = "Example: scrapy sources resume https://blog.example/feed.xml"
#: Seconds; a request of `add` that has to wait longer is deferred, and nothing is declared.
_LONGEST_WAIT: Final = 60


class Command(OperatorCommand):
    """Lists sources, and adds some to the sources file."""

    usage = "[options] [show URL ... | add URL ... | resume URL ... | sync]"
    headline = "List the sources: last visit, outcome, next due and why; add one"
    description = (
        "Lists every declared source with what the state knows of it: last visit, outcome, "
        "failures in a row, next due and why, where it moved, entries. Sources in trouble come "
        "first. Without an option it also tells what to change in the sources file: what is gone "
        "(410), fails for long or moved for good. `show URL` tells all of one: what was asked last "
        "and what came of it, how it was read, when it is due and by whose wish, its validators "
        "and moves, its host. `add URL` asks what is there, as `scrapy discover` does, and "
        "declares it at the end of a .toml or .txt file. `resume URL` forgets the validators of a "
        "source, and makes it due if it is gone (410) or failing. `sync` reads a changed sources "
        "file into the state, as the next crawl does by itself. Exit status: 0, 1 if something "
        "cannot be done, 2 for a wrong call. Examples: scrapy sources --due. "
        "scrapy sources --failing. "
        "scrapy sources show https://news.example/feed.xml"
    )
    takes_words = True
    has_sources = True
    json = "one JSON array"
    arguments: ClassVar = {
        "--due": {
            "action": "store_true",
            "help": "only sources that a run would visit now, in its order",
        },
        "--failing": {
            "metavar": "DURATION",
            "nargs": "?",
            "const": _ANY,
            "help": "only sources that are gone, failing, refused or denied; with a duration only "
            "those whose failures span so long (60d)",
        },
        "--stale": {
            "metavar": "DURATION",
            "help": "only sources that gave nothing new for so long: 90d, 12w, P90D",
        },
        "--all": {"action": "store_true", "help": "also sources that are no longer declared"},
    }

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Let Scrapy make the crawler process, which only `add` needs."""
        super().process_options(args, opts)
        if args[:1] == ["add"]:
            self.requires_crawler_process = True
            self.prepare_crawl(opts, _LONGEST_WAIT)

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:
        """List the sources, or do what the first argument says."""
        self._check_usage(args, opts)
        opts.stale = self._duration("stale", opts.stale)
        opts.failing = self._duration("failing", opts.failing)
        file = opts.sources or self.options.sources
        action, urls = (args[0], args[1:]) if args else ("", [])
        if action == "add":
            return self._add(urls, file)
        if action == "sync":
            return self._sync(file)
        with self.state_if_any() as state:
            if action == "show":
                _tell(urls, state, self.options, file, as_json=opts.json)
            elif action == "resume":
                return _resume(urls, state, file, self.options)
            else:
                _list(state, self.options, file, opts)
        return 0

    def _check_usage(self, args: list[str], opts: argparse.Namespace) -> None:
        """Exit with status 2 and one line for a wrong call."""
        action, urls = (args[0], args[1:]) if args else ("", [])
        if action and action not in (*_WITH_URLS, "sync"):
            self.refuse(
                f"`sources` takes {', '.join(f'`{each} URL`' for each in _WITH_URLS)}, `sync` or "
                f"nothing. {_EXAMPLE}"
            )
        if bool(urls) != (action in _WITH_URLS):
            needs = "takes no URL" if urls else "takes a URL"
            example = _EXAMPLE if urls else _EXAMPLE.replace("resume", action)
            self.refuse(f"`{action}` {needs}: `{action}{'' if urls else ' URL'}`. {example}")
        given = [name for name in _LISTING if getattr(opts, name) not in (False, None)]
        if action and given:
            self.refuse(f"--{given[0]} belongs to the list, not to `{action}`")
        if opts.json and action not in ("", "show"):
            self.refuse(f"--json belongs to the list and to `show`, not to `{action}`")

    def _sync(self, file: str) -> int:
        """Bring the state up to date with the sources file, and print what has changed."""
        from contextlib import closing
        from functools import partial

        from walsh_scrapy.state import State

        with closing(State(self.options.state_url)) as state:
            state.hosts.pace_by(self.options.pace_by.value)
            tell = partial(print, file=sys.stderr)
            synced = state.sync(file, time.time(), tell=tell)
            total = state.sources.total(synced.id)
        new, changed, removed = synced.changes or (0, 0, 0)
        stayed = total - new - changed
        print(
            f"{file}: {count_of(total, 'source')}: {new} new, {changed} changed, "
            f"{removed} removed, {stayed} unchanged"
        )
        return 0

    def _duration(self, option: str, text: str | None) -> float | None:
        """Return the seconds an option names; exit with status 2 and one line for a wrong one."""
        from walsh_scrapy.policy.durations import parse_typed_duration

        try:
            return None if text is None else parse_typed_duration(text.strip()).total_seconds()
        except ValueError:
            written = repr((text or "")[:40])
            self.refuse(
                f"--{option}: {written} is not a duration; write for example 90d, 12w or P90D"
            )

    def _add(self, urls: list[str], file: str) -> int:
        """Ask what is at each URL, and declare it; return 1 if one of them cannot be."""
        from walsh_scrapy.crawl.startup import check_gates
        from walsh_scrapy.tools.discover.candidates import offers_for
        from walsh_scrapy.tools.discover.report import choose
        from walsh_scrapy.tools.discover.spider import DiscoverSpider
        from walsh_scrapy.tools.sources.changes import SourcesFile

        declared = SourcesFile(file)
        offers = offers_for(urls)
        new = declared.undeclared(offer.url for offer in offers)
        if len(new) < len(offers):
            print(f"declared already: {count_of(len(offers) - len(new), 'source')}")
        offers = tuple(offer for offer in offers if offer.url in new)
        if not offers or self.crawler_process is None:
            return 0
        check_gates(self.crawler_process.settings)
        announce_requests()
        self.run_spider(DiscoverSpider, name="sources add", offers=offers)
        choices = [choose(offer) for offer in offers]
        found = [each.source for each in choices if each.source]
        if found:
            print_lines(declared.add(found))
        for line in (line for each in choices for line in each.lines):
            print(f"walsh-scrapy: {printable(line)}", file=sys.stderr)
        return 0 if len(found) == len(offers) else 1


def _list(state: State | None, options: Options, file: str, opts: argparse.Namespace) -> None:
    from walsh_scrapy.sources.loading import load_sources
    from walsh_scrapy.tools.output import json_array
    from walsh_scrapy.tools.sources.changes import SourcesFile
    from walsh_scrapy.tools.sources.overview import build_overview
    from walsh_scrapy.tools.sources.table import hidden_line

    now = time.time()
    found = build_overview(load_sources(file), state, options, now)
    delays = state.hosts.delays(above=options.min_interval) if state and opts.due else {}
    rows = found.due(delays) if opts.due else found.by_urgency(undeclared=opts.all)
    rows = _choose(rows, opts, now)
    if opts.json:
        print_lines(json_array(row.as_dict() for row in rows))
    else:
        _show(rows, found, opts)
    hidden = 0 if opts.all or opts.due else len(found.undeclared)
    if hidden:
        print(hidden_line(hidden), file=sys.stderr if opts.json else sys.stdout)
    if not (opts.json or _is_chosen(opts) or opts.all):
        print_lines(SourcesFile(file).lines_to_change(found.declared))


def _tell(
    urls: list[str], state: State | None, options: Options, file: str, *, as_json: bool
) -> None:
    """Print all that is known of the sources that the URLs mean."""
    from walsh_scrapy.sources.loading import load_sources
    from walsh_scrapy.tools.output import json_array
    from walsh_scrapy.tools.sources.changes import find_sources
    from walsh_scrapy.tools.sources.overview import build_overview
    from walsh_scrapy.tools.sources.profile import build_profile

    found = build_overview(load_sources(file), state, options, time.time())
    rows = {row.record.url: row for row in found.by_urgency(undeclared=True)}
    chosen = dict.fromkeys(each for url in urls for each in find_sources(url, rows))
    profiles = [build_profile(rows[url], state, options) for url in chosen]
    if as_json:
        print_lines(json_array(profile.as_dict() for profile in profiles))
    else:
        print_lines(line for profile in profiles for line in profile.lines())


def _choose(rows: list[SourceRow], opts: argparse.Namespace, now: float) -> list[SourceRow]:
    """Return the rows that every option asks for."""
    return [
        row
        for row in rows
        if (opts.failing is None or (row.is_in_trouble and row.record.failed_for >= opts.failing))
        and (opts.stale is None or row.is_stale(now - opts.stale))
    ]


def _show(rows: Sequence[SourceRow], found: Overview, opts: argparse.Namespace) -> None:
    from rich.console import Console

    from walsh_scrapy.tools.output import show
    from walsh_scrapy.tools.sources.table import sources_screen, sources_text, totals

    if rows and sys.stdout.isatty():
        show(sources_screen(rows, Console().width))
    elif rows:
        print_lines(sources_text(rows))
    if _is_chosen(opts):
        print(f"{len(rows)} listed of {totals(found.declared)}")
    else:
        print(totals(rows))


def _is_chosen(opts: argparse.Namespace) -> bool:
    """Return True if options choose some of the declared sources."""
    return bool(opts.due) or (opts.failing, opts.stale) != (None, None)


def _resume(urls: list[str], state: State | None, file: str, options: Options) -> int:
    """Resume each URL; return 1 if one of them is not a source, else 0."""
    from walsh_scrapy.tools.sources.changes import SourceChanges, UnknownSource

    status = 0
    changes = SourceChanges(state, file, options)
    for url in urls:
        try:
            print_lines(changes.resume(url))
        except UnknownSource as error:
            print(f"walsh-scrapy: {error}", file=sys.stderr)
            status = 1
    return status
