"""How far a run is at one moment, in words."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from walsh_scrapy.policy.pacedhosts import host_name
from walsh_scrapy.policy.wording import counted, format_seconds
from walsh_scrapy.tools.summary.counts import SourceCounts, is_by_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from walsh_scrapy.politeness.putoff import Retries
    from walsh_scrapy.politeness.schedulerqueue import SchedulerQueue

#: Seconds over which the rate of responses is measured.
WINDOW: Final = 60.0
#: A spacing up to this many seconds needs no mention.
_USUAL: Final = 1.0


class Rate:
    """How many responses a second came lately."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now: float, responses: int) -> float:
        """Return the rate over the last ``WINDOW`` seconds; ``now`` is in monotonic seconds."""
        self._seen.append((now, responses))
        while now - self._seen[0][0] > WINDOW:
            self._seen.popleft()
        began, before = self._seen[0]
        return (responses - before) / (now - began) if now > began else 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How far a run is. ``due`` is None without declared sources. Durations are seconds."""

    due: int | None
    done: int
    outcomes: tuple[str, ...]  #: `31 new entries`, `4 failed`
    seconds: float  #: since the run began
    rate: float = 0.0  #: responses a second
    left: float = math.inf  #: the least that the run still takes; infinite if nobody knows
    awaited: str = ""  #: what is asked or waited for, and why

    @property
    def how_far(self) -> str:
        """What is done of what is due: `57 of 206 sources done`."""
        if self.due is None:
            return counted(self.done, "response")
        return f"{self.done} of {counted(self.due, 'source')} done"

    @property
    def time_left(self) -> str:
        """The time left as politeness allows, in words; empty if nobody knows."""
        if not 0 < self.left < math.inf:
            return ""
        return f"at least {format_seconds(max(1.0, round(self.left)))} left"

    @property
    def counts(self) -> str:
        """What is done, and what came of it, as one phrase."""
        return ", ".join((self.how_far, *self.outcomes))

    @property
    def line(self) -> str:
        """All of it as one line of a log."""
        return "; ".join(filter(None, (self.counts, self.time_left, self.awaited)))


def outcomes_of(stats: Mapping[str, Any]) -> tuple[int | None, int, tuple[str, ...]]:
    """Return what is due, what is done, and what came of it, from the stats of a run."""
    if not is_by_source(stats):
        return None, stats.get("response_received_count", 0), ()
    counts = SourceCounts.of(stats)
    others = {
        "unchanged": counts.unchanged,
        "denied": sum(counts.denied.values()),
        "deferred": counts.deferred,
        "gone": counts.gone,
    }
    return (
        counts.due,
        counts.done,
        (
            counted(counts.new_entries, "new entry", "new entries"),
            f"{counts.failed} failed",
            *(f"{count} {name}" for name, count in others.items() if count),
        ),
    )


def awaited(queue: SchedulerQueue, retries: Retries, now: float) -> str:
    """Return what a run asks or waits for at ``now``, and why; empty for nothing."""
    if retry := retries.of_blocklist(now):
        return f"waiting for the blocklist: {retry.told(now)}"
    if asked := queue.asked:
        purpose = " for the blocklist" if queue.is_restricted else ""
        return f"asking {_hosts(asked)}{purpose}"
    turn = queue.next_turn()
    if turn is None or turn.ready_at <= now:
        return ""
    host = host_name(turn.host)
    if retry := retries.find(turn.host, now):
        return f"waiting for {host}, which {retry.why}: {retry.told(now)}"
    host = "the blocklist" if queue.is_restricted else host
    spacing = turn.interval or _USUAL
    pause = f" (its pause is {format_seconds(spacing)})" if spacing > _USUAL else ""
    return f"waiting for {host}: next request in {format_seconds(turn.ready_at - now)}{pause}"


def _hosts(names: list[str]) -> str:
    first, *others = map(host_name, names)
    return f"{first} and {counted(len(others), 'more host')}" if others else first
