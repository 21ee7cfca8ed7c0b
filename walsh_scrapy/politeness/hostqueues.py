"""The host queues of one crawl, and the choice between them for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.politeness.gatequeue import GateQueue
from walsh_scrapy.politeness.schedulerqueue import SchedulerQueue
from walsh_scrapy.runtime.context import Context

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

    from walsh_scrapy.policy.frontier import Rank
    from walsh_scrapy.politeness.hostqueue import Wait


class HostQueues:
    """The queue in the gates, and the queue of our scheduler if the crawl uses it."""

    def __init__(self, crawler: Crawler) -> None:
        self._in_gates = GateQueue(crawler)
        self._scheduler: SchedulerQueue | None = None
        self._crawler = crawler

    @classmethod
    def of(cls, crawler: Crawler) -> HostQueues:
        """Return the queues of a crawl."""
        return Context.of(crawler).part(cls, lambda: cls(crawler))

    def open_scheduler(self, *, keeps_deferred: bool) -> SchedulerQueue:
        """Make the queue of our scheduler; a crawl with another scheduler never calls this."""
        self._scheduler = SchedulerQueue(self._crawler, keeps_deferred=keeps_deferred)
        return self._scheduler

    @property
    def waiting(self) -> int | None:
        """How many requests wait for their hosts; None where our scheduler is not used."""
        return None if self._scheduler is None else self._scheduler.waiting

    async def wait(self, request: Request, wait: Wait) -> Request | None:
        """Return None when a request may be sent, or what to send back; see ``HostQueue.wait``."""
        queue = self.returns_to(request)
        return await (self._in_gates if queue is None else queue).wait(request, wait)

    def returns_to(self, request: Request) -> SchedulerQueue | None:
        """Return our scheduler's queue if a request came from there, so that it may go back."""
        if self._scheduler is not None and self._scheduler.has_handed_out(request):
            return self._scheduler
        return None

    async def room(self) -> None:
        """Wait until our scheduler has room for one more start request of a spider."""
        if self._scheduler is not None:
            await self._scheduler.room()

    def delay(self, host: str, seconds: float, interval: float) -> None:
        """Send a host no request for ``seconds``; ``interval`` is its spacing in seconds."""
        if self._scheduler is not None:
            self._scheduler.delay(host, seconds, interval)

    def restrict(self, rank: Rank, host: str | None) -> None:
        """Hand out only requests up to ``rank``, for ``host``, or for all hosts if it is None."""
        if self._scheduler is not None:
            self._scheduler.restrict(rank, host)

    def defer(self, request: Request) -> None:
        """Keep a deferred request for the next start of the job, if the crawl is one."""
        if self._scheduler is not None:
            self._scheduler.defer(request)
