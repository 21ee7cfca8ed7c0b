"""The gaps between requests: the shortest gap of each host, compared to the required gap."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walsh_scrapy.state import State
    from walsh_scrapy.tools.report.facts import Period

#: The maximum number of requests, the last ones of the period.
MAX_REQUESTS: Final = 100_000
#: The classes of gaps, as multiples of the required gap.
GAPS: Final = {
    "short": "too short",
    "x1": "1 to 1.5 times",
    "x15": "1.5 to 2 times",
    "x2": "2 to 5 times",
    "x5": "5 to 10 times",
    "x10": "10 times or more",
}
_MULTIPLES: Final = ((10.0, "x10"), (5.0, "x5"), (2.0, "x2"), (1.5, "x15"))

Row = dict[str, Any]


def read_gaps(state: State, period: Period) -> Iterator[Row]:
    """Yield the requests of a period with their gaps, the last request first.

    The request before a gap may be of any run. An unknown gap is None.
    """
    return state.rows(
        "request_gaps",
        columns="host, requested_at, gap, required_gap AS required, problem, "
        "required_gap > delay AS by_hold",
        where=period.has("requested_at"),
        order_by="requested_at DESC, id DESC",
        limit=MAX_REQUESTS,
        params=period.params,
    )


def compare(rows: Iterable[Row]) -> tuple[list[Row], Counter[str]]:
    """Return a row for each host, and the number of gaps by the keys of GAPS.

    Hosts with gaps that are too short come first, then the hosts with the most requests.
    """
    hosts: dict[str, Row] = {}
    gaps = Counter[str]()
    for row in rows:
        new = {"host": row["host"], "requests": 0, "too_short": 0, "shortest": None, "longest": row}
        host = hosts.setdefault(row["host"], new | {"last_at": row["requested_at"]})
        host["requests"] += 1
        host["first_at"] = row["requested_at"]
        host["too_short"] += row["problem"] is not None
        if row["problem"]:
            gaps["short"] += 1
        elif row["gap"] is not None:
            gaps[_name_gap(row["gap"], row["required"])] += 1
        if row["gap"] is not None:
            host["shortest"] = min(host["shortest"] or row, row, key=lambda gap: gap["gap"])
            host["longest"] = max(host["longest"], row, key=lambda gap: gap["required"])
    by_urgency = sorted(
        hosts.values(), key=lambda host: (-host["too_short"], -host["requests"], host["host"])
    )
    return by_urgency, gaps


def _name_gap(gap: float, required: float) -> str:
    for multiple, name in _MULTIPLES:
        if gap >= multiple * required:
            return name
    return "x1"
