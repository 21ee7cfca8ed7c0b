"""The lists ``walsh sources``, ``hosts``, ``runs`` and ``new``, and the actions on them."""

from __future__ import annotations

import difflib
import os
import stat
import sys
import time
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.feeds.sources.loading import log_warnings
from walsh_scrapy.feeds.sources.source import Source, declared_urls
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.policy.advice import complete_host, complete_run, complete_source, source_outcome
from walsh_scrapy.policy.durations import CLOCK_SKEW, format_moment, rfc3339
from walsh_scrapy.policy.pacing import HostTimes
from walsh_scrapy.policy.robots.copy import RobotsFile
from walsh_scrapy.policy.urls import origin_of
from walsh_scrapy.policy.wording import count_of, format_seconds, printable
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.call import CommandError, WrongCall, warn
from walsh_scrapy.tools.show import ViewList, print_lines, show, show_facts
from walsh_scrapy.tools.sourcesfile import UnknownSource, find_sources
from walsh_scrapy.tools.status import terms_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from walsh_scrapy.feeds.stores.entrystore import Position
    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.state.sql import Terms
    from walsh_scrapy.tools.call import Call

_SOURCE_COLUMNS: Final = ("problem", "next_visit", "since", "entries", "outcome", "url")
_SOURCES: Final = ViewList(
    view="readable_sources",
    columns=_SOURCE_COLUMNS,
    order_by="rank, coalesce(due_at, ''), url",
    empty="there are no sources",
    complete=complete_source,
    # For a million rows, reading a few columns is much faster than reading all.
    reads=(*_SOURCE_COLUMNS, "status", "detail"),
    complete_table=lambda row: {**row, "outcome": source_outcome(row)},
)
#: The condition in SQL for each option. `:stale` is a moment: now, less the duration of the option.
_SOURCE_CONDITIONS: Final = {
    "due": "is_due",
    "failing": "problem IN ('gone', 'failing', 'replaced', 'refused', 'robots', 'delay', 'denied')",
    "stale": "coalesce(newest_entry_at, first_visited_at) < :stale",
}
_FAILING_SINCE: Final = "failing_since <= :failing"
#: The sentence for each option if no row matches it.
_NO_SOURCE: Final = {
    "due": "no source is due",
    "failing": "no source is failing, refused, denied or gone",
    "stale": "every source has a newer entry",
}
#: The columns for one source by group. The columns in _FACTS_OF_HOST are in the view of hosts.
_FACTS_OF_HOST: Final = ("waits_for", "waits_until", "reason")
_SOURCE_FACTS: Final = {
    "Source": (
        *("url", "name", "kind", "tags", "folder", "page", "is_declared"),
        *("feed_title", "feed_host"),
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
    "Host": ("host", "delay", "hold_until", *_FACTS_OF_HOST),
}


def run_sources(call: Call) -> int:
    """List the sources, or run an action."""
    arguments = call.arguments
    listing = [
        name
        for name in (*_SOURCE_CONDITIONS, "all")
        if getattr(arguments, name) not in (False, None)
    ]
    if arguments.action and listing:
        raise WrongCall(f"--{listing[0]} cannot be used with `{arguments.action}`")
    if arguments.json and arguments.action not in (None, "show"):
        raise WrongCall(f"--json cannot be used with `{arguments.action}`")
    actions = {
        "show": _show_sources,
        "resume": _resume_sources,
        "accept": _accept_sources,
        "sync": _sync_sources,
        None: _list_sources,
    }
    return actions[arguments.action](call)


def _list_sources(call: Call) -> int:
    arguments = call.arguments
    conditions = [] if arguments.all else ["is_declared"]
    params = {}
    empty = _SOURCES.empty
    for name, condition in _SOURCE_CONDITIONS.items():
        value = getattr(arguments, name)
        if value is None or value is False:
            continue
        conditions.append(condition)
        empty = _NO_SOURCE[name]
        if name != "due":
            params[name] = rfc3339(time.time() - value)
    if arguments.failing:
        conditions.append(_FAILING_SINCE)
    else:
        params.pop("failing", None)
    with _synced_state(call) as state:
        _SOURCES._replace(empty=empty).show(
            state,
            as_json=arguments.json,
            where=" AND ".join(conditions),
            params=params,
            terms=terms_of(state, call.sources_file, call.options),
        )
    return 0


def _show_sources(call: Call) -> int:
    """Print everything about the sources that the URLs mean."""
    with _synced_state(call) as state:
        terms = terms_of(state, call.sources_file, call.options)
        rows = {
            row["url"]: row
            for url in call.arguments.urls
            for row in _find_source_rows(state, url, terms)
        }
        visit_times = VisitTimes(state, call.options, state.now())
        for row in rows.values():
            visit_times.apply(row)
        if call.arguments.json:
            show(rows.values(), (), as_json=True, empty="")
            return 0
        for row in rows.values():
            hosts = state.rows("readable_hosts", where="host = :host", params={"host": row["host"]})
            (host,) = [complete_host(row) for row in hosts] or [{}]
            facts = row | {name: host.get(name) for name in _FACTS_OF_HOST}
            facts["resent"] = row["resent"] or None
            facts["repeated"] = row["repeated"] or None
            for name, same in (("detail", "outcome"), ("due_at", "next_visit")):
                if facts[name] == facts[same]:
                    facts[name] = None
            show_facts(facts, _SOURCE_FACTS)
    return 0


def _resume_sources(call: Call) -> int:
    """Resume the source of each URL; return 1 if a URL is not a source."""

    def describe(state: State, url: str, host: str) -> str:
        is_resumed = resume(state, url, host)
        return "its failures are forgotten" if is_resumed else "it was not failing"

    return _change_sources(call, describe)


def _accept_sources(call: Call) -> int:
    """Accept the feed of the source of each URL; return 1 if a URL is not a source."""

    def describe(state: State, url: str, host: str) -> str:
        Stores(state).sources.accept(url, host)
        return "its next document counts, whatever its title and its site are"

    return _change_sources(call, describe)


def _change_sources(call: Call, change: Callable[[State, str, str], str]) -> int:
    """Change the source of each URL, and print what ``change`` returns, with the next visit."""
    status = 0
    with _synced_state(call) as state:
        terms = terms_of(state, call.sources_file, call.options)
        for url in call.arguments.urls:
            try:
                rows = _find_source_rows(state, url, terms)
            except UnknownSource as error:
                warn(str(error))
                status = 1
                continue
            for row in rows:
                outcome = change(state, row["url"], call.options.pace_by.unit(row["url"]))
                (changed,) = _find_source_rows(state, row["url"], terms)
                print_lines([f"{row['url']}: {outcome}; next visit: {changed['next_visit']}"])
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


def _find_source_rows(state: State, url: str, terms: Terms) -> list[dict[str, Any]]:
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


def _sync_sources(call: Call) -> int:
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


HOST_ORDER: Final = "rank, coalesce(waits_until, '') DESC, host"
_HOSTS: Final = ViewList(
    view="readable_hosts",
    columns=("problem", "waits_until", "delay", "operator_delay", "reason", "host"),
    order_by=HOST_ORDER,
    empty="no host is waiting",
    complete=complete_host,
    reads=("*",),
)
#: The condition for hosts in the list: waiting, with a problem, or with a delay by the operator.
IS_LISTED: Final = "problem IS NOT NULL OR waits_for IS NOT NULL OR operator_delay > 0"


def run_hosts(call: Call) -> int:
    """List the hosts that wait, end a hold, or set a delay."""
    arguments = call.arguments
    if arguments.action is None:
        with call.state_if_any() as state:
            _HOSTS.show(state, as_json=arguments.json, where=IS_LISTED)
        return 0
    host = call.options.pace_by.unit(to_url(arguments.host))
    if not host:
        raise WrongCall(f"{arguments.host!r} is not a host name, such as blog.example")
    if arguments.action == "release":
        with call.state_if_any() as state:
            print(release(state, host, arguments.because))
        return 0
    from walsh_scrapy.state import State

    # An operator may set a delay before the first crawl, so this creates the state database.
    with closing(State(call.options.state_url)) as state:
        if warning := describe_unknown_host(host, state, call.options):
            warn(warning)
        reason = arguments.because or ""
        print(set_delay(state, host, arguments.seconds, reason, call.options))
    return 0


def release(state: State | None, host: str, reason: str) -> str:
    """End the hold of a host, record the reason, and return a line for the operator.

    ``host`` is a domain if `WALSH_PACE_BY` is "domain". Raises CommandError if the host is not on
    hold.
    """
    remaining = state.hosts.release(host, reason) if state else 0.0
    if remaining <= 0.0:
        waiting = state.hosts.waiting() if state else {}
        on_hold = [name for name, wait in waiting.items() if wait.hold]
        near = difflib.get_close_matches(host, on_hold, n=1)
        listing = f"`{program_name()} hosts` lists the hosts that are waiting"
        hint = f"did you mean {near[0]}?" if near else listing
        raise CommandError(f"{host} is not on hold; {hint}")
    return printable(f"ended the hold of {host}, {format_seconds(remaining)} early")


def describe_unknown_host(host: str, state: State, options: Options) -> str | None:
    """Return a warning if the host has no source and no recorded request; otherwise None."""
    from walsh_scrapy.feeds.sources.loading import load_sources
    from walsh_scrapy.feeds.sources.source import SourcesError

    if state.hosts.find(host).times != HostTimes():
        return None
    try:
        declared = {options.pace_by.unit(source.url) for source in load_sources(options.sources)}
    except SourcesError:
        declared = set()
    if host in declared:
        return None
    near = difflib.get_close_matches(host, declared, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return printable(f"{host} has no source in {options.sources}, and no request is recorded{hint}")


def set_delay(state: State, host: str, seconds: float, reason: str, options: Options) -> str:
    """Set or remove the operator's delay of a host, and return lines for the operator."""
    delay = format_seconds(state.hosts.set_delay(host, seconds, reason))
    if not seconds:
        return printable(f"removed your delay for {host}")
    undo = f"`{program_name()} hosts delay {host} 0` removes the delay"
    lines = [f"{host}: at most one request every {delay}; {undo}"]
    if seconds > options.max_wait:
        max_wait = format_seconds(options.max_wait)
        lines.append(f"longer than WALSH_MAX_WAIT ({max_wait}): one request in a run, at most")
    if 2.0 * seconds > options.robots_ttl:
        twice = format_seconds(2.0 * seconds)
        lines.append(f"every second request is for robots.txt: a page every {twice}, at most")
    return "\n  ".join(printable(line) for line in lines)


def to_url(text: str) -> str:
    """Return the URL for an argument that is a URL or a host name."""
    return text if "://" in text else f"http://{text}"


_RUNS: Final = ViewList(
    view="readable_runs",
    columns=("problem", "state", "started_at", "duration", "new_entries", "spider"),
    order_by="rank, started_at DESC, run DESC",
    empty="no run is recorded",
    complete=complete_run,
    complete_table=dict,
)


def run_runs(call: Call) -> int:
    """List the runs."""
    since = call.arguments.since
    condition = "" if since is None else "started_at >= :since"
    params = {} if since is None else {"since": rfc3339(since)}
    with call.state_if_any() as state:
        _RUNS.show(state, as_json=call.arguments.json, where=condition, params=params)
    return 0


#: Each selects entries in another way.
_ENTRY_CHOICES: Final = ("since", "reader", "after", "run")
_ENTRIES: Final = ViewList(
    view="readable_entries",
    columns=("first_seen", "published", "source_name", "title", "url"),
    order_by="source, coalesce(published, first_seen) DESC, url",
    empty="no run has found any entry yet",
)
#: The list of entries with a changed title.
_CHANGES: Final = _ENTRIES._replace(
    columns=("changed_at", "source_name", "previous_title", "title", "url"),
    order_by="changed_at DESC, url",
    empty="no title has changed",
)
#: The lists for readers.
_ORDERED_ENTRIES: Final = _ENTRIES._replace(
    columns=("position", "first_seen", "source_name", "title", "url"), order_by="seq"
)
_ORDERED_CHANGES: Final = _CHANGES._replace(
    columns=("changed_position", *_CHANGES.columns[1:]), order_by="changed_seq"
)


def run_new(call: Call) -> int:
    """List the new entries."""
    arguments = call.arguments
    chosen = [f"--{name}" for name in _ENTRY_CHOICES if getattr(arguments, name) is not None]
    if len(chosen) > 1:
        raise WrongCall(f"{chosen[0]} and {chosen[1]} select entries differently; drop one of them")
    if arguments.from_now and arguments.reader is None:
        raise WrongCall("--from-now is for a new reader; name it with --reader NAME")
    if arguments.changed and arguments.run is not None:
        raise WrongCall("--run lists the entries that a run found, not those that changed")
    if arguments.reader is not None or arguments.after is not None:
        with call.state() as state:
            _show_next_entries(call, state)
    elif arguments.run is not None:
        with call.state() as state:
            _show_entries_of_run(call, state)
    elif arguments.changed:
        with call.state_if_any() as state:
            _show_changes_since(call, state)
    else:
        with call.state_if_any() as state:
            _show_entries_since(call, state)
    return 0


def _show_entries_since(call: Call, state: State | None) -> None:
    """List the entries since a moment, or since the start of the last run that found any."""
    since = call.arguments.since
    if state is not None and since is None:
        since = find_last_start(state)
    if since is None:
        _ENTRIES.show(None, as_json=call.arguments.json)
        return
    entries = _ENTRIES._replace(empty=f"no entry is new since {format_moment(since)}")
    entries.show(
        state,
        as_json=call.arguments.json,
        where="first_seen >= :since",
        params={"since": rfc3339(since)},
    )


def _show_changes_since(call: Call, state: State | None) -> None:
    """List the entries whose title has changed, since a moment if one is given."""
    since = call.arguments.since or 0.0
    changes = _CHANGES
    if since:
        changes = changes._replace(empty=f"no title has changed since {format_moment(since)}")
    changes.show(
        state,
        as_json=call.arguments.json,
        where="key IN (SELECT key FROM entries WHERE entries.changed_at >= :since) "
        "AND changed_at IS NOT NULL",
        params={"since": since},
    )


def _show_entries_of_run(call: Call, state: State) -> None:
    """List the entries that a run found."""
    number = call.arguments.run
    if state.runs.find(number) is None:
        raise CommandError(f"there is no run {number}; `walsh runs --json` has the numbers")
    entries = _ENTRIES._replace(empty=f"run {number} found no new entry")
    entries.show(state, as_json=call.arguments.json, where="run = :run", params={"run": number})


def _show_next_entries(call: Call, state: State) -> None:
    """List the entries, or with --changed the changes, that a reader has not got yet."""
    handover = Stores(state).handover
    position = call.arguments.after
    if position is not None:
        last = handover.last_position()
        handover.check(position, last)
        _print_between(call, state, position.seq, last)
        return
    name = call.arguments.reader + (" changed" if call.arguments.changed else "")
    with handover.open_reader(name) as seq:
        last = handover.last_position()
        begin = last.seq if call.arguments.from_now else 0
        _print_between(call, state, begin if seq is None else seq, last)
        _finish_output()
        handover.remember(name, last.seq, state.now())


def _print_between(call: Call, state: State, seq: int, last: Position) -> None:
    """List the entries after a number, up to the last position; with --changed the changes."""
    is_changes = call.arguments.changed
    entries = _ORDERED_CHANGES if is_changes else _ORDERED_ENTRIES
    what = "no changed title" if is_changes else "no new entry"
    number = entries.order_by
    entries._replace(empty=f"{what}; the position is {last}").show(
        state,
        as_json=call.arguments.json,
        where=f"{number} > :after AND {number} <= :last",
        params={"after": seq, "last": last.seq},
    )


def _finish_output() -> None:
    """Write out what was printed. A file is on the disk after that. Raises OSError."""
    sys.stdout.flush()
    number = sys.stdout.fileno()
    if stat.S_ISREG(os.fstat(number).st_mode):
        os.fsync(number)


def find_last_start(state: State) -> float | None:
    """Return the start of the last run that found an entry, in epoch seconds, or None.

    If other runs went on beside it, it is the start of the first of these. Entries with a time in
    the future are ignored, because the clock was wrong then.
    """
    number = Stores(state).entries.latest_run(time.time() + CLOCK_SKEW)
    run = state.runs.find(number) if number is not None else None
    return state.runs.first_beside(run) if run else None


class VisitTimes:
    """The Visit-times of stored robots.txt files, for which next visits wait.

    A view cannot read a robots.txt, and a host is on hold for its Visit-time only once a crawl
    wanted to request it. ``now`` is in epoch seconds.
    """

    def __init__(self, state: State, options: Options, now: float) -> None:
        self._find = state.robots.find
        self._options = options
        self._now = now
        self._files: dict[str, RobotsFile | None] = {}  # by origin: many sources share one

    def apply(self, row: dict[str, Any]) -> None:
        """Let the next visit in a row of `readable_sources` wait for its Visit-time."""
        file = self._file(origin_of(row["moved_to"] or row["url"]))
        if row["next_visit"] == "never" or file is None:
            return
        at = self._now
        if row["next_visit"] != "now":
            at = max(at, datetime.fromisoformat(row["next_visit"]).timestamp())
        if (seconds := file.closed_for(at)) > 0.0:
            row["next_visit"] = rfc3339(at + seconds)
            row["due_reason"] = "the Visit-time of its robots.txt"

    def _file(self, origin: str) -> RobotsFile | None:
        if origin not in self._files:
            copy, options = self._find(origin), self._options
            rules = options.ua_token, options.robots_unreachable
            self._files[origin] = (
                None if copy is None else RobotsFile.from_copy(copy, *rules, self._now)
            )
        return self._files[origin]
