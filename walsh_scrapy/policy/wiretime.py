"""For how long one visit, and one host, may keep a crawl busy (decision 46).

Only time on the wire is added up: from the beginning of a connection to the end of its exchange,
without the time in which this process stood still. Durations are seconds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from walsh_scrapy.policy.wording import count_of, format_seconds

#: Seconds on the wire for one visit of a source, with its robots.txt, redirects and retries.
MAX_VISIT_SECONDS: Final = 60.0
#: No request is sent if less than these seconds remain for it.
MIN_TRY_SECONDS: Final = 1.0
#: A host is deferred if its exchanges took more than these seconds in a run,
MAX_HOST_SECONDS: Final = 60.0
#: and more than these on average. A host with hundreds of sources may be busy for longer.
MAX_MEAN_SECONDS: Final = 3.0


@dataclass(eq=False, slots=True)
class VisitTime:
    """The time that a visit has taken. All its requests share it, those for robots.txt included."""

    seconds: float = 0.0

    @property
    def remaining(self) -> float:
        """The seconds that remain for the next request; 0 if too few remain to send it."""
        remaining = MAX_VISIT_SECONDS - self.seconds
        return remaining if remaining >= MIN_TRY_SECONDS else 0.0


@dataclass(eq=False, slots=True)
class _Load:
    seconds: float = 0.0
    exchanges: int = 0


class HostLoads:
    """The time that the exchanges with each host have taken in a run."""

    def __init__(self) -> None:
        self._loads: defaultdict[str, _Load] = defaultdict(_Load)

    def add(self, host: str, seconds: float) -> str | None:
        """Add an exchange; return why the host is deferred for this run, or None if it is not."""
        load = self._loads[host]
        load.seconds += seconds
        load.exchanges += 1
        if load.seconds <= max(MAX_HOST_SECONDS, MAX_MEAN_SECONDS * load.exchanges):
            return None
        return f"it took {format_seconds(load.seconds)} for {count_of(load.exchanges, 'request')}"
