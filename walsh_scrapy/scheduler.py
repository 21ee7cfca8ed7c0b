"""A Scrapy scheduler that hands out only requests whose host may be asked now (R4, decision 6)."""

from __future__ import annotations

import asyncio
import math
from itertools import chain
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from scrapy import signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.asyncio import CallLaterResult, call_later
from scrapy.utils.misc import build_from_crawler, load_object

from walsh_scrapy.policy.frontier import Frontier, Rank
from walsh_scrapy.politeness.jobdir import Job
from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.context import Crawl, end_crawl

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.dupefilters import BaseDupeFilter
    from scrapy.http import Response
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure


#: Hosts with a request ready to go out, above which a spider's next start request waits: far more
#: than are asked at once, and few enough to be kept in a few megabytes.
ENOUGH = 2000


class Scheduler(BaseScheduler):
    """Keeps waiting requests by host, and sleeps exactly until the next host is due.

    Requests live in memory. What a run leaves behind of its sources is still due, and the next
    run asks for it; what else is left is kept if the crawl has a ``JOBDIR``.
    """

    def __init__(self, crawler: Crawler, dupefilter: BaseDupeFilter) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._dupefilter = dupefilter
        follows_links = self._crawl.options.scope == "any"
        self._frontier: Frontier[Request] = Frontier(
            self._crawl.intervals, hidden=math.inf if follows_links else 0.0
        )
        self._job = Job(crawler)
        self._room = asyncio.Event()
        self._handed_out: WeakSet[Request] = WeakSet()
        self._out: dict[str, Request] = {}  # by host; one of each at most
        self._returned: WeakSet[Request] = WeakSet()
        self._put_off: list[Request] = []
        self._timer: CallLaterResult | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the scheduler with the project's duplicate filter."""
        dupefilter = load_object(crawler.settings["DUPEFILTER_CLASS"])
        scheduler = cls(crawler, build_from_crawler(dupefilter, crawler))
        crawler.signals.connect(scheduler.spider_error, signal=signals.spider_error)
        crawler.signals.connect(
            scheduler.request_reached_downloader, signal=signals.request_reached_downloader
        )
        return scheduler

    def open(self, spider: Spider) -> Deferred[None] | None:  # noqa: ARG002 - Scrapy's interface
        """Open the duplicate filter, and take up what the last start of the job left."""
        for request in self._job.left():
            self.put_back(request)
        return self._dupefilter.open()

    def close(self, reason: str) -> Deferred[None] | None:
        """Forget the timer, and leave what still waits to the next start of the job."""
        self._stop_timer()
        self._job.leave(chain(self._frontier, self._put_off))
        return self._dupefilter.close(reason)

    def has_pending_requests(self) -> bool:
        """Tell whether any request waits, ready or not."""
        return self.waiting > 0

    @property
    def waiting(self) -> int:
        """How many requests wait for their hosts."""
        return len(self._frontier)

    def enqueue_request(self, request: Request) -> bool:
        """Take a request, unless the duplicate filter has seen it."""
        if request in self._returned:
            self._returned.discard(request)
        elif not request.dont_filter and self._dupefilter.request_seen(request):
            if self._crawler.spider is not None:
                self._dupefilter.log(request, self._crawler.spider)
            return False
        self.put_back(request)
        return True

    async def room(self) -> None:
        """Wait until so few requests could go out that one more start request is of use."""
        await asyncio.sleep(0)  # whoever starts with thousands lets answers in between
        while self._frontier.awake(self._crawl.ticks()) >= ENOUGH:
            self._room.clear()
            await self._room.wait()

    def next_request(self) -> Request | None:
        """Hand out a request whose host may be asked now, or None until one may."""
        self._free_hosts()
        now = self._crawl.ticks()
        picked = self._frontier.pop(now)
        if self._frontier.awake(now) < ENOUGH:
            self._room.set()
        if picked is None:
            self._wake_at(self._frontier.next_at(), now)
            return None
        host, request = picked
        self._handed_out.add(request)
        self._out[host] = request
        if idle := request.meta.get(meta.IDLE):
            idle.clear()
        return request

    def spider_error(self, response: Response | Failure | None) -> None:
        """End the crawl when an answer that targets wait for cannot be kept, as on a full disk."""
        # What goes wrong in a spider's start() has no response.
        if response is not None and meta.rank(meta.asked_by(response)) is not Rank.TARGET:
            end_crawl(self._crawler, "gate_failed")

    def again(self, request: Request) -> Request:
        """Return the copy by which a gate sends a request back to wait, past the duplicate filter.

        Not by ``dont_filter``: a redirect would inherit it, and with it the way past all filters.
        """
        copy = request.copy()
        self._returned.add(copy)
        return copy

    def put_back(self, request: Request) -> None:
        """Keep a request until its host's turn comes (again), past the duplicate filter."""
        host = self._crawl.host(request.url)
        if idle := request.meta.get(meta.IDLE):
            idle.set()
        self._frontier.push(host, request, meta.rank(request), request.priority)

    def put_off(self, request: Request) -> None:
        """Keep a request that may not go out in this run for the job's next start (decision 7).

        Its duplicate filter has seen it, so nothing else would ask for it again.
        """
        is_ours = self._out.get(self._crawl.host(request.url)) is request
        if is_ours and self._job.goes_on:
            self._put_off.append(request)

    def came_from_here(self, request: Request) -> bool:
        """Tell whether a request was handed out by this scheduler, and may be given back to it.

        One made past it, by ``engine.download_async``, knows no "later".
        """
        return request in self._handed_out

    def request_reached_downloader(self, request: Request) -> None:
        """Forget a request that is sent: who asks for it once more may do so past the scheduler.

        And note that a host is being looked into: what it links to will be known.
        """
        self._handed_out.discard(request)
        if meta.rank(request) is Rank.TARGET:
            self._frontier.looked_into(self._crawl.host(request.url))

    def wait(self, host: str, seconds: float, interval: float | None = None) -> bool:
        """Let a host rest for ``seconds``; ``interval`` is its spacing. Tell whether it rests.

        A rest longer than ``WALSH_MAX_WAIT`` is not slept out: the host's requests are handed out
        at once, for the pacing gate to defer each (decision 7).
        """
        rests = 0.0 < seconds <= self._crawl.options.max_wait
        self._frontier.wait(host, self._crawl.ticks() + (seconds if rests else 0.0), interval)
        return rests

    def restrict(self, rank: Rank, host: str | None = None) -> None:
        """Hand out nothing above ``rank``, of one host or of all, until told otherwise."""
        self._frontier.restrict(rank, host)
        self._nudge()

    def _free_hosts(self) -> None:
        """Let hosts go on whose request has ended, in whatever way.

        The engine asks for more after each; no signal tells of what a middleware denied.
        """
        for host, request in list(self._out.items()):
            if request not in self._crawler.engine.downloader.active:
                del self._out[host]
                self._frontier.free(host)

    def _wake_at(self, moment: float | None, now: float) -> None:
        self._stop_timer()
        if moment is not None:
            self._timer = call_later(max(0.0, moment - now), self._nudge)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _nudge(self) -> None:
        # Without this the engine looks again only every five seconds.
        if slot := _slot_of(self._crawler):
            slot.nextcall.schedule()


def scheduler_of(crawler: Crawler) -> Scheduler | None:
    """Return the crawl's scheduler if it is ours: only it can be told "later"."""
    scheduler = crawler.engine.scheduler
    # Not isinstance: Scrapy's metaclass says yes to whatever has the methods of a scheduler.
    return cast("Scheduler", scheduler) if Scheduler in type(scheduler).__mro__ else None


def is_closing(crawler: Crawler) -> bool:
    """Tell whether a spider only waits for the requests that are out, and sends no others."""
    slot = _slot_of(crawler)
    return slot is None or slot.closing is not None


def _slot_of(crawler: Crawler) -> Any:  # noqa: ANN401 - Scrapy's own, with no public type
    """Return what the engine keeps of the open spider: the one private name that we need."""
    return crawler.engine._slot  # noqa: SLF001
