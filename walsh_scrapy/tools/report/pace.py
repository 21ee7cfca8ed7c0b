"""The gaps of a period: the shortest at each host, and how all compare to what was required."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.audit.pace import GapCheck
from walsh_scrapy.policy.durations import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from walsh_scrapy.policy.audit.pace import RequestGap
    from walsh_scrapy.policy.audit.record import LoggedRequest
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


@dataclass(slots=True)
class _Host:
    """The gaps at one host so far."""

    first_at: float  #: epoch seconds, as `last_at`
    last_at: float = 0.0
    requests: int = 0
    shortest: RequestGap | None = None  #: None if no gap is known
    longest: RequestGap | None = None  #: the gap with the longest delay or hold
    too_short: int = 0

    def add(self, sent: LoggedRequest, gap: RequestGap) -> None:
        """Count a request that was sent after the others, and the gap before it."""
        self.requests += 1
        self.last_at = sent.requested_at
        self.too_short += gap.is_broken
        if gap.kept is None:
            return
        if self.shortest is None or gap.kept < (self.shortest.kept or 0.0):
            self.shortest = gap
        if self.longest is None or gap.least > self.longest.least:
            self.longest = gap

    def row(self, host: str) -> dict[str, Any]:
        """Return the row of the page."""
        shortest, longest = self.shortest, self.longest
        return {
            "host": host,
            "requests": self.requests,
            "first_at": rfc3339(self.first_at),
            "last_at": rfc3339(self.last_at),
            "too_short": self.too_short,
            "shortest": shortest and shortest.kept,
            "required": shortest and shortest.least,
            "by_hold": shortest and shortest.hold > shortest.delay,
            "longest_required": longest and longest.least,
            "longest_by_hold": longest and longest.hold > longest.delay,
        }


@dataclass(frozen=True, slots=True)
class Paces:
    """The gaps of a period."""

    hosts: list[dict[str, Any]]  #: those with too short gaps first, then those with most requests
    gaps: Counter[str]  #: by their names
    requests: int
    too_soon: list[float]  #: when requests were sent that came too soon


def read_paces(log: Log, span: TimeSpan, now: float) -> Paces:
    """Read the gaps of a period. A gap counts from the last request of any run."""
    records = log.requests(span, most=MAX_REQUESTS)
    if len(records) < MAX_REQUESTS:  # else the first of them would get a gap that is too long
        records += log.requests_before(span.since)
        records.sort(key=attrgetter("host", "requested_at", "id"))

    def is_included(sent: LoggedRequest) -> bool:
        return sent.requested_at >= span.since and span.run in (None, sent.run)

    return compare(records, GapCheck(log.basis(log.bounds(now))), is_included)


def compare(
    records: Iterable[LoggedRequest],
    check: GapCheck,
    is_included: Callable[[LoggedRequest], bool],
) -> Paces:
    """Compare the gaps before the requests that are included; they come as `GapCheck` says."""
    hosts: dict[str, _Host] = {}
    gaps = Counter[str]()
    too_soon: list[float] = []
    for sent in records:
        gap = check.check(sent)
        if not is_included(sent):
            continue
        if sent.host not in hosts:
            hosts[sent.host] = _Host(sent.requested_at)
        hosts[sent.host].add(sent, gap)
        name = _name_gap(gap)
        if name is not None:
            gaps[name] += 1
        if gap.is_broken:
            too_soon.append(sent.requested_at)
    rows = [pace.row(host) for host, pace in hosts.items()]
    rows.sort(key=lambda row: (-row["too_short"], -row["requests"], row["host"]))
    return Paces(rows, gaps, sum(row["requests"] for row in rows), too_soon)


def _name_gap(gap: RequestGap) -> str | None:
    """Return how a gap compares to the required gap; None if the gap is not known."""
    if gap.is_broken:
        return "short"
    if gap.kept is None:
        return None
    for multiple, name in _MULTIPLES:
        if gap.kept >= multiple * gap.least:
            return name
    return "x1"
