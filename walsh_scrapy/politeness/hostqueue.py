"""Where a request waits for its host: one interface with two implementations (decision 25).

A request that our scheduler handed out goes back to it, and other hosts are asked meanwhile
(``SchedulerQueue``). Any other request, such as one made by ``engine.download_async`` or in a crawl
with another scheduler, cannot go back: it waits in the gate (``GateQueue``).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from scrapy.utils.asyncio import sleep

from walsh_scrapy.exceptions import RequestDeferred
from walsh_scrapy.policy.hosttimes import RECHECK_SECONDS, host_name
from walsh_scrapy.policy.timestamps import format_moment

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from scrapy import Request
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.politeness.schedulerqueue import SchedulerQueue
    from walsh_scrapy.runtime.context import Context
    from walsh_scrapy.runtime.engine import Engine


@dataclass(slots=True)
class Wait:
    """The wait of one request for its host, in one gate; ``gate`` is the name in stats.

    ``host`` is the name of the host in the ledger. ``seconds`` returns 0 if the request may be sent
    now, else the seconds after which it is called again; it may set ``host`` to the name of a hold.
    ``quiet`` returns a context manager that waits for requests in flight; ``seconds`` is called
    inside it. ``by_robots`` returns True if only the host's robots.txt asks for the wait.
    """

    gate: str
    host: str
    seconds: Callable[[], float]
    quiet: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    by_robots: Callable[[], bool] = lambda: False


class HostQueue(ABC):
    """Requests that wait for their hosts."""

    def __init__(self, context: Context, engine: Engine, stats: StatsCollector) -> None:
        self._context = context
        self._engine = engine
        self._stats = stats

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
        self._stats.inc_value(f"walsh/{wait.gate}/deferred")
        reason = f"{host_name(wait.host)} may not be asked before {format_moment(until)}"
        return RequestDeferred(until, reason, by_robots=wait.by_robots())


class GateQueue(HostQueue):
    """One queue for each gate and host, first come, first served.

    Only the first request of a queue reads the ledger and sleeps. So many waiting requests cost no
    more reads than one.
    """

    def __init__(self, context: Context, engine: Engine, stats: StatsCollector) -> None:
        super().__init__(context, engine, stats)
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def wait(self, request: Request, wait: Wait) -> Request | None:  # noqa: ARG002
        """Return None when the request may go on; see ``HostQueue.wait``."""
        was_closing = self._engine.is_closing
        lock = self._locks.setdefault((wait.gate, wait.host), asyncio.Lock())
        async with lock:
            while True:
                async with wait.quiet():
                    if self._engine.is_closing and not was_closing:
                        raise self._deferred(wait, 0.0)
                    seconds = wait.seconds()
                if not seconds:
                    return None
                self._check(wait, seconds)
                await self._sleep(wait, seconds)

    async def _sleep(self, wait: Wait, seconds: float) -> None:
        """Sleep in short steps, and stop if the spider closes: Scrapy has no signal for that."""
        clock = self._context.clock
        until = clock.monotonic() + seconds
        while (left := until - clock.monotonic()) > 0:
            if self._engine.is_closing:
                raise self._deferred(wait, left)
            await sleep(min(left, RECHECK_SECONDS))


class HostQueues:
    """Both queues of a crawl: which of them a request waits in is decided here alone.

    The queue of our scheduler is empty in a crawl that has another scheduler.
    """

    def __init__(self, in_gates: GateQueue, scheduler: SchedulerQueue) -> None:
        self._in_gates = in_gates
        self.scheduler = scheduler

    async def wait(self, request: Request, wait: Wait) -> Request | None:
        """Return None when a request may be sent, or what to send back; see ``HostQueue.wait``."""
        may_go_back = self.scheduler.has_handed_out(request)
        queue: HostQueue = self.scheduler if may_go_back else self._in_gates
        return await queue.wait(request, wait)
