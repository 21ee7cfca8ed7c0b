"""What the parts of one crawl share: options, state, clock and backoff."""

from __future__ import annotations

import time
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Protocol

from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.pacing import hold_name
from walsh_scrapy.policy.urls import host_of, registrable_domain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from walsh_scrapy.options import Options
    from walsh_scrapy.runtime.signing import Signer
    from walsh_scrapy.state import State


class Clock(Protocol):
    """Two readings: the time of day, and one that never jumps."""

    def now(self) -> float:
        """Return the time of day in epoch seconds, as state and leases count it."""

    def monotonic(self) -> float:
        """Return seconds of a clock that never jumps, for waits within a run."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> float:
        """Return the time of day in epoch seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return the seconds of the machine's monotonic clock."""
        return time.monotonic()


class Context:
    """What the parts of one crawl share, and commands that send no request.

    ``signer`` signs requests over https; None if there is no key.
    """

    def __init__(
        self,
        options: Options,
        state: State,
        clock: Clock | None = None,
        signer: Signer | None = None,
    ) -> None:
        self.options = options
        self.state = state
        self.clock = clock or SystemClock()
        self.signer = signer
        self.started_at = self.clock.now()
        self.run: int | None = None  #: its number in the state, from when the spider has opened
        random = Random()  # noqa: S311 - jitter, no secret
        self.backoff = Backoff(options.backoff_base, options.backoff_max, random)

    def host(self, url: str) -> str:
        """Return the host by which a URL is paced, or its registrable domain (decision 5)."""
        host = host_of(url)
        return registrable_domain(host) if self.options.pace_by == "domain" else host

    def hold_name(self, url: str) -> str:
        """Return the name under which the ledger keeps the hold of a URL's host (decision 5)."""
        return hold_name(host_of(url), self.options.pace_by)

    @cached_property
    def intervals(self) -> Mapping[str, float]:
        """The spacing, in seconds, of each host that asks for more than ``WALSH_MIN_INTERVAL``."""
        return self.state.ledger.intervals(above=self.options.min_interval)

    @cached_property
    def late_hosts(self) -> frozenset[str]:
        """The hosts that lately did not answer: their requests go last (decision 6)."""
        return self.state.ledger.silent_hosts()
