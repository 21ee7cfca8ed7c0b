"""What the parts of one crawl share: its options, its state, its clock and its name in a lease."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.utils.conf import closest_scrapy_cfg

from walsh_scrapy.exceptions import RequestDeferred, refuse_to_start
from walsh_scrapy.options import BadSetting, Options
from walsh_scrapy.policy.backoff import Backoff
from walsh_scrapy.policy.urls import host_of, registrable_domain
from walsh_scrapy.state import State, StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

_STRAY = (
    "the state is %s, below the folder that this process was started in, for want of a scrapy.cfg: "
    "another folder is another memory; set WALSH_STATE_URL to one place for all runs"
)


class Crawl:
    """One for each crawler; every gate asks ``Crawl.of`` for it."""

    def __init__(self, options: Options, state: State) -> None:
        self.options = options
        self.state = state
        self.started_at = self.now()
        random = Random()  # noqa: S311 - jitter, no secret
        self.backoff = Backoff(options.backoff_base, options.backoff_max, random)

    @classmethod
    def of(cls, crawler: Crawler) -> Crawl:
        """Return what this crawler's parts share, opening it for the first that asks.

        A bad setting or an unusable state ends the process with one line.
        """
        if crawler not in _crawls:
            try:
                options = Options.from_settings(crawler.settings)
                state = State(options.state_url, failed=_Ending(crawler).state_failed)
                state.ledger.pace_by(options.pace_by)
                _crawls[crawler] = cls(options, state)
                if not (crawler.settings.get("WALSH_STATE_URL") or closest_scrapy_cfg()):
                    logger.warning(_STRAY, options.state_url)
            except (BadSetting, StateError) as error:
                refuse_to_start(error, log_file=crawler.settings["LOG_FILE"])
            crawler.signals.connect(_crawls[crawler].close, signal=signals.engine_stopped)
        return _crawls[crawler]

    def host(self, url: str) -> str:
        """Return what paces a request to ``url``: host, or registrable domain (decision 5)."""
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
        try:
            self.state.wirelog.prune(self.now())
        except RequestDeferred:
            logger.debug("the wire log was not pruned: the state cannot be used")
        self.state.close()


class _Ending:
    """Ends a crawl whose state fails: what it does next could not be paced, nor be remembered."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._is_told = False

    def state_failed(self, error: StateError) -> Exception:
        """Return what becomes of the request in hand: it is left, uncharged, to a later run."""
        if not (error.connection_lost or self._is_told):
            self._is_told = True
            logger.critical("%s", error)
            end_crawl(self._crawler, "state_failed")
        return RequestDeferred(Crawl.now(), str(error))


def end_crawl(crawler: Crawler, reason: str) -> None:
    """Let a crawl end before its time; ``scrapy crawl`` then exits with 1."""
    _endings.append(asyncio.ensure_future(crawler.engine.close_spider_async(reason=reason)))


def ended_early() -> bool:
    """Tell whether something went so wrong in this process that a crawl had to end."""
    return bool(_endings)


_endings: list[asyncio.Future[None]] = []
_crawls: WeakKeyDictionary[Crawler, Crawl] = WeakKeyDictionary()
