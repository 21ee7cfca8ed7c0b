"""The lines of ``scrapy hosts``, and one sentence about a hold for the other commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.timestamps import format_moment, rfc3339
from walsh_scrapy.policy.wording import counted, format_seconds
from walsh_scrapy.tools.printable import columns, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walsh_scrapy.policy.pacing import HostTimes
    from walsh_scrapy.tools.hosts.overview import HostRow

_HEADINGS: Final = ("waits", "until", "host", "why", "last act")


def hosts_text(rows: Sequence[HostRow]) -> Iterator[str]:
    """Yield a line for each host, nothing cut or wrapped."""
    return columns([_HEADINGS, *map(_cells, rows)])


def totals(rows: Sequence[HostRow]) -> str:
    """Return one line: how many hosts rest, how many of them on hold."""
    resting = [row for row in rows if row.snapshot.reason]
    on_hold = sum(row.snapshot.hold > 0 for row in rows)
    return f"{counted(len(resting), 'host')} may not be asked now, {on_hold} of them on hold"


def on_hold(host: str, until: float) -> str:
    """Return the clause that every command uses; ``until`` is in epoch seconds."""
    return printable(f"{host} is on hold until {format_moment(until)}")


def hold_why(times: HostTimes) -> str:
    """Return what began a hold, as a clause about the host."""
    answer = f"it answered {times.hold_status}" if times.hold_status else "there was no answer"
    match times.hold_by:
        case "retry-after":
            asked = format_seconds(times.hold_until - times.hold_since)
            return f"{answer} and asked for a pause of {asked} (Retry-After)"
        case "visit-time":
            return "its robots.txt asks for that (Visit-time)"
        case "silence":
            return silent(times.silences)
        case "":
            return "what began it is not recorded"
        case "backoff":
            count = f", {counted(times.strikes, 'time')} in a row" if times.strikes > 1 else ""
            return f"{answer}{count}: our own pause (backoff, R5)"


def silent(count: int) -> str:
    """Return how many times in a row a host could not be reached."""
    return f"it could not be reached {counted(count, 'time')} in a row"


def _cells(row: HostRow) -> tuple[str, ...]:
    act = row.act
    cells = (
        row.snapshot.reason or "-",
        rfc3339(row.until) or "now",
        row.host,
        row.why,
        f"{act.act} {rfc3339(act.at)}: {act.reason or 'no reason given'}" if act else "-",
    )
    return tuple(map(printable, cells))
