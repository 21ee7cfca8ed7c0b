"""What the parts of one crawl share: its options, its state, its clock and its name in a lease."""

from __future__ import annotations

import time
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy import signals

from walsh_scrapy.exceptions import refuse_to_start
from walsh_scrapy.options import BadSetting, Options
from walsh_scrapy.policy.urls import host_of, registrable_domain
from walsh_scrapy.state import State, StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.crawler import Crawler


class Crawl:
    """One for each crawler; every gate asks ``Crawl.of`` for it."""

    def __init__(self, options: Options, state: State) -> None:
        self.options = options
        self.state = state
        self.random = Random()  # noqa: S311 - jitter, no secret

    @classmethod
    def of(cls, crawler: Crawler) -> Crawl:
        """Return what this crawler's parts share, opening it for the first that asks.

        A bad setting or an unusable state ends the process with one line.
        """
        if crawler not in _crawls:
            try:
                options = Options.from_settings(crawler.settings)
                _crawls[crawler] = cls(options, State(options.state_url, cls.now))
            except (BadSetting, StateError) as error:
                refuse_to_start(error, log_file=crawler.settings["LOG_FILE"])
            crawler.signals.connect(_crawls[crawler].close, signal=signals.engine_stopped)
        return _crawls[crawler]

    def host(self, url: str) -> str:
        """Return what a request to ``url`` is paced by: host, or registrable domain (ruling 5)."""
        host = host_of(url)
        return registrable_domain(host) if self.options.pace_by == "domain" else host

    @cached_property
    def intervals(self) -> Mapping[str, float]:
        """The spacing of each host that was seen to want more than the least, in seconds."""
        return self.state.ledger.intervals(above=self.options.min_interval)

    @staticmethod
    def now() -> float:
        """Return the time of day in epoch seconds, as state and leases count it."""
        return time.time()

    @staticmethod
    def ticks() -> float:
        """Return seconds of a clock that never jumps, for waits within this run."""
        return time.monotonic()

    def close(self) -> None:
        """Prune the wire log and let go of the state."""
        self.state.wirelog.prune(self.now())
        self.state.close()


_crawls: WeakKeyDictionary[Crawler, Crawl] = WeakKeyDictionary()
