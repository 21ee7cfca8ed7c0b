"""The rows of ``scrapy hosts``: who rests, until when and why (decisions 3, 15, 28 and 31)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.pacedhosts import host_name
from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.wording import counted, format_seconds
from walsh_scrapy.tools.hosts.table import hold_why, silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.state import State
    from walsh_scrapy.state.acts import Act
    from walsh_scrapy.state.ledger import HostSnapshot

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
            yield f"one request every {format_seconds(times.room())}"
        if times.server_errors:
            errors = counted(times.server_errors, "time")
            yield f"it answered 500, 502 or 504 {errors} in a row, which slows it down"
        if times.pause:
            yield f"you asked for a pause of {format_seconds(times.pause)} between requests"


def build_overview(state: State | None) -> list[HostRow]:
    """Return a row for each host that rests or is marked, the longest wait first."""
    if state is None:
        return []
    acts = state.acts.last()
    rows = [
        HostRow(host_name(host), found, acts.get(host))
        for host, found in state.ledger.marked().items()
    ]
    return sorted(rows, key=lambda row: (-(row.until or 0.0), row.host))
