"""``walsh new``: the new entries."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.policy.durations import CLOCK_SKEW, format_moment, rfc3339
from walsh_scrapy.tools.show import ViewList

if TYPE_CHECKING:
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call

_LIST: Final = ViewList(
    view="readable_entries",
    columns=("first_seen", "published", "source_title", "title", "url"),
    order_by="source, coalesce(published, first_seen) DESC, url",
    empty="no run has found any entry yet",
)


def run(call: Call) -> int:
    """List the new entries."""
    since = call.arguments.since
    as_json = call.arguments.json
    with call.state_if_any() as state:
        if state is not None and since is None:
            since = find_last_start(state)
        if since is None:
            _LIST.show(None, as_json=as_json)
            return 0
        entries = _LIST._replace(empty=f"no entry is new since {format_moment(since)}")
        entries.show(
            state,
            as_json=as_json,
            where="first_seen >= :since",
            params={"since": rfc3339(since)},
        )
    return 0


def find_last_start(state: State) -> float | None:
    """Return the start of the last run that found an entry, in epoch seconds, or None.

    Entries with a time in the future are ignored, because the clock was wrong then.
    """
    number = Stores(state).entries.latest_run(time.time() + CLOCK_SKEW)
    run = state.runs.find(number) if number is not None else None
    return run.started_at if run else None
