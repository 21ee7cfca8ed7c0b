"""The findings from the facts, one per check; in words, as JSON, and as metrics."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.freshness import CLOCK_SKEW

if TYPE_CHECKING:
    from collections.abc import Mapping


_HOUR: Final = 3600.0
_DAY: Final = 86_400.0
_MIB: Final = 1024 * 1024
_CLOCK: Final = (
    "is this machine's clock right? Then another wrote them: crawls replace those of sources, hosts"
    " and lists, and those of runs, requests and entries stay until they are past or deleted"
)
#: Hosts that a finding names; the others are counted.
MOST_HOSTS: Final = 3
#: Rows of a finding in JSON.
MOST_ROWS: Final = 100


class Status(IntEnum):
    """The statuses of a monitoring plugin; the exit statuses are those of every command."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3

    @property
    def exit_status(self) -> int:
        """0 if all is well, 3 if that cannot be said, else 1."""
        return int(self) if self in (Status.OK, Status.UNKNOWN) else 1


class Finding(NamedTuple):
    """The result of one check, and the advice."""

    status: Status
    check: str
    what: str
    advice: str = ""
    rows: tuple[dict[str, Any], ...] = ()  #: the sources, hosts or runs that it is about, by column

    @property
    def told(self) -> str:
        """The result with the advice."""
        return f"{self.what} ({self.advice})" if self.advice else self.what


def ahead(latest: Mapping[str, float], now: float) -> dict[str, float]:
    """Return the latest time of each table in which one lies in the future (decision 39)."""
    return {name: at for name, at in sorted(latest.items()) if at > now + CLOCK_SKEW}


def check_clock(latest: Mapping[str, float], now: float) -> Finding:
    """Check the latest time of each table, all in epoch seconds."""
    found = ahead(latest, now)
    if not found:
        return Finding(Status.OK, "clock", "no time in the state lies in the future")
    tables = ", ".join(f"{name} until {format_moment(at)}" for name, at in found.items())
    what = f"times of {tables} lie in the future and do not count"
    return Finding(Status.WARNING, "clock", what, _CLOCK)
