"""What the parts of one crawl share: options, state, clock, backoff, and one of each part."""

from __future__ import annotations

import logging
import time
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.utils.conf import closest_scrapy_cfg

from walsh_scrapy.exceptions import StateUnavailable, refuse_to_start
from walsh_scrapy.options import BadSetting, Options
from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.pacing import hold_name
from walsh_scrapy.policy.urls import host_of, registrable_domain
from walsh_scrapy.runtime.engine import end_crawl, has_begun
from walsh_scrapy.runtime.eventloops import AnotherLoop, enter, leave
from walsh_scrapy.runtime.jsonlog import log_handler
from walsh_scrapy.runtime.provenance import end_facts
from walsh_scrapy.runtime.safelog import protect_log
from walsh_scrapy.runtime.signing import read_signer
from walsh_scrapy.runtime.stopsignals import is_stopping
from walsh_scrapy.state import State, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy import Request
    from scrapy.crawler import Crawler

    from walsh_scrapy.runtime.signing import Signer


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


T = TypeVar("T")
logger = logging.getLogger(__name__)

_NO_PROJECT = (
    "the state is %s, below the current folder, because there is no scrapy.cfg; a run in another "
    "folder has another state; set WALSH_STATE_URL for all runs"
)


class Context:
    """What the parts of one crawl share; ``Context.of`` returns the one of a crawler."""

    def __init__(self, options: Options, state: State, clock: Clock | None = None) -> None:
        self.options = options
        self.state = state
        self.clock = clock or SystemClock()
        self.started_at = self.clock.now()
        self.signer: Signer | None = None  #: of requests over https, if there is a key
        self.run: int | None = None  #: its number in the state, from when the spider has opened
        random = Random()  # noqa: S311 - jitter, no secret
        self.backoff = Backoff(options.backoff_base, options.backoff_max, random)
        self._parts: dict[object, Any] = {}

    @classmethod
    def of(cls, crawler: Crawler) -> Context:
        """Return the context of a crawl; the first call opens it.

        A bad setting, key or state ends the process with one line.
        """
        return _contexts.get(crawler) or cls.open(crawler)

    @classmethod
    def open(cls, crawler: Crawler, clock: Clock | None = None) -> Context:
        """Open the context of a crawl; the clock is the machine's unless one is given."""
        try:
            options = Options.from_settings(crawler.settings)
            signer = read_signer(options)
            failed = _StateFailure(crawler, clock or SystemClock()).deferral
            now = clock.now if clock else None
            state = State(options.state_url, now, failed, lambda: not is_stopping())
            state.ledger.pace_by(options.pace_by)
            context = cls(options, state, clock)
            context.signer = signer
            if options.serial:
                enter(context)
            state.prune(
                context.clock.now(), options.log_seconds
            )  # a run that is killed does not do it at its end
        except (AnotherLoop, BadSetting, StateError) as error:
            refuse_to_start(error, log_file=crawler.settings["LOG_FILE"])
        if not (crawler.settings.get("WALSH_STATE_URL") or closest_scrapy_cfg()):
            logger.warning(_NO_PROJECT, options.state_url)
        _contexts[crawler] = context
        # Scrapy makes another handler for the log after the extensions, one of which opens this.
        crawler.signals.connect(context.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(context.close, signal=signals.engine_stopped)
        crawler.signals.connect(context.response_received, signal=signals.response_received)
        return context

    def part(self, key: object, make: Callable[[], T]) -> T:
        """Return the part of this crawl that has a key; the first call makes it."""
        if key not in self._parts:
            self._parts[key] = make()
        return cast("T", self._parts[key])

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

    def spider_opened(self) -> None:
        """Protect the log, before anything that strangers say is written to it."""
        if handler := log_handler():
            protect_log(handler, _end_all)

    def response_received(self, request: Request) -> None:
        """End what copies of a request may claim: its response leaves the downloader."""
        end_facts(request)

    def close(self) -> None:
        """Delete what is too old from the state, and close it."""
        leave(self)
        try:
            self.state.prune(self.clock.now(), self.options.log_seconds)
        except StateUnavailable:
            logger.debug("old rows stay in the state, because it cannot be used")
        self.state.close()


def _end_all() -> None:
    """End the crawls of this process, whose log cannot be written (decision 29)."""
    from twisted.internet import reactor  # noqa: PLC0415 - Scrapy installs it first

    def end() -> None:
        for crawler in filter(has_begun, list(_contexts)):
            end_crawl(crawler, "log_failed")

    reactor.callFromThread(end)


class _StateFailure:
    """Ends a crawl whose state fails, because it can neither pace nor record its requests."""

    def __init__(self, crawler: Crawler, clock: Clock) -> None:
        self._crawler = crawler
        self._clock = clock

    def deferral(self, error: StateError) -> Exception:
        """Return the exception for the current request: it is deferred, and has not failed.

        While the crawl starts there is no request: the process ends with one line.
        """
        if not has_begun(self._crawler):
            refuse_to_start(error, log_file=self._crawler.settings["LOG_FILE"])
        if not error.connection_lost:
            end_crawl(self._crawler, "state_failed", str(error))
        return StateUnavailable(self._clock.now(), str(error))


_contexts: WeakKeyDictionary[Crawler, Context] = WeakKeyDictionary()
