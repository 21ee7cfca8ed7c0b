"""``walsh runs``: the crawls and other runs, how each ended, and which are at work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.tools.show import ViewList

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call

_LIST: Final = ViewList(
    view="readable_runs",
    columns=("problem", "state", "started_at", "duration", "new_entries", "spider"),
    order_by="rank, started_at DESC, run DESC",
    empty="no run is recorded",
)


def run(call: Call) -> int:
    """List the runs."""
    with call.state_if_any() as state:
        _LIST.show(state, as_json=call.arguments.json)
    return 0
