"""``walsh new``: the new entries."""

from __future__ import annotations

import os
import stat
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.policy.durations import CLOCK_SKEW, format_moment, rfc3339
from walsh_scrapy.tools.call import CommandError, WrongCall
from walsh_scrapy.tools.show import ViewList

if TYPE_CHECKING:
    from walsh_scrapy.feeds.stores.handover import Position
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call

#: Each selects entries in another way.
_CHOICES: Final = ("since", "reader", "after", "run")
_LIST: Final = ViewList(
    view="readable_entries",
    columns=("first_seen", "published", "source_name", "title", "url"),
    order_by="source, coalesce(published, first_seen) DESC, url",
    empty="no run has found any entry yet",
)
#: The list for readers.
_ORDERED: Final = _LIST._replace(
    columns=("position", "first_seen", "source_name", "title", "url"), order_by="seq"
)


def run(call: Call) -> int:
    """List the new entries."""
    arguments = call.arguments
    chosen = [f"--{name}" for name in _CHOICES if getattr(arguments, name) is not None]
    if len(chosen) > 1:
        raise WrongCall(f"{chosen[0]} and {chosen[1]} select entries differently; drop one of them")
    if arguments.from_now and arguments.reader is None:
        raise WrongCall("--from-now is for a new reader; name it with --reader NAME")
    if arguments.reader is not None or arguments.after is not None:
        with call.state() as state:
            _show_next(call, state)
    elif arguments.run is not None:
        with call.state() as state:
            _show_run(call, state)
    else:
        with call.state_if_any() as state:
            _show_since(call, state)
    return 0


def _show_since(call: Call, state: State | None) -> None:
    """List the entries since a moment, or since the start of the last run that found any."""
    since = call.arguments.since
    if state is not None and since is None:
        since = find_last_start(state)
    if since is None:
        _LIST.show(None, as_json=call.arguments.json)
        return
    entries = _LIST._replace(empty=f"no entry is new since {format_moment(since)}")
    entries.show(
        state,
        as_json=call.arguments.json,
        where="first_seen >= :since",
        params={"since": rfc3339(since)},
    )


def _show_run(call: Call, state: State) -> None:
    """List the entries that a run found."""
    number = call.arguments.run
    if state.runs.find(number) is None:
        raise CommandError(f"there is no run {number}; `walsh runs --json` has the numbers")
    entries = _LIST._replace(empty=f"run {number} found no new entry")
    entries.show(state, as_json=call.arguments.json, where="run = :run", params={"run": number})


def _show_next(call: Call, state: State) -> None:
    """List the entries that a reader has not got yet."""
    handover = Stores(state).handover
    position = call.arguments.after
    if position is not None:
        last = handover.last_position()
        handover.check(position, last)
        _print_between(call, state, position.seq, last)
        return
    name = call.arguments.reader
    with handover.open_reader(name) as seq:
        last = handover.last_position()
        begin = last.seq if call.arguments.from_now else 0
        _print_between(call, state, begin if seq is None else seq, last)
        _finish_output()
        handover.remember(name, last.seq, state.now())


def _print_between(call: Call, state: State, seq: int, last: Position) -> None:
    """List the entries after a number, up to the last position."""
    entries = _ORDERED._replace(empty=f"no new entry; the position is {last}")
    params: dict[str, Any] = {"after": seq, "last": last.seq}
    entries.show(
        state, as_json=call.arguments.json, where="seq > :after AND seq <= :last", params=params
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
