"""What the parts of a crawl share: options, state, clock, delays; and serial crawls share."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import threading
import time
from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

from scrapy.settings import BaseSettings
from scrapy.utils.datatypes import LocalCache

from walsh_scrapy.crawl.ticket import visit_of
from walsh_scrapy.exceptions import HostDeferred
from walsh_scrapy.options import (
    DAY_SECONDS,
    ForcedSetting,
    checked_number,
    number_of,
    values_of,
)
from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.connectivity import Connectivity
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import MAX_SLOWED_SECONDS, PaceBy
from walsh_scrapy.policy.urls import host_of, origin_of, parse_ip
from walsh_scrapy.policy.wording import format_seconds
from walsh_scrapy.wire.stalls import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scrapy import Request, Spider

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
        """The longest delay of a host, in seconds, that the state need not remember."""
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


# ---- the delays that a project asks Scrapy for ----

logger = logging.getLogger(__name__)

_DELAY: Final = "DOWNLOAD_DELAY"
_SLOTS: Final = "DOWNLOAD_SLOTS"
_HOST: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_NO_HOST: Final = re.compile(r"[/\\?#@\s]")


def longest_delays(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Return the longer one of two delays for each host that has a delay, in seconds."""
    return dict(first) | {host: max(delay, first.get(host, 0.0)) for host, delay in second.items()}


class ProjectDelays:
    """The delay of each host, in seconds, by the settings and the spider of a project.

    ``unit_of`` takes a host, and returns the unit that is paced: the host or its domain. ``is_own``
    is True for a project's own crawl. Raises BadSetting for a delay that is no number of seconds up
    to a day.
    """

    def __init__(
        self,
        settings: BaseSettings,
        spider: Spider | type[Spider] | None,
        unit_of: Callable[[str], str],
        *,
        is_own: bool = False,
    ) -> None:
        self._spider = spider
        # Without the add-on the setting has to be 0, and chooses nothing.
        self._is_own = is_own and isinstance(settings.attributes.get(_DELAY), ForcedSetting)
        if self._is_own:  # the first value is the one of the highest priority
            values = values_of(settings, _DELAY)[:1]
        else:
            values = _values(settings, spider, _DELAY)
        delays = [_seconds(_DELAY, value) for value in values]
        self._everywhere = max(delays, default=0.0)
        self._is_set = bool(delays)
        self._by_host: dict[str, float] = {}
        nameless: list[str] = []
        for slot, seconds in _slots(settings, spider):
            host = _host_of_slot(slot)
            if seconds and not _is_certain(host):
                nameless.append(repr(slot))
            if host:
                unit = unit_of(host)
                self._by_host[unit] = max(seconds, self._by_host.get(unit, 0.0))
        if nameless:
            logger.warning(
                "DOWNLOAD_SLOTS: the delay of %s is ignored, unless a host has that name: this "
                "add-on gives each request the slot of its host. Name slots after hosts",
                ", ".join(dict.fromkeys(nameless)),
            )
        self._start_delay, self._throttle = _throttle_of(settings)
        self._has_page: set[str] = set()  # hosts
        self._longest_answer = self._throttle * settings.getfloat("DOWNLOAD_TIMEOUT")

    @property
    def longest(self) -> float:
        """The longest delay that any host may have."""
        throttled = max(self._start_delay, self._longest_answer)
        return max(self._of_all_hosts, throttled, *self._by_host.values())

    def minimum(self, min_interval: float) -> float:
        """Return the delay of every host that does not ask for more, as the state may store it.

        It is ``WALSH_MIN_INTERVAL``, or less if the project chose less in its own crawl.
        """
        return min_interval if self._chosen is None else min(self._chosen, min_interval)

    @property
    def latency_factor(self) -> float:
        """By how much the seconds of the last answer of a host are multiplied for its delay.

        0 means that they do not count.
        """
        return self._throttle or float(self._chosen is None)

    @property
    def _of_all_hosts(self) -> float:
        if self._is_own:
            return self._chosen or 0.0
        return max(self._everywhere, self._spider_delay)

    @property
    def _chosen(self) -> float | None:
        """The delay that Scrapy would use in a project's own crawl; None if it is not set."""
        if not self._is_own:
            return None
        if getattr(self._spider, "download_delay", None) is not None:
            return self._spider_delay
        return self._everywhere if self._is_set else None

    def delay_of(self, host: str) -> float:
        """Return the delay of a host, or of the domain that is paced, without its last answer."""
        start_delay = 0.0 if host in self._has_page else self._start_delay
        return max(self._of_all_hosts, self._by_host.get(host, 0.0), start_delay)

    def record_page(self, host: str) -> None:
        """Note that a page came from a host, which ends AutoThrottle's start delay.

        Other answers may be much quicker than pages.
        """
        if self._start_delay:
            self._has_page.add(host)

    @property
    def _spider_delay(self) -> float:
        """The attribute of the spider, which may set it at any time."""
        value = getattr(self._spider, "download_delay", None)
        return 0.0 if value is None else _seconds("download_delay", value)


def _throttle_of(settings: BaseSettings) -> tuple[float, float]:
    """Return the start delay of a project's AutoThrottle, and what an answer's time counts.

    Both are 0 if Scrapy would not start it. It is off, but a crawl must not become less polite.
    """
    values = values_of(settings, "AUTOTHROTTLE_ENABLED")
    is_enabled = any(BaseSettings({"value": value}).getbool("value") for value in values)
    name = "AUTOTHROTTLE_TARGET_CONCURRENCY"
    concurrency = number_of(settings, name, 1.0, low=-math.inf, high=math.inf)
    if not is_enabled or concurrency <= 0.0:
        return 0.0, 0.0
    start_delay = number_of(settings, "AUTOTHROTTLE_START_DELAY", 5.0, low=0.0, high=DAY_SECONDS)
    return start_delay, max(1.0, 1.0 / concurrency)


def _values(settings: BaseSettings, spider: Spider | type[Spider] | None, name: str) -> list[Any]:
    """Return all values of a setting: the command line does not hide the value of the spider."""
    values = values_of(settings, name)
    values.append((getattr(spider, "custom_settings", None) or {}).get(name))
    return [value for value in values if value is not None]


def _slots(
    settings: BaseSettings, spider: Spider | type[Spider] | None
) -> Iterator[tuple[str, float]]:
    """Yield the name of each slot that has a delay, and its seconds."""
    for value in _values(settings, spider, _SLOTS):
        for slot, parameters in BaseSettings({_SLOTS: value}).getdict(_SLOTS).items():
            if "delay" in parameters:
                yield slot, _seconds(f"{_SLOTS}[{slot!r}]['delay']", parameters["delay"])


def _seconds(name: str, value: object) -> float:
    return checked_number(name, value, 0.0, DAY_SECONDS)


def _host_of_slot(slot: str) -> str:
    """Return the host that a slot is named after; empty if its name cannot be one of a host."""
    if ":" in slot:
        return host_of(f"http://[{slot}]/") if parse_ip(slot) else ""
    host = host_of(f"http://{slot}/")
    return host if _HOST.fullmatch(host) and not _NO_HOST.search(slot) else ""


def _is_certain(host: str) -> bool:
    """Return False for a name without a dot: it may be one of a host, or of anything else."""
    return "." in host or ":" in host or host == "localhost"


# ---- serial crawls in this process ----

T = TypeVar("T")
_loops: Final[WeakKeyDictionary[object, asyncio.AbstractEventLoop]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


class AnotherLoop(RuntimeError):
    """A serial crawl runs in another event loop of this process already (R4)."""


class PerLoop(Generic[T]):
    """One object for all serial crawls in an event loop, such as a lock, which is of one loop."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        """Return the object of the running loop; the first call makes it."""
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = self._make()
        return self._made[loop]


def enter(crawl: object) -> None:
    """Begin a serial crawl in the running event loop.

    Raises AnotherLoop if a serial crawl is under way in another loop: the two would not see each
    other's requests. A crawl that is built before its loop runs, as Scrapy's CrawlerProcess does,
    is in the one loop of Twisted's reactor, and is not counted.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    with _lock:
        if any(used is not loop and used.is_running() for used in _loops.values()):
            raise AnotherLoop(
                "a serial crawl runs in another event loop of this process, and R4 allows one "
                "request at a time in it; run the crawls one after the other, or in separate "
                "processes"
            )
        _loops[crawl] = loop


def leave(crawl: object) -> None:
    """End a serial crawl; crawls in other loops may begin."""
    with _lock:
        _loops.pop(crawl, None)
