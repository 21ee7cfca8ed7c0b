"""``walsh runs``: the runs, and how each of them ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.advice import complete_run
from walsh_scrapy.policy.durations import rfc3339
from walsh_scrapy.tools.show import ViewList

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call

_LIST: Final = ViewList(
    view="readable_runs",
    columns=("problem", "state", "started_at", "duration", "new_entries", "spider"),
    order_by="rank, started_at DESC, run DESC",
    empty="no run is recorded",
    complete=complete_run,
    complete_table=dict,
)


def run(call: Call) -> int:
    """List the runs."""
    since = call.arguments.since
    condition = "" if since is None else "started_at >= :since"
    params = {} if since is None else {"since": rfc3339(since)}
    with call.state_if_any() as state:
        _LIST.show(state, as_json=call.arguments.json, where=condition, params=params)
    return 0
