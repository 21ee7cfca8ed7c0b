"""Reads documents in one isolated process, one at a time (decision 34).

Timers, signals and other requests go on while a document is read. robots.txt and the blocklist are
read in the process of the crawl, because their parsers are bounded.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from walsh_scrapy.crawl.childprocess import TooCostly
from walsh_scrapy.crawl.context import SystemClock
from walsh_scrapy.crawl.isolated import CostLimits, Interrupted, IsolatedProcess
from walsh_scrapy.crawl.ticket import rank_of
from walsh_scrapy.exceptions import MachineTrouble, StillDue
from walsh_scrapy.policy.frontier import Rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Request

    from walsh_scrapy.crawl.context import Clock
    from walsh_scrapy.crawl.scrapyinternals import Engine

P = ParamSpec("P")
T = TypeVar("T")

#: The limits of reading one document.
LIMITS: Final = CostLimits(seconds=5, memory=200 * 1024 * 1024)
#: Seconds that the document which is being read has left when the crawl ends.
GRACE_SECONDS: Final = 1.0


class Reader:
    """Reads the documents of one crawl.

    If documents are expected, the process starts while the first robots.txt is fetched. Otherwise
    it starts with the first document.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._clock = clock
        # In simulated time another process would seem to take hours.
        self._is_isolated = isinstance(clock, SystemClock)
        self._is_expecting = False
        self._process = IsolatedProcess(LIMITS, lambda: engine.is_closing, GRACE_SECONDS)
        self.close = self._process.close

    def expect_documents(self) -> None:
        """Start the process with the first request for a robots.txt."""
        self._is_expecting = self._is_isolated

    def request_reached_downloader(self, request: Request) -> None:
        """Start the process if this is the first request for a robots.txt, and it is expected."""
        if self._is_expecting and rank_of(request) is Rank.ROBOTS:
            self._is_expecting = False
            with suppress(OSError):  # reading the first document will raise it
                self._process.start()

    async def call(
        self, url: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return the result of a function that reads the response from a URL.

        Raises TooCostly with a sentence, StillDue if the crawl ends before the result, and
        MachineTrouble if no process can be started.
        """
        if not self._is_isolated:
            return function(*args, **kwargs)
        try:
            return await self._process.call(function, *args, **kwargs)
        except TooCostly as error:
            raise TooCostly(f"Reading {url} {error}.") from None
        except Interrupted:
            raise StillDue(self._clock.now(), "the crawl ended") from None
        except OSError as error:
            reason = f"no process could be started to read {url}: {error.strerror}"
            raise MachineTrouble(self._clock.now(), reason) from error
