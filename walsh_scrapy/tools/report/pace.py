"""The gaps of a period: the shortest at each host, and how all compare to the required gap."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.audit.pace import GapCheck
from walsh_scrapy.policy.durations import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walsh_scrapy.state.log import Log, TimeSpan

#: Requests whose gaps are read, the last ones of a period: as many as need 200 MB of memory.
MAX_REQUESTS: Final = 100_000
#: The gaps before requests, as multiples of the required gap.
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


def read_gaps(log: Log, span: TimeSpan, now: float) -> Iterator[Row]:
    """Yield the requests of a period, host by host, each with the gap before it in seconds.

    A gap counts from the last request of any run; it is None if it is not known. Times are in epoch
    seconds.
    """
    records = log.requests(span, most=MAX_REQUESTS)
    if len(records) < MAX_REQUESTS:  # else the first of them would get a gap that is too long
        records += log.requests_before(span.since)
        records.sort(key=attrgetter("host", "requested_at", "id"))
    check = GapCheck(log.basis(log.bounds(now)))
    for sent in records:
        gap = check.check(sent)
        if sent.requested_at >= span.since and span.run in (None, sent.run):
            yield {
                "host": sent.host,
                "requested_at": sent.requested_at,
                "gap": gap.kept,
                "required": gap.least,
                "by_hold": gap.hold > gap.delay,
                "is_short": gap.is_broken,
            }


def compare(rows: Iterable[Row]) -> tuple[list[Row], Counter[str]]:
    """Return a row for each host, and the number of gaps by the keys of GAPS.

    Hosts with too short gaps come first, then those with most requests.
    """
    hosts: dict[str, Row] = {}
    gaps = Counter[str]()
    for row in rows:
        new = {"host": row["host"], "requests": 0, "too_short": 0, "shortest": None, "longest": row}
        host = hosts.setdefault(row["host"], new | {"first_at": rfc3339(row["requested_at"])})
        host["requests"] += 1
        host["last_at"] = rfc3339(row["requested_at"])
        host["too_short"] += row["is_short"]
        if row["is_short"]:
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
