"""``walsh hosts``: which hosts wait, until when and why; release and delay (decision 31)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.wording import count_of, format_seconds, printable
from walsh_scrapy.tools.report.output import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from walsh_scrapy.policy.pacing import HostTimes
    from walsh_scrapy.state import State
    from walsh_scrapy.state.hosts import HostSnapshot, Override

_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host that waits, had a problem at its last request, or has an operator's delay."""

    host: str  #: or the domain, if domains are paced
    snapshot: HostSnapshot
    override: Override | None  #: the last one

    @property
    def until(self) -> float | None:
        """When the host may be requested again, in epoch seconds; None if it may be now."""
        return self.snapshot.times.ready_at() if self.snapshot.reason else None

    @property
    def why(self) -> str:
        """The reason why the host waits, in words."""
        return "; ".join(self._reasons())

    @property
    def is_long_hold(self) -> bool:
        """Whether the host has a hold of more than a day, not only as unreachable."""
        times = self.snapshot.times
        is_long = times.hold_until - times.hold_since > _DAY
        return self.snapshot.hold > 0 and is_long and times.hold_by != "unreachable"

    def _reasons(self) -> Iterator[str]:
        times = self.snapshot.times
        if self.snapshot.hold:
            yield f"on hold: {hold_why(times)}"
        elif times.unreachable:
            yield f"{unreachable(times.unreachable)}, so it comes last in a run"
        if self.snapshot.reason == "in flight":
            yield "a request is in flight"
        if self.snapshot.reason == "delay":
            yield f"one request every {format_seconds(times.delay_with())}"
        if times.server_errors:
            errors = count_of(times.server_errors, "time")
            yield f"it answered 500, 502 or 504 {errors} in a row, which slows it down"
        if times.operator_delay:
            yield f"you gave it a delay of {format_seconds(times.operator_delay)}"


def _last_override(row: HostRow) -> dict[str, Any] | None:
    if (last := row.override) is None:
        return None
    return {"override": last.override, "made_at": rfc3339(last.made_at), "reason": last.reason}


def _of_hold(name: str) -> Callable[[HostRow], Any]:
    """Return a function that reads a field of the hold of a row; None if it is over."""
    return lambda row: (getattr(row.snapshot.times, name) or None) if row.snapshot.hold else None


def _of_times(name: str) -> Callable[[HostRow], Any]:
    return lambda row: getattr(row.snapshot.times, name)


#: The columns of a host. Times are RFC 3339 in UTC, durations seconds.
COLUMNS: Final[list[Column[HostRow]]] = [
    Column("host", lambda row: row.host),
    Column("waits", lambda row: row.snapshot.reason),
    Column("until", lambda row: rfc3339(row.until)),
    Column("why", lambda row: row.why),
    Column("hold_until", lambda row: rfc3339(_of_hold("hold_until")(row)), shown=False),
    Column("hold_by", _of_hold("hold_by"), shown=False),
    Column("hold_status", _of_hold("hold_status"), shown=False),
    Column("long_hold", lambda row: row.is_long_hold, shown=False),
    Column("delay", _of_times("delay"), shown=False),
    Column("operator_delay", _of_times("operator_delay"), shown=False),
    Column("refusals", _of_times("refusals"), shown=False),
    Column("server_errors", _of_times("server_errors"), shown=False),
    Column("unreachable", _of_times("unreachable"), shown=False),
    Column("requested_at", lambda row: rfc3339(row.snapshot.times.request_ended_at), shown=False),
    Column("last_override", _last_override),
]


def build_overview(state: State | None) -> list[HostRow]:
    """Return a row for each host that waits or is marked, the longest wait first."""
    if state is None:
        return []
    last = state.hosts.last_overrides()
    rows = [HostRow(host, found, last.get(host)) for host, found in state.hosts.marked().items()]
    return sorted(rows, key=lambda row: (-(row.until or 0.0), row.host))


def totals(rows: Sequence[HostRow]) -> str:
    """Return one line: the number of hosts that wait, and of those on hold."""
    waiting = [row for row in rows if row.snapshot.reason]
    on_hold = sum(row.snapshot.hold > 0 for row in rows)
    return f"{count_of(len(waiting), 'host')} may not be requested now, {on_hold} of them on hold"


def on_hold(host: str, until: float) -> str:
    """Return the clause that every command uses; ``until`` is in epoch seconds."""
    return printable(f"{host} is on hold until {format_moment(until)}")


def hold_why(times: HostTimes) -> str:
    """Return the cause of a hold, as a clause about the host."""
    answer = f"it answered {times.hold_status}" if times.hold_status else "there was no answer"
    match times.hold_by:
        case "retry-after":
            wait = format_seconds(times.hold_until - times.hold_since)
            return f"{answer} and asked for {wait} (Retry-After)"
        case "visit-time":
            return "its robots.txt demands that (Visit-time)"
        case "unreachable":
            return unreachable(times.unreachable)
        case "":
            return "its cause is not recorded"
        case "backoff":
            count = f", {count_of(times.refusals, 'time')} in a row" if times.refusals > 1 else ""
            return f"{answer}{count} (our backoff, R5)"


def unreachable(count: int) -> str:
    """Return a clause about the times in a row that a host was unreachable."""
    return f"it was unreachable {count_of(count, 'time')} in a row"
