"""A Scrapy scheduler that hands out only requests whose host is ready (R4).

While one host waits for its delay, the requests of other hosts go on.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.exceptions import CloseSpider
from scrapy.utils.job import job_dir
from scrapy.utils.misc import build_from_crawler, load_object

from walsh_scrapy.crawl.job import FILE, Job
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.refusal import refuse_to_start
from walsh_scrapy.crawl.scrapyinternals import flush
from walsh_scrapy.crawl.startup import Kind
from walsh_scrapy.crawl.ticket import note, rank_of, visit_of
from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.options import BadSetting
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.urls import is_web

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.dupefilters import BaseDupeFilter
    from twisted.internet.defer import Deferred


class Scheduler(BaseScheduler):
    """Scrapy's scheduler interface over `crawl.queue`, with the project's duplicate filter.

    A ``JOBDIR`` keeps the waiting requests of the spider for the next start. It does not keep
    requests for sources, which stay due in the state, nor requests for robots.txt and the
    blocklist.
    """

    def __init__(self, crawl: Crawl, dupefilter: BaseDupeFilter, job: Job | None) -> None:
        self._crawl = crawl
        self._crawler = crawl.crawler
        self._engine = crawl.engine
        self._queue = crawl.queue
        self._access = crawl.access
        self._exchanges = crawl.exchanges
        self._dupefilter = dupefilter
        self._job = job
        self._unpaced: deque[Request] = deque()  # those for no host of the web
        self._queue.open()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the scheduler with the project's ``DUPEFILTER_CLASS``.

        A ``JOBDIR`` whose file cannot be opened stops the process with one line.
        """
        crawl = Crawl.of(crawler)
        folder = job_dir(crawler.settings)
        try:
            job = Job(crawler, folder, crawl.context.clock) if folder else None
        except sqlite3.Error as error:
            problem = BadSetting(f"{folder}/{FILE}, a file of JOBDIR, cannot be opened: {error}")
            refuse_to_start(problem, log_file=crawler.settings["LOG_FILE"])
        dupefilter = load_object(crawler.settings["DUPEFILTER_CLASS"])
        scheduler = cls(crawl, build_from_crawler(dupefilter, crawler), job)
        crawler.signals.connect(
            scheduler.request_reached_downloader, signals.request_reached_downloader
        )
        crawler.signals.connect(scheduler.spider_idle, signals.spider_idle)
        return scheduler

    def open(self, spider: Spider) -> Deferred[None] | None:  # noqa: ARG002 - Scrapy's interface
        """Open the duplicate filter, and queue the requests that the last run kept in JOBDIR.

        From now on a project's own crawl shows that it lives: it owns a host from before its
        robots.txt is read until its page has come. A crawl of sources does so with its first visit.
        """
        if self._crawl.kind is Kind.OWN:
            self._crawl.hosts.beat("")
        for request in self._job.restore_requests() if self._job else ():
            self._count("enqueued")
            self._push(request)
        return self._dupefilter.open()

    def close(self, reason: str) -> Deferred[None] | None:
        """Stop the timer of the queue, and close the job, which keeps the waiting requests."""
        self._queue.stop_timer()
        if self._job:
            self._sweep_job(self._job)
            self._job.close()
        return self._dupefilter.close(reason)

    def has_pending_requests(self) -> bool:
        """Return True if any request waits, whether or not its host is ready."""
        return self._queue.waiting > 0 or bool(self._unpaced)

    def enqueue_request(self, request: Request) -> bool:
        """Queue a request, and return True, unless it is a duplicate.

        The job stores the request before the duplicate filter does. After a kill between the two
        steps the request is sent again; in the other order it would be lost.
        """
        comes_back = self._queue.turn_of(request) is not None
        if not comes_back and self._job and self._job.repeats(request):
            return False
        self._keep_in_job(request)
        is_filtered = not (comes_back or request.dont_filter)
        if is_filtered and self._dupefilter.request_seen(request):
            if self._job:
                self._job.forget(request)
            if self._crawler.spider is not None:
                self._dupefilter.log(request, self._crawler.spider)
            return False
        if self._job:
            flush(self._dupefilter)
            self._job.forget_deferred(request)
        if not comes_back:
            self._access.deferred_urls.discard((request.method, request.url))
            self._count("enqueued")
        self._push(request)
        return True

    def _push(self, request: Request) -> None:
        """Queue a request; one for no host of the web has nothing to wait for."""
        if is_web(request.url):
            self._queue.push(request)
        else:
            note(request, scheduled=True)
            self._unpaced.append(request)

    def next_request(self) -> Request | None:
        """Return a request whose host is ready, or None if no host is ready."""
        if self._job:
            self._sweep_job(self._job)
        try:
            self._exchanges.sweep()
            if self._unpaced:
                self._count("dequeued")
                return self._unpaced.popleft()
            request = self._queue.pop()
        except StateUnavailable:  # the crawl ends, and has said why
            return None
        if request is None:
            return None
        if self._job:
            self._job.hand_out(request)
        turn = self._queue.turn_of(request)
        if turn and not turn.times_sent_back:
            self._count("dequeued")
        return request

    def _count(self, event: str) -> None:
        """Count a request in the stats that Scrapy's own scheduler has."""
        self._crawler.stats.inc_value(f"scheduler/{event}")
        self._crawler.stats.inc_value(f"scheduler/{event}/memory")

    def request_reached_downloader(self, request: Request) -> None:
        """Tell the queue that a request was sent."""
        self._queue.mark_explored(request)

    def spider_idle(self) -> None:
        """End a crawl with deferred requests as "deferred", because a later run continues."""
        if self._access.deferred_urls and not self._engine.start_failed:
            raise CloseSpider("deferred")

    def _keep_in_job(self, request: Request) -> None:
        """Store a request of the spider in the job. If the disk fails, the crawl ends."""
        if self._job is None or rank_of(request) is not Rank.TARGET or visit_of(request):
            return
        try:
            self._job.keep(request)
        except sqlite3.Error as error:
            self._engine.end("state_failed", f"a file of JOBDIR cannot be written: {error}")

    def _sweep_job(self, job: Job) -> None:
        """Remove the requests that have ended from the job, except for the deferred ones."""
        try:
            job.sweep(
                lambda request: not self._engine.is_in_progress(request),
                self._access.deferred_requests,
            )
        except sqlite3.Error as error:
            self._engine.end("state_failed", f"a file of JOBDIR cannot be written: {error}")
