"""What the parts of one crawl share: options, state, clock, and the pauses of its sources."""

from __future__ import annotations

import time
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Protocol

from walsh_scrapy.crawl.ticket import source_of
from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.sources.source import with_pauses
from walsh_scrapy.wire.stalls import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy import Request

    from walsh_scrapy.options import Options
    from walsh_scrapy.state import State


class Clock(Protocol):
    """The time of day, and two readings that never jump."""

    def now(self) -> float:
        """Return the time of day in epoch seconds, as the state counts it."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never jumps, for waits within a run."""

    def moment(self) -> float:
        """Return seconds of a clock that never jumps, and goes on while the machine sleeps."""


class SystemClock:
    """The clock of the state, and the monotonic one of this machine."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def now(self) -> float:
        """Return the time of day in epoch seconds."""
        return self._now()

    def monotonic(self) -> float:
        """Return the seconds of the machine's monotonic clock."""
        return time.monotonic()

    def moment(self) -> float:
        """Return the seconds since the machine was started; see ``stalls.moment``."""
        return moment()


class Context:
    """What the parts of one crawl share, and commands that send no request."""

    def __init__(self, options: Options, state: State, clock: Clock | None = None) -> None:
        self.options = options
        self.state = state
        self.clock = clock or SystemClock(state.now)
        self.started_at = self.clock.now()
        self.run: int | None = None  #: its number in the state, from when the spider has opened
        random = Random()  # noqa: S311 - jitter, no secret
        self.backoff = Backoff(options.backoff_base, options.backoff_max, random)

    def host(self, url: str) -> str:
        """Return the host by which a URL is paced, or its registrable domain (decision 5)."""
        return self.options.pace_by.unit(url)

    def moment(self) -> float:
        """Return seconds of a clock that no one sets, and that counts suspension (decision 41)."""
        return self.clock.moment()

    @cached_property
    def delays(self) -> Mapping[str, float]:
        """The delay, in seconds, of each host that asks for more than ``WALSH_MIN_INTERVAL``."""
        return self.state.hosts.delays(above=self.options.min_interval)

    @cached_property
    def late_hosts(self) -> frozenset[str]:
        """The hosts that lately did not answer: their requests go last (decision 6)."""
        return self.state.hosts.unreachable()


class Pauses:
    """What the sources of a crawl add to the spacing of hosts, in seconds (decision 31).

    ``by_host`` are the pauses of all sources of the file, whichever of them the spider visits.
    """

    def __init__(self, context: Context, by_host: Mapping[str, float]) -> None:
        self._context = context
        self._by_host: dict[str, float] = {}
        for host, seconds in by_host.items():
            unit = context.options.pace_by.unit_of(host)
            self._by_host[unit] = max(seconds, self._by_host.get(unit, 0.0))

    def before(self, request: Request) -> float:
        """Return the least spacing before and after a request.

        That of its source counts at another host too, where a source moved or redirects to.
        """
        source = source_of(request)
        own = source.pause.total_seconds() if source and source.pause else 0.0
        return max(own, self._by_host.get(self._context.host(request.url), 0.0))

    @property
    def delays(self) -> Mapping[str, float]:
        """The delay of each host that is known to be longer than ``WALSH_MIN_INTERVAL``."""
        return with_pauses(self._context.delays, self._by_host)
