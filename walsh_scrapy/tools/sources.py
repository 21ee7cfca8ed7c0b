"""``walsh sources``: the sources, with their last and next visits; and the actions on them."""

from __future__ import annotations

import sys
import time
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.feeds.sources.loading import log_warnings
from walsh_scrapy.feeds.sources.source import Source, declared_urls
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.policy.advice import complete_host, complete_source, source_outcome
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.tools.call import WrongCall, warn
from walsh_scrapy.tools.health import terms_of
from walsh_scrapy.tools.show import ViewList, print_lines, show, show_facts
from walsh_scrapy.tools.sourcesfile import UnknownSource, find_sources
from walsh_scrapy.tools.visittime import add_visit_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.state import State
    from walsh_scrapy.state.sql import Terms
    from walsh_scrapy.tools.call import Call

_COLUMNS: Final = ("problem", "next_visit", "since", "entries", "outcome", "url")
_LIST: Final = ViewList(
    view="readable_sources",
    columns=_COLUMNS,
    order_by="rank, coalesce(due_at, ''), url",
    empty="there are no sources",
    complete=complete_source,
    # For a million rows, reading a few columns is much faster than reading all.
    reads=(*_COLUMNS, "status", "detail"),
    complete_table=lambda row: {**row, "outcome": source_outcome(row)},
)
#: The condition in SQL for each option. `:stale` is a moment: now, less the duration of the option.
_CONDITIONS: Final = {
    "due": "is_due",
    "failing": "problem IN ('gone', 'failing', 'refused', 'robots', 'delay', 'denied')",
    "stale": "coalesce(newest_entry_at, first_visited_at) < :stale",
}
_FAILING_SINCE: Final = "failing_since <= :failing"
#: The sentence for each option if no row matches it.
_NONE_MATCH: Final = {
    "due": "no source is due",
    "failing": "no source is failing, refused, denied or gone",
    "stale": "every source has a newer entry",
}
#: The columns for one source by group. The columns in _HOST_COLUMNS are in the view of hosts.
_HOST_COLUMNS: Final = ("waits_for", "waits_until", "reason")
_FACTS: Final = {
    "Source": (
        *("url", "name", "kind", "tags", "folder", "page", "is_declared"),
        *("entries", "newest_entry_at", "repeated", "problem", "since", "advice"),
    ),
    "Schedule": (
        *("next_visit", "due_at", "due_reason", "every"),
        *("server_interval", "feed_interval", "skip_hours", "skip_days"),
    ),
    "Last visit": (
        *("outcome", "detail", "visited_at", "first_visited_at", "format"),
        *("failures", "failing_since", "refused_since", "refused_until"),
        *("moved_to", "moved_since", "move_failing_since"),
        *("onward_to", "onward_since"),
    ),
    "Validators": ("validator_url", "etag", "last_modified", "resent"),
    "Host": ("host", "delay", "hold_until", *_HOST_COLUMNS),
}


def run(call: Call) -> int:
    """List the sources, or run an action."""
    arguments = call.arguments
    listing = [
        name for name in (*_CONDITIONS, "all") if getattr(arguments, name) not in (False, None)
    ]
    if arguments.action and listing:
        raise WrongCall(f"--{listing[0]} cannot be used with `{arguments.action}`")
    if arguments.json and arguments.action not in (None, "show"):
        raise WrongCall(f"--json cannot be used with `{arguments.action}`")
    actions = {"show": _show, "resume": _resume, "sync": _sync, None: _list}
    return actions[arguments.action](call)


def _list(call: Call) -> int:
    arguments = call.arguments
    conditions = [] if arguments.all else ["is_declared"]
    params = {}
    empty = _LIST.empty
    for name, condition in _CONDITIONS.items():
        value = getattr(arguments, name)
        if value is None or value is False:
            continue
        conditions.append(condition)
        empty = _NONE_MATCH[name]
        if name != "due":
            params[name] = rfc3339(time.time() - value)
    if arguments.failing:
        conditions.append(_FAILING_SINCE)
    else:
        params.pop("failing", None)
    with _synced_state(call) as state:
        _LIST._replace(empty=empty).show(
            state,
            as_json=arguments.json,
            where=" AND ".join(conditions),
            params=params,
            terms=terms_of(state, call.sources_file, call.options),
        )
    return 0


def _show(call: Call) -> int:
    """Print everything about the sources that the URLs mean."""
    with _synced_state(call) as state:
        terms = terms_of(state, call.sources_file, call.options)
        rows = {
            row["url"]: row for url in call.arguments.urls for row in _find_rows(state, url, terms)
        }
        for row in rows.values():
            add_visit_time(row, state, call.options, state.now())
        if call.arguments.json:
            show(rows.values(), (), as_json=True, empty="")
            return 0
        for row in rows.values():
            hosts = state.rows("readable_hosts", where="host = :host", params={"host": row["host"]})
            (host,) = [complete_host(row) for row in hosts] or [{}]
            facts = row | {name: host.get(name) for name in _HOST_COLUMNS}
            facts["resent"] = row["resent"] or None
            facts["repeated"] = row["repeated"] or None
            for name, same in (("detail", "outcome"), ("due_at", "next_visit")):
                if facts[name] == facts[same]:
                    facts[name] = None
            show_facts(facts, _FACTS)
    return 0


def _resume(call: Call) -> int:
    """Resume the source of each URL; return 1 if a URL is not a source."""
    status = 0
    with _synced_state(call) as state:
        terms = terms_of(state, call.sources_file, call.options)
        for url in call.arguments.urls:
            try:
                rows = _find_rows(state, url, terms)
            except UnknownSource as error:
                warn(str(error))
                status = 1
                continue
            for row in rows:
                host = call.options.pace_by.unit(row["url"])
                is_resumed = resume(state, row["url"], host)
                outcome = "its failures are forgotten" if is_resumed else "it was not failing"
                (resumed,) = _find_rows(state, row["url"], terms)
                print_lines([f"{row['url']}: {outcome}; next visit: {resumed['next_visit']}"])
    return status


def resume(state: State, url: str, host: str) -> bool:
    """Make a source due if it is gone or failing, and return whether it was.

    ``host`` is its host, or its domain if domains are paced.

    Also forgets the validators of the source, and what is known about the llms.txt of a page, also
    where the page has moved, so that the next visit fetches the complete documents.
    """
    record = Stores(state).sources.find(url)
    if record is None:
        return False
    for address in {record.url, record.address} if record.kind == "llms" else ():
        for llms_txt in declared_urls(Source(address, "llms")):
            Stores(state).llmstxt.forget(llms_txt)
    return Stores(state).sources.resume(record.url, host)


def _find_rows(state: State, url: str, terms: Terms) -> list[dict[str, Any]]:
    """Return the rows of the sources that a URL means. Raises UnknownSource."""

    def find(spelling: str) -> list[dict[str, Any]]:
        params = {"url": spelling}
        rows = state.rows("readable_sources", where="url = :url", params=params, terms=terms)
        return [complete_source(row) for row in rows]

    return find(url) or [
        row
        for spelling in find_sources(url, Stores(state).sources.known_urls())
        for row in find(spelling)
    ]


def _sync(call: Call) -> int:
    """Load the sources file into the state database, and print the changes."""
    from walsh_scrapy.state import State

    file = call.sources_file
    with closing(State(call.options.state_url)) as state:
        state.hosts.set_pace_by(call.options.pace_by.value)
        synced = Stores(state).sync(
            file, time.time(), report_progress=partial(print, file=sys.stderr)
        )
        total = Stores(state).sources.total(synced.id)
    if synced.changes is None:  # otherwise they are in the log already
        log_warnings(Path(file), synced.warnings)
    new, changed, removed = synced.changes or (0, 0, 0)
    stayed = total - new - changed
    print(
        f"{file}: {count_of(total, 'source')}: {new} new, {changed} changed, "
        f"{removed} removed, {stayed} unchanged"
    )
    return 0


@contextmanager
def _synced_state(call: Call) -> Iterator[State]:
    """Open the state database, after loading the sources file into it.

    If there is no state database, one in memory is used, so that no file is created. If the
    database is read-only, a warning is printed unless it has the present sources file.
    """
    from walsh_scrapy.state import State, StateError

    file = call.sources_file
    tell = partial(print, file=sys.stderr)
    with call.state_if_any() as state:
        if state is not None:
            try:
                Stores(state).sync(file, time.time(), report_progress=tell)
            except StateError:
                if not Stores(state).has_read(file):
                    warn(f"{file} has changed and is not loaded: the state database is read-only")
            yield state
            return
    with closing(State("sqlite://")) as state:
        state.hosts.set_pace_by(call.options.pace_by.value)
        Stores(state).sync(file, time.time(), report_progress=tell)
        yield state
