"""``walsh sources``: the last visit and the next one of each source."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.tools.call import WrongCall, warn
from walsh_scrapy.tools.output import print_lines, record, show_rows

if TYPE_CHECKING:
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call
    from walsh_scrapy.tools.sources.overview import Overview

#: Options that choose the listed sources.
_LISTING: Final = ("due", "failing", "stale", "all")


def run(call: Call) -> int:
    """List the sources, or do the action."""
    given = call.arguments
    listing = [name for name in _LISTING if getattr(given, name) not in (False, None)]
    if given.action and listing:
        raise WrongCall(f"--{listing[0]} belongs to the list, not to `{given.action}`")
    if given.json and given.action not in (None, "show"):
        raise WrongCall(f"--json belongs to the list and to `show`, not to `{given.action}`")
    actions = {"show": _show, "resume": _resume, "sync": _sync, None: _list}
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
                warn(str(error))
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
