"""Runs as commands show them: how each one ended, and which was killed (decision 39)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from walsh_scrapy.crawl.engine import EarlyEnd
from walsh_scrapy.policy.durations import format_moment, rfc3339
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.tools.report.output import Column

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walsh_scrapy.state.log import Log
    from walsh_scrapy.state.runs import RunRecord

#: The ends of runs that could not go on (decision 29).
_ENDED_EARLY: Final[frozenset[str]] = frozenset(get_args(EarlyEnd))
_DAY: Final = 86_400.0
#: Seconds that a run may need in addition to its waits: for a document, or for a slow host.
_MARGIN: Final = 900.0


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as it is known at a moment. Times are epoch seconds."""

    record: RunRecord
    last_sign: float  #: its end; without one its last request, or its begin
    now: float

    @property
    def was_killed(self) -> bool:
        """Whether it has no end, and gave no sign for longer than it may wait."""
        longest = min(float(self.record.settings.get("max_wait", 0.0)), _DAY) + _MARGIN
        return not self.record.is_over and self.now - self.last_sign > longest

    @property
    def problem(self) -> str:
        """The problem of the run; "" if there was none, or none is known yet."""
        if self.was_killed:
            return f"did not end, last sign at {format_moment(self.last_sign)}"
        if self.record.finish_reason in _ENDED_EARLY:
            return self.record.finish_reason
        counts = ("failed", "fetched", "unchanged")
        failed, *read = (int(self.record.summary.get(name, 0)) for name in counts)
        return "no source was read" if failed and not any(read) else ""

    @property
    def is_good(self) -> bool:
        """Whether it ended, and `scrapy crawl` exited with 0."""
        return self.record.is_over and not self.problem


#: The columns of a run. Times are RFC 3339 in UTC.
COLUMNS: Final[list[Column[RunRow]]] = [
    Column("run", lambda row: row.record.id),
    Column("spider", lambda row: row.record.spider),
    Column("command", lambda row: row.record.command or None),
    Column("started_at", lambda row: rfc3339(row.record.started_at)),
    Column("ended_at", lambda row: rfc3339(row.record.ended_at)),
    Column("finish_reason", lambda row: row.record.finish_reason),
    Column("problem", lambda row: row.problem or None),
    Column("https_signed_by", lambda row: row.record.settings.get("signing_key") or "none"),
    Column("versions", lambda row: [f"{name} {it}" for name, it in row.record.versions.items()]),
]


def build_overview(log: Log, runs: Iterable[RunRecord], now: float) -> list[RunRow]:
    """Return a row for each run, in their order; ``now`` is in epoch seconds."""
    return [RunRow(run, _last_sign(log, run, now), now) for run in runs]


def _last_sign(log: Log, run: RunRecord, now: float) -> float:
    if run.ended_at is not None:
        return run.ended_at
    # Later requests were written by a wrong clock.
    return max(run.started_at, log.last_of(run.id, run.started_at, now + CLOCK_SKEW) or 0.0)
