"""Documents are read without blocking the crawl (decision 34).

A cheap document is read where the spider calls `read`. A costly one is read ahead, in an isolated
process, while the crawl goes on: timers, signals and other requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from walsh_scrapy.crawl.context import SystemClock
from walsh_scrapy.crawl.isolated import CostLimits, Interrupted, IsolatedProcess, TooCostly
from walsh_scrapy.exceptions import MachineTrouble, StillDue
from walsh_scrapy.metadata.document import Document
from walsh_scrapy.metadata.entries import NotAFeed

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from scrapy.http import Response

    from walsh_scrapy.crawl.context import Clock
    from walsh_scrapy.crawl.engine import Engine
    from walsh_scrapy.crawl.network import Network
    from walsh_scrapy.metadata.entries import Feed

#: The limits of reading one document.
LIMITS: Final = CostLimits(seconds=5, memory=200 * 1024 * 1024)
GRACE_SECONDS: Final = 1.0  #: for the document in hand when the crawl ends

_ahead: WeakKeyDictionary[Response, Feed | Exception] = WeakKeyDictionary()


def read(response: Response, document: Document) -> Feed:
    """Return the feed or the links in a document, which may have been read ahead.

    Raises NotAFeed, even if reading took too long; StillDue if the crawl ended meanwhile.
    """
    result = _ahead.pop(response, None)
    if isinstance(result, Exception):
        raise result
    return result or document.read()


class Readings:
    """Reads the costly documents of one crawl ahead, one at a time.

    While any other document is read, the next request makes its connection. ``quiet`` returns a
    context manager that waits for requests in flight.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        network: Network,
        quiet: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self._clock = clock
        self._process = IsolatedProcess(LIMITS, lambda: engine.is_closing, GRACE_SECONDS)
        self.close = self._process.close
        self.pause = network.pause_reading
        self._network = network
        self._quiet = quiet

    async def ahead(self, response: Response, document: Document) -> None:
        """Read a document that is costly; `read` then returns the result, or raises it.

        The next connection begins before any other document is read.
        """
        # In simulated time another process would seem to take hours.
        if document.is_costly and isinstance(self._clock, SystemClock):
            try:
                _ahead[response] = await self._process.call(Document.read, document)
            except TooCostly as error:
                _ahead[response] = NotAFeed(f"Reading {document.url} {error}.")
            except Interrupted:
                _ahead[response] = StillDue(self._clock.now(), "the crawl ended")
            except OSError as error:
                reason = f"no process could be started to read {document.url}: {error.strerror}"
                _ahead[response] = MachineTrouble(self._clock.now(), reason)
            except Exception as error:  # noqa: BLE001 - as if it had been read in the callback
                # Its traceback refers to the response, and would keep this entry for ever.
                _ahead[response] = error.with_traceback(None)
            async with self._quiet():  # its result is handled at once
                pass
        else:
            await self._network.let_next_connect()
