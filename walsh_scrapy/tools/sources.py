"""``walsh sources``: the last visit and the next one of each source."""

from __future__ import annotations

import sys
import time
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.sources.source import Source, declared_urls
from walsh_scrapy.tools.call import WrongCall, warn
from walsh_scrapy.tools.show import ViewList, print_lines, show, show_facts
from walsh_scrapy.tools.sourcesfile import UnknownSource, find_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call

_LIST: Final = ViewList(
    view="readable_sources",
    columns=("problem", "next_visit", "since", "entries", "outcome", "url"),
    order_by="rank, coalesce(due_at, ''), url",
    empty="no source is listed",
)
#: The condition of each option; an option with a length of time compares with a moment.
_CONDITIONS: Final = {
    "due": "is_due",
    "failing": "problem IN ('gone', 'failing', 'refused', 'denied')",
    "stale": "coalesce(newest_entry_at, first_visited_at) < :stale",
}
_FAILING_FOR: Final = "failing_since <= :failing"
#: The sentence for no rows, by the option that none matched.
_NONE_MATCH: Final = {
    "due": "no source is due",
    "failing": "no source is failing, denied or gone",
    "stale": "every source has newer entries",
}
#: The columns of one source by group. Those of its host are in the view of hosts.
_OF_HOST: Final = ("waits_for", "waits_until", "reason")
_FACTS: Final = {
    "Source": (
        *("url", "name", "kind", "tags", "folder", "page", "is_declared"),
        *("entries", "newest_entry_at", "problem", "since", "advice"),
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
    "Host": ("host", "delay", "hold_until", *_OF_HOST),
}


def run(call: Call) -> int:
    """List the sources, or do the action."""
    given = call.arguments
    listing = [name for name in (*_CONDITIONS, "all") if getattr(given, name) not in (False, None)]
    if given.action and listing:
        raise WrongCall(f"--{listing[0]} belongs to the list, not to `{given.action}`")
    if given.json and given.action not in (None, "show"):
        raise WrongCall(f"--json belongs to the list and to `show`, not to `{given.action}`")
    actions = {"show": _show, "resume": _resume, "sync": _sync, None: _list}
    return actions[given.action](call)


def _list(call: Call) -> int:
    given, now = call.arguments, time.time()
    conditions = [] if given.all else ["is_declared"]
    params = {}
    empty = _LIST.empty
    for name, condition in _CONDITIONS.items():
        value = getattr(given, name)
        if value is None or value is False:
            continue
        conditions.append(condition)
        empty = _NONE_MATCH[name]
        if name != "due":
            params[name] = rfc3339(now - value)
    if given.failing:
        conditions.append(_FAILING_FOR)
    else:
        params.pop("failing", None)
    with _synced_state(call) as state:
        sources = _LIST._replace(empty=empty)
        sources.show(state, as_json=given.json, where=" AND ".join(conditions), params=params)
    return 0


def _show(call: Call) -> int:
    """Print all facts of the sources that the URLs mean."""
    with _synced_state(call) as state:
        rows = {row["url"]: row for url in call.arguments.urls for row in _find_rows(state, url)}
        if call.arguments.json:
            show(rows.values(), (), as_json=True, empty="")
            return 0
        for row in rows.values():
            params = {"host": row["host"]}
            hosts = state.rows("readable_hosts", where="host = :host", params=params)
            host = next(hosts, {})
            facts = row | {name: host.get(name) for name in _OF_HOST}
            facts["resent"] = row["resent"] or None
            for name, same in (("detail", "outcome"), ("due_at", "next_visit")):
                if facts[name] == facts[same]:
                    facts[name] = None
            show_facts(facts, _FACTS)
    return 0


def _resume(call: Call) -> int:
    """Resume each URL; return 1 if one of them is not a source, else 0."""
    status = 0
    with _synced_state(call) as state:
        for name in call.arguments.urls:
            try:
                rows = _find_rows(state, name)
            except UnknownSource as error:
                warn(str(error))
                status = 1
                continue
            for row in rows:
                is_resumed = resume(state, row["url"])
                outcome = "its failures are counted from 0" if is_resumed else "it was not failing"
                (resumed,) = _find_rows(state, row["url"])
                print_lines([f"{row['url']}: {outcome}; next visit: {resumed['next_visit']}"])
    return status


def resume(state: State, url: str) -> bool:
    """Make a source due that is gone or failing; return False for any other, which stays as it is.

    The next visit reads any source as a whole, and requests the llms.txt too, where it is declared
    and where it moved. The source may be an llms.txt itself.
    """
    record = state.sources.find(url)
    if record is None:
        return False
    for address in {record.url, record.address} if record.kind == "llms" else ():
        for llms_txt in declared_urls(Source(address, "llms")):
            state.llmstxt.forget(llms_txt)
    return state.sources.resume(record.url)


def _find_rows(state: State, url: str) -> list[dict[str, Any]]:
    """Return the sources that a URL means, in any spelling. Raises UnknownSource."""
    rows = list(state.rows("readable_sources", where="url = :url", params={"url": url}))
    if not rows:
        for spelling in find_sources(url, state.sources.known_urls()):
            params = {"url": spelling}
            rows += state.rows("readable_sources", where="url = :url", params=params)
    return rows


def _sync(call: Call) -> int:
    """Bring the state up to date with the sources file, and print the changes."""
    from walsh_scrapy.state import State

    file = call.sources_file
    with closing(State(call.options.state_url)) as state:
        state.hosts.set_pace_by(call.options.pace_by.value)
        synced = state.sync(file, time.time(), report_progress=partial(print, file=sys.stderr))
        total = state.sources.total(synced.id)
    new, changed, removed = synced.changes or (0, 0, 0)
    stayed = total - new - changed
    print(
        f"{file}: {count_of(total, 'source')}: {new} new, {changed} changed, "
        f"{removed} removed, {stayed} unchanged"
    )
    return 0


@contextmanager
def _synced_state(call: Call) -> Iterator[State]:
    """Open the state, with the sources of the file as it is now.

    Without a state it is one in memory, and nothing is created. One that may only be read stays as
    it is, with a warning if the file has changed since.
    """
    from walsh_scrapy.state import State, StateError

    file, tell = call.sources_file, partial(print, file=sys.stderr)
    with call.state_if_any() as state:
        if state is not None:
            try:
                state.sync(file, time.time(), report_progress=tell)
            except StateError:
                if not state.has_read(file):
                    warn(f"{file} has changed since the last crawl, and the state may only be read")
            yield state
            return
    with closing(State("sqlite://")) as state:
        state.hosts.set_pace_by(call.options.pace_by.value)
        state.sync(file, time.time(), report_progress=tell)
        yield state
