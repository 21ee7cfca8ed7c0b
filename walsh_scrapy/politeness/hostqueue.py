"""Where a request waits for its host: one interface with two implementations (decision 25).

A request that our scheduler handed out goes back to it, and other hosts are asked meanwhile
(``SchedulerQueue``). Any other request, such as one made by ``engine.download_async`` or in a crawl
with another scheduler, cannot go back: it waits in the gate (``GateQueue``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from typing import TYPE_CHECKING

from walsh_scrapy.exceptions import RequestDeferred
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.runtime.context import Context

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from scrapy import Request
    from scrapy.crawler import Crawler


class Wait:
    """The wait of one request for its host, in one gate; ``gate`` is the name in stats.

    ``seconds`` returns 0 if the request may be sent now, else the seconds after which to call it
    again. It is called inside ``quiet``, a context manager that first waits for requests in flight.
    """

    def __init__(
        self,
        gate: str,
        host: str,
        seconds: Callable[[], float],
        quiet: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        self.gate = gate
        self.host = host
        self.seconds = seconds
        self.quiet = quiet


class HostQueue(ABC):
    """Requests that wait for their hosts."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._context = Context.of(crawler)

    @abstractmethod
    async def wait(self, request: Request, wait: Wait) -> Request | None:
        """Return None when a request may be sent, or the request to send back to the scheduler.

        Raises RequestDeferred for a wait longer than ``WALSH_MAX_WAIT`` (decision 7), and if the
        crawl ends during the wait.
        """

    def _check(self, wait: Wait, seconds: float) -> None:
        if seconds > self._context.options.max_wait:
            raise self._deferred(wait, seconds)

    def _deferred(self, wait: Wait, seconds: float) -> RequestDeferred:
        until = self._context.clock.now() + seconds
        self._crawler.stats.inc_value(f"walsh/{wait.gate}/deferred")
        return RequestDeferred(until, f"{wait.host} may not be asked before {format_moment(until)}")
