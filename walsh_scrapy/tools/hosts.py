"""Hosts that rest: until when and why, and how an operator changes that (decision 31)."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.hosttimes import HostTimes
from walsh_scrapy.policy.timestamps import format_moment, rfc3339
from walsh_scrapy.policy.wording import count_of, format_seconds, printable
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.output import columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State
    from walsh_scrapy.state.hosts import Act, HostSnapshot

_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class HostRow:
    """One host that rests, was not well when it was asked last, or has a pause."""

    host: str  #: by domain: a domain for its spacing, and a host name for its hold
    snapshot: HostSnapshot
    act: Act | None  #: the last one of the operator

    @property
    def until(self) -> float | None:
        """When the host may be asked again, in epoch seconds; None if it may be asked now."""
        return self.snapshot.times.ready_at(0.0) if self.snapshot.reason else None

    @property
    def why(self) -> str:
        """Why the host rests, in words."""
        return "; ".join(self._reasons())

    @property
    def is_long_hold(self) -> bool:
        """Whether the host asked for, or earned, a hold of over a day; one out of reach did not."""
        times = self.snapshot.times
        is_long = times.hold_until - times.hold_since > _DAY
        return self.snapshot.hold > 0 and is_long and times.hold_by != "silence"

    def as_dict(self) -> dict[str, Any]:
        """Return the row for ``--json``: times as RFC 3339 in UTC, None for what is not known."""
        times, act = self.snapshot.times, self.act
        return {
            "host": self.host,
            "waits": self.snapshot.reason,
            "until": rfc3339(self.until),
            "why": self.why,
            "hold_until": rfc3339(times.hold_until if self.snapshot.hold else None),
            "hold_by": times.hold_by if self.snapshot.hold else None,
            "hold_status": (times.hold_status or None) if self.snapshot.hold else None,
            "interval": times.interval,
            "pause": times.pause,
            "strikes": times.strikes,
            "silences": times.silences,
            "server_errors": times.server_errors,
            "asked_at": rfc3339(times.ended),
            "last_act": None
            if act is None
            else {"act": act.act, "at": rfc3339(act.at), "reason": act.reason},
        }

    def _reasons(self) -> Iterator[str]:
        times = self.snapshot.times
        if self.snapshot.hold:
            yield f"on hold: {hold_why(times)}"
        elif times.silences:
            yield f"{silent(times.silences)}, so a run asks it last"
        if self.snapshot.reason == "lease":
            yield "a run asks it now"
        if self.snapshot.reason == "spacing":
            yield f"one request every {format_seconds(times.spacing_with())}"
        if times.server_errors:
            errors = count_of(times.server_errors, "time")
            yield f"it answered 500, 502 or 504 {errors} in a row, which slows it down"
        if times.pause:
            yield f"you asked for a pause of {format_seconds(times.pause)} between requests"


def build_overview(state: State | None) -> list[HostRow]:
    """Return a row for each host that rests or is marked, the longest wait first."""
    if state is None:
        return []
    acts = state.acts.last()
    rows = [HostRow(host, found, acts.get(host)) for host, found in state.ledger.marked().items()]
    return sorted(rows, key=lambda row: (-(row.until or 0.0), row.host))


_HEADINGS: Final = ("waits", "until", "host", "why", "last act")


def hosts_text(rows: Sequence[HostRow]) -> Iterator[str]:
    """Yield a line for each host, nothing cut or wrapped."""
    return columns([_HEADINGS, *map(_cells, rows)])


def totals(rows: Sequence[HostRow]) -> str:
    """Return one line: how many hosts rest, how many of them on hold."""
    resting = [row for row in rows if row.snapshot.reason]
    on_hold = sum(row.snapshot.hold > 0 for row in rows)
    return f"{count_of(len(resting), 'host')} may not be asked now, {on_hold} of them on hold"


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
            count = f", {count_of(times.strikes, 'time')} in a row" if times.strikes > 1 else ""
            return f"{answer}{count}: our own pause (backoff, R5)"


def silent(count: int) -> str:
    """Return how many times in a row a host could not be reached."""
    return f"it could not be reached {count_of(count, 'time')} in a row"


def _cells(row: HostRow) -> tuple[str, ...]:
    act = row.act
    return (
        row.snapshot.reason or "-",
        rfc3339(row.until) or "now",
        row.host,
        row.why,
        f"{act.act} {rfc3339(act.at)}: {act.reason or 'no reason given'}" if act else "-",
    )


def release(state: State | None, host: str, reason: str) -> str:
    """Lift the hold of a host, record why, and return the line that says so.

    ``host`` is as it is paced. Raises CommandError if it is not on hold.
    """
    left = state.ledger.lift(host, reason) if state else 0.0
    if left <= 0.0:
        waiting = state.ledger.waiting() if state else {}
        held = [name for name, found in waiting.items() if found.hold]
        near = difflib.get_close_matches(host, held, n=1)
        hint = f"did you mean {near[0]}?" if near else "`scrapy hosts` lists the hosts that rest"
        raise CommandError(f"{host} is not on hold; {hint}")
    return printable(f"{host} may be asked again; {format_seconds(left)} of its hold were left")


def stranger(host: str, state: State, options: Options) -> str:
    """Return a warning for a host that no source has and that no crawl asked; else nothing."""
    from walsh_scrapy.sources import SourcesError, load_sources

    if state.ledger.find(host).times != HostTimes():
        return ""
    try:
        declared = {options.pace_by.unit(each.url) for each in load_sources(options.sources)}
    except SourcesError:
        declared = set()
    if host in declared:
        return ""
    near = difflib.get_close_matches(host, declared, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return printable(
        f"no source of {options.sources} is at {host}, and no crawl asked it for anything{hint}"
    )


def pause(state: State, host: str, seconds: float, reason: str) -> str:
    """Set or end the pause of a host, record the act, and return the line that says so."""
    from walsh_scrapy.sources.loading import LONGEST_PAUSE

    times = state.ledger.pause(host, seconds, reason).times
    every = format_seconds(times.spacing_with())
    if not seconds:
        return printable(f"{host} has no pause of yours")
    rare = ""
    if seconds > LONGEST_PAUSE.total_seconds():
        rare = "; over 12 h it may be asked for its robots.txt alone, which is obeyed for a day"
    return printable(
        f"{host} gets one request every {every} at most, until `scrapy hosts pause {host} 0`{rare}"
    )


def url_of(text: str) -> str:
    """Return the URL of what an operator typed: a host name, or a URL."""
    return text if "://" in text else f"http://{text}"
