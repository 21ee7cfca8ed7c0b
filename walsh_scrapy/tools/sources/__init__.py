"""``scrapy sources``: the last visit and the next one of each source; sources added to the file.

Lists every declared source with its facts in the state: last visit, outcome, failures in a row,
next due and why, where it moved, entries. Sources with problems come first. Without an option it
also lists the changes to make in the sources file: sources that are gone (410), fail for long or
moved. `show URL` shows all facts of one: the outcome of its last visit, its form, when it is due
and why, its validators and moves, its host; `scrapy why URL` has its requests. `add URL` looks for
sources there, as `scrapy discover` does, and declares one at the end of a .toml or .txt file.
`resume URL` forgets the validators of a source, and makes it due if it is gone (410) or failing.
`sync` reads a changed sources file into the state, as the next crawl does by itself. Exit status:
0, 1 if something cannot be done, 2 for a wrong call. Examples: scrapy sources --due. scrapy sources
--failing. scrapy sources show https://news.example/feed.xml
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.durations import parse_typed_duration
from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.tools.call import WrongCall, add_actions, add_json, add_sources, typed
from walsh_scrapy.tools.output import print_lines, record, show_rows

if TYPE_CHECKING:
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call
    from walsh_scrapy.tools.sources.overview import Overview

USAGE = "[options] [show URL ... | add URL ... | resume URL ... | sync]"
#: Options that choose the listed sources.
_LISTING: Final = ("due", "failing", "stale", "all")
#: Seconds; a request of `add` that must wait longer is deferred, and nothing is declared.
_LONGEST_WAIT: Final = 60


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_sources(parser)
    add_json(parser)
    parser.add_argument(
        "--due",
        action="store_true",
        help="only sources that a run would visit now, in its order",
    )
    parser.add_argument(
        "--failing",
        metavar="DURATION",
        nargs="?",
        type=typed(_duration),
        const=0.0,
        help="only sources that are gone, failing, refused or denied; with a duration only those "
        "whose failures span at least this (60d)",
    )
    parser.add_argument(
        "--stale",
        metavar="DURATION",
        type=typed(_duration),
        help="only sources that gave nothing new for at least this: 90d, 12w, P90D",
    )
    parser.add_argument(
        "--all", action="store_true", help="also sources that are no longer declared"
    )
    actions = add_actions(parser)
    for name, told in (
        ("show", "show all facts of a source"),
        ("add", "look for a source there, and declare it"),
        ("resume", "make a source due that is gone or failing"),
        ("sync", "read the sources file into the state"),
    ):
        action = actions.add_parser(name, help=told)
        if name != "sync":
            action.add_argument("urls", nargs="+", metavar="URL", help="a source")
        action.add_argument("--sources", metavar="FILE", default=argparse.SUPPRESS)
        if name == "show":
            action.add_argument("--json", action="store_true", default=argparse.SUPPRESS)


def _duration(text: str) -> float:
    try:
        return parse_typed_duration(text.strip()).total_seconds()
    except ValueError:
        told = f"{text[:40]!r} is not a duration; write for example 90d, 12w or P90D"
        raise ValueError(told) from None


def run(call: Call) -> int:
    """List the sources, or do the action."""
    given = call.arguments
    listing = [name for name in _LISTING if getattr(given, name) not in (False, None)]
    if given.action and listing:
        raise WrongCall(f"--{listing[0]} belongs to the list, not to `{given.action}`")
    if given.json and given.action not in (None, "show"):
        raise WrongCall(f"--json belongs to the list and to `show`, not to `{given.action}`")
    actions = {"show": _show, "add": _add, "resume": _resume, "sync": _sync, None: _list}
    return actions[given.action](call)


def _sync(call: Call) -> int:
    """Bring the state up to date with the sources file, and print the changes."""
    from walsh_scrapy.state import State

    file = call.sources_file
    with closing(State(call.options.state_url)) as state:
        state.hosts.pace_by(call.options.pace_by.value)
        synced = state.sync(file, time.time(), tell=partial(print, file=sys.stderr))
        total = state.sources.total(synced.id)
    new, changed, removed = synced.changes or (0, 0, 0)
    stayed = total - new - changed
    print(
        f"{file}: {count_of(total, 'source')}: {new} new, {changed} changed, "
        f"{removed} removed, {stayed} unchanged"
    )
    return 0


def _add(call: Call) -> int:
    """Look for a source at each URL, and declare it; return 1 if one of them has none."""
    from walsh_scrapy.tools.discover import DiscoverSpider
    from walsh_scrapy.tools.offers import choose, offers_for
    from walsh_scrapy.tools.sources.changes import SourcesFile

    declared = SourcesFile(call.sources_file)
    offers = offers_for(call.arguments.urls)
    new = declared.undeclared(offer.url for offer in offers)
    if len(new) < len(offers):
        print(f"declared already: {count_of(len(offers) - len(new), 'source')}")
    offers = tuple(offer for offer in offers if offer.url in new)
    if not offers:
        return 0
    call.crawl(DiscoverSpider, _LONGEST_WAIT, name="sources add", offers=offers)
    choices = [choose(offer) for offer in offers]
    found = [source for source, _ in choices if source]
    if found:
        print_lines(declared.add(found))
    for line in (line for _, lines in choices for line in lines):
        print(f"walsh-scrapy: {printable(line)}", file=sys.stderr)
    return 0 if len(found) == len(offers) else 1


def _overview(call: Call, state: State | None) -> Overview:
    """Return the rows of all sources as they are now."""
    from walsh_scrapy.sources.loading import load_sources
    from walsh_scrapy.tools.sources.overview import build_overview

    return build_overview(load_sources(call.sources_file), state, call.options, time.time())


def _list(call: Call) -> int:
    from walsh_scrapy.tools.sources.changes import SourcesFile
    from walsh_scrapy.tools.sources.overview import COLUMNS, totals

    given, now = call.arguments, time.time()
    with call.state_if_any() as state:
        found = _overview(call, state)
        delays = state.hosts.delays(above=call.options.min_interval) if state and given.due else {}
    rows = found.due(delays) if given.due else found.by_urgency(undeclared=given.all)
    rows = [
        row
        for row in rows
        if (given.failing is None or (row.has_problem and row.record.failed_for >= given.failing))
        and (given.stale is None or row.is_stale(now - given.stale))
    ]
    is_chosen = given.due or (given.failing, given.stale) != (None, None)
    show_rows(rows, COLUMNS, as_json=given.json, style=lambda row: row.style)
    if is_chosen and not given.json:
        print(f"{len(rows)} listed of {totals(found.declared)}")
    elif not given.json:
        print(totals(rows))
    hidden = 0 if given.all or given.due else len(found.undeclared)
    if hidden:
        told = f"no longer declared, listed only with --all: {count_of(hidden, 'source')}"
        print(told, file=sys.stderr if given.json else sys.stdout)
    if not (given.json or is_chosen or given.all):
        print_lines(SourcesFile(call.sources_file).lines_to_change(found.declared))
    return 0


def _show(call: Call) -> int:
    """Print all that is known of the sources that the URLs mean."""
    from walsh_scrapy.tools.sources.changes import find_sources
    from walsh_scrapy.tools.sources.overview import COLUMNS

    with call.state_if_any() as state:
        rows = _overview(call, state).by_url
    named = (each for url in call.arguments.urls for each in find_sources(url, rows))
    chosen = [rows[url] for url in dict.fromkeys(named)]
    if call.arguments.json:
        show_rows(chosen, COLUMNS, as_json=True)
    else:
        print_lines(line for row in chosen for line in record(row, COLUMNS))
    return 0


def _resume(call: Call) -> int:
    """Resume each URL; return 1 if one of them is not a source, else 0."""
    from walsh_scrapy.tools.sources.changes import UnknownSource, find_sources, resume

    resumed: dict[str, bool] = {}
    status = 0
    with call.state_if_any() as state:
        rows = _overview(call, state).by_url
        for url in call.arguments.urls:
            try:
                for each in find_sources(url, rows):
                    resumed[each] = state is not None and resume(state, rows[each])
            except UnknownSource as error:
                print(f"walsh-scrapy: {error}", file=sys.stderr)
                status = 1
        if any(resumed.values()):
            rows = _overview(call, state).by_url
    for url, is_resumed in resumed.items():
        when = rows[url].when_due
        told = (
            f"{url} is {when}; its failures are counted from 0"
            if is_resumed
            else f"{url} is neither gone nor failing: it is {when}, as before, and then read as a "
            "whole"
        )
        print_lines([told])
    return status
