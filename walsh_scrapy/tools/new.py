"""``walsh new``: the new entries, as a list to read."""

from __future__ import annotations

import sys
import time
from dataclasses import fields
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.items import EntryItem
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.tools.export import item_of
from walsh_scrapy.tools.output import Column, show_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call

_SHOWN: Final = ("title", "url", "published", "first_seen", "source_title", "source")
_NAMES: Final = dict.fromkeys((*_SHOWN, *(column.name for column in fields(EntryItem))))
#: The columns of an entry: the fields of an export.
COLUMNS: Final[list[Column[Mapping[str, Any]]]] = [
    Column(name, methodcaller("get", name), shown=name in _SHOWN) for name in _NAMES
]


def run(call: Call) -> int:
    """List the new entries."""
    since, as_json = call.arguments.since, call.arguments.json
    items: list[Mapping[str, Any]] = []
    with call.state_if_any() as state:
        if state is not None and since is None:
            since = default_since(state, time.time())
        if state is not None and since is not None:
            items = new_items(state, since)
    show_rows(items, COLUMNS, as_json=as_json)
    if state is None or since is None:
        words = "no recorded run has found anything; --since WHEN lists by time"
        print(words, file=sys.stderr if as_json else sys.stdout)
    elif not as_json:
        print(totals(items, since, is_run=call.arguments.since is None))
    return 0


def new_items(state: State, since: float) -> list[Mapping[str, Any]]:
    """Return the items first seen at ``since`` (epoch seconds) or later.

    They come by source, those of each by their dates, the newest first.
    """
    with state.entries.snapshot() as entries:
        found = (item_of(entry).to_dict() for entry in entries.matching(since=since))
        items: list[Mapping[str, Any]] = [*found]
    items.sort(key=lambda item: str(item["published"] or item["first_seen"] or ""), reverse=True)
    # Each source by the title that came last.
    titles = {item["source"]: str(item["source_title"] or item["source"]) for item in items[::-1]}
    items.sort(key=lambda item: (titles[item["source"]].casefold(), str(item["source"])))
    return items


def default_since(state: State, now: float) -> float | None:
    """Return when the last run that found something began, in epoch seconds; None without one.

    Entries of the future, by a wrong clock, do not count.
    """
    number = state.entries.latest_run(now + CLOCK_SKEW)
    run = state.runs.find(number) if number is not None else None
    return run.started_at if run else None


def totals(items: list[Mapping[str, Any]], since: float, *, is_run: bool) -> str:
    """Return one line: the numbers of new entries and of their sources, and the start time."""
    when = format_moment(since) + (", the last run that found something" if is_run else "")
    if not items:
        return f"nothing is new since {when}"
    sources = count_of(len({item["source"] for item in items}), "source")
    return f"{count_of(len(items), 'entry', 'entries')} of {sources}, new since {when}"
