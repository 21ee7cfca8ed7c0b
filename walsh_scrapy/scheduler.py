"""A Scrapy scheduler that hands out only requests whose host is ready (R4, decision 6)."""

from __future__ import annotations

import logging
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.squeues import PickleFifoDiskQueue
from scrapy.utils.job import job_dir
from scrapy.utils.misc import build_from_crawler, load_object

from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.ticket import first_url, hops_of, rank_of, visit_of
from walsh_scrapy.policy.frontier import Rank

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.dupefilters import BaseDupeFilter
    from twisted.internet.defer import Deferred

    from walsh_scrapy.crawl.queue import Queue

logger = logging.getLogger(__name__)


def _at_its_beginning(request: Request) -> Request:
    """Return a request without its redirects, because a kept request proves none."""
    if not hops_of(request):
        return request
    meta = {key: request.meta[key] for key in request.meta if not key.startswith("redirect_")}
    return request.replace(url=first_url(request), meta=meta)


class Scheduler(BaseScheduler):
    """The host queue behind Scrapy's scheduler interface, with the project's duplicate filter.

    Requests are kept in memory. Sources that a run did not reach stay due for the next run. Other
    requests are kept for the next start if the crawl has a ``JOBDIR``, in one of Scrapy's disk
    queues. Those of middlewares are not, because the next start makes them itself.
    """

    def __init__(self, crawler: Crawler, queue: Queue, dupefilter: BaseDupeFilter) -> None:
        self._crawler = crawler
        self._dupefilter = dupefilter
        self._queue = queue
        self._job_dir = job_dir(crawler.settings)
        queue.open(keeps_deferred=self._job_dir is not None)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the scheduler with the project's duplicate filter."""
        dupefilter = load_object(crawler.settings["DUPEFILTER_CLASS"])
        crawl, seen = Crawl.of(crawler), build_from_crawler(dupefilter, crawler)
        scheduler = cls(crawler, crawl.queue, seen)
        crawler.signals.connect(
            scheduler.request_reached_downloader, signal=signals.request_reached_downloader
        )
        return scheduler

    def open(self, spider: Spider) -> Deferred[None] | None:  # noqa: ARG002 - Scrapy's interface
        """Open the duplicate filter, and queue the requests that the last start of the job kept."""
        if self._job_dir:
            kept = self._kept(self._job_dir)
            while request := kept.pop():
                self._count("enqueued")
                self._queue.push(request)
            kept.close()
        return self._dupefilter.open()

    def close(self, reason: str) -> Deferred[None] | None:
        """Stop the timer, and keep the waiting requests for the next start of the job.

        Those that cannot be written are logged, and left out.
        """
        self._queue.close()
        if self._job_dir:
            kept = self._kept(self._job_dir)
            for request in chain(self._queue, self._queue.deferred):
                if rank_of(request) is Rank.TARGET and visit_of(request) is None:
                    try:
                        kept.push(_at_its_beginning(request))
                    except ValueError as error:
                        self._crawler.stats.inc_value("scheduler/unserializable")
                        logger.warning("%s is not kept for the next start: %s", request, error)
            kept.close()
        return self._dupefilter.close(reason)

    def _kept(self, folder: str) -> Any:  # noqa: ANN401 - Scrapy makes its classes of queues
        """Open the requests that are kept for the next start of the job."""
        path = str(Path(folder, "walsh.queue"))
        return build_from_crawler(PickleFifoDiskQueue, self._crawler, path)

    def has_pending_requests(self) -> bool:
        """Return True if any request waits, ready or not."""
        return self._queue.waiting > 0

    def enqueue_request(self, request: Request) -> bool:
        """Take a request, unless the duplicate filter has seen it."""
        is_back = self._queue.turn_of(request) is not None
        if not (request.dont_filter or is_back) and self._dupefilter.request_seen(request):
            if self._crawler.spider is not None:
                self._dupefilter.log(request, self._crawler.spider)
            return False
        if not is_back:
            self._count("enqueued")
        self._queue.push(request)
        return True

    def next_request(self) -> Request | None:
        """Return a request whose host is ready; None if there is none."""
        request = self._queue.pop()
        turn = request and self._queue.turn_of(request)
        if turn and not turn.times_back:
            self._count("dequeued")
        return request

    def _count(self, event: str) -> None:
        """Count a request under Scrapy's names; one that pacing sent back is no other one."""
        self._crawler.stats.inc_value(f"scheduler/{event}")
        self._crawler.stats.inc_value(f"scheduler/{event}/memory")

    def request_reached_downloader(self, request: Request) -> None:
        """Mark a request as sent."""
        self._queue.sent(request)
