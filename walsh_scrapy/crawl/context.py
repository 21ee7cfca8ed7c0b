"""The shared objects of one crawl: options, state, clock, and the deferred hosts."""

from __future__ import annotations

import math
import time
from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from scrapy.settings import BaseSettings
from scrapy.utils.datatypes import LocalCache

from walsh_scrapy.crawl.delays import ProjectDelays, longest_delays
from walsh_scrapy.crawl.ticket import visit_of
from walsh_scrapy.exceptions import HostDeferred
from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.connectivity import Connectivity
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import MAX_SLOWED_SECONDS, PaceBy
from walsh_scrapy.policy.urls import host_of, origin_of
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.wire.stalls import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy import Request

    from walsh_scrapy.exceptions import Unreachable
    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.robots.copy import RobotsFile
    from walsh_scrapy.state import State

#: Parsed robots.txt files kept in memory at once.
MAX_PARSED_FILES: Final = 2000


class Clock(Protocol):
    """The time of day, and two clocks that never jump."""

    def now(self) -> float:
        """Return the time of day in epoch seconds, as the state counts it."""

    def monotonic(self) -> float:
        """Return the seconds of a clock that never jumps, for waits within a run."""

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
    """The shared objects of the parts of one crawl, and of commands that send no request."""

    def __init__(
        self,
        options: Options,
        state: State,
        clock: Clock | None = None,
        project_delays: ProjectDelays | None = None,
        *,
        is_own: bool = False,
    ) -> None:
        self.options = options
        none = ProjectDelays(BaseSettings(), None, options.pace_by.unit_of)
        self.project_delays = project_delays or none
        self.state = state
        self.clock = clock or SystemClock(state.now)
        self.started_at = self.clock.now()
        self.run: int | None = None  #: its number in the state, once the spider has opened
        self.deferred_hosts = DeferredHosts(options.pace_by)
        self.connectivity = Connectivity()
        #: The robots.txt files that were read, by origin; the state has the others.
        self.robots_files: LocalCache[str, RobotsFile] = LocalCache(MAX_PARSED_FILES)
        self.retries: dict[str, Retry] = {}  #: the last retry of each host; it may be over
        random = Random()  # noqa: S311 - jitter, no secret
        slowest = MAX_SLOWED_SECONDS if is_own else math.inf
        self.backoff = Backoff(options.backoff_base, options.backoff_max, random, slowest)

    def host(self, url: str) -> str:
        """Return the host of a URL, or its registrable domain if domains are paced."""
        return self.options.pace_by.unit(url)

    def moment(self) -> float:
        """Return the seconds of a clock that is never set, and goes on while the machine sleeps."""
        return self.clock.moment()

    @property
    def min_delay(self) -> float:
        """The minimum delay of every host, in seconds."""
        return self.project_delays.minimum(self.options.min_interval)

    @property
    def usual_delay(self) -> float:
        """The delay in seconds up to which the state need not remember that of a host."""
        return max(1.0, self.min_delay)

    @cached_property
    def delays(self) -> Mapping[str, float]:
        """The delay of each host with more than the usual one, in seconds."""
        return self.state.hosts.delays(above=self.usual_delay)

    @cached_property
    def late_hosts(self) -> frozenset[str]:
        """The hosts that were unreachable in the last run: their requests go last."""
        return self.state.hosts.unreachable()


class DeferredHosts:
    """The hosts and origins that are not tried again in this run (decision 28).

    A host is the name in a URL, even if domains are paced, because the other hosts of its domain
    may be reachable. An origin is one scheme, host and port.
    """

    def __init__(self, pace_by: PaceBy = PaceBy.HOST) -> None:
        self._pace_by = pace_by
        self._errors: dict[str, partial[HostDeferred]] = {}
        # The error of a failed robots.txt, until a target has failed with it, so that one source
        # reports the problem.
        self._owed: dict[str, Unreachable] = {}

    def add(self, host: str, reason: str, until: float, refused: int | None = None) -> None:
        """Defer all further requests to a host, or an origin, until an epoch second.

        ``refused`` is 429 or 503 if the host refused requests with that status.
        """
        reason = f"{host} is not tried again now: {reason}"
        self._errors[host] = partial(HostDeferred, until, reason, refused)
        self._owed.pop(host, None)

    def add_unreachable(self, url: str, error: Unreachable, rank: Rank, until: float) -> None:
        """Defer all further requests to a host, or an origin, that could not be reached.

        ``rank`` is the rank of the request that failed. After a failed robots.txt the next target
        fails with the same error.
        """
        place = origin_of(url) if error.is_of_origin else host_of(url)
        self.add(place, str(error), until)
        if rank is Rank.ROBOTS:
            self._owed[place] = error

    def add_paced(self, url: str, reason: str, until: float) -> None:
        """Defer the host of a URL, or all hosts of its domain if domains are paced."""
        self.add(self._paced(host_of(url)), reason, until)

    def has(self, url: str) -> bool:
        """Return True if requests to a URL are deferred."""
        return any(place in self._errors for place in self._places(url))

    def check(self, url: str, rank: Rank = Rank.TARGET) -> None:
        """Raise HostDeferred for a request of ``rank`` to a URL that is deferred.

        Raises Unreachable instead for the first target after a robots.txt that failed with it.
        """
        for place in self._places(url):
            if place not in self._errors:
                continue
            if place in self._owed and rank is not Rank.ROBOTS:
                raise self._owed.pop(place)
            deferral = self._errors[place]()
            raise deferral

    def _places(self, url: str) -> tuple[str, ...]:
        if not self._errors:
            return ()
        host = host_of(url)
        return host, origin_of(url), self._paced(host)

    def _paced(self, host: str) -> str:
        """Return a host, or a pattern for its domain, which is the name of no host."""
        return f"*.{self._pace_by.unit_of(host)}" if self._pace_by is PaceBy.DOMAIN else host


class Retry(NamedTuple):
    """The next attempt for a refused request: its number, their maximum, and its time."""

    number: int
    max_number: int
    at: float  #: by the monotonic clock
    failure: str  #: the problem of the host: `answered 503`
    for_blocklist: bool  #: for the blocklist or its host's robots.txt, so that all wait for it

    def sentence(self, now: float) -> str:
        """Return when it comes, in words: `try 3 of 5 in 8 s`."""
        return f"try {self.number} of {self.max_number} in {format_seconds(self.at - now)}"


class DeclaredDelays:
    """The delays that sources declare, by host, in seconds.

    ``by_host`` has the delays of all sources of the file, also of those that the spider does not
    visit.
    """

    def __init__(self, context: Context, by_host: Mapping[str, float]) -> None:
        self._context = context
        self._by_host: dict[str, float] = {}
        for host, seconds in by_host.items():
            unit = context.options.pace_by.unit_of(host)
            self._by_host[unit] = max(seconds, self._by_host.get(unit, 0.0))

    def before(self, request: Request) -> float:
        """Return the minimum delay before and after a request.

        The delay of its source is used at any host to which the source moved or redirects.
        """
        visit = visit_of(request)
        return max(
            visit.delay if visit else 0.0, self._by_host.get(self._context.host(request.url), 0.0)
        )

    @property
    def delays(self) -> Mapping[str, float]:
        """The known delay of each host with more than the usual one, in seconds."""
        return longest_delays(self._context.delays, self._by_host)
