"""R3: the operator's blocklist is checked first, before robots.txt is asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request, signals

from walsh_scrapy.crawl import Crawl
from walsh_scrapy.exceptions import (
    FetchedMeanwhile,
    NotModified,
    RequestDeferred,
    refuse_to_start,
)
from walsh_scrapy.identity import BLOCKLIST_URL
from walsh_scrapy.options import BadSetting
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.politeness.blocklist import BlocklistCache
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.runtime.gates import Gate
from walsh_scrapy.runtime.requests import hops_of, mark, marks_of, note_answer, rank_of
from walsh_scrapy.runtime.startup import require_order

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from walsh_scrapy.politeness.prerequisites import Steps
    from walsh_scrapy.runtime.startup import Problems

logger = logging.getLogger(__name__)

#: Requests whose names are looked up before their turn (decision 27).
NAMES_AHEAD = 8
#: Bytes of the list: 1,000,000 domains, or half as many with day and reason. A list that may grow
#: no more would suspend opt-outs, so it may be larger than any other body.
LONGEST_LIST = 40 * 1024 * 1024


class BlocklistMiddleware:
    """Denies every request to a listed host (order 10, decision 14).

    While the list is fetched, all targets wait. The requests for the list and for its robots.txt
    pass every other gate.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._options = crawl.context.options
        self._url = self._options.blocklist_url
        self._schema_url = self._options.blocklist_schema_url
        self._list = BlocklistCache(crawl.context)
        self._stats = crawl.stats
        self._denials = crawl.denials
        self._prerequisites = crawl.prerequisites(Rank.OPERATOR)
        self._queue = crawl.queues.scheduler
        self._network = crawl.network
        self._worker = crawl.worker

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        try:
            gate = cls(Crawl.of(crawler))
        except BadSetting as error:
            refuse_to_start(error, log_file=crawler.settings["LOG_FILE"])
        crawler.signals.connect(gate.spider_opened, signal=signals.spider_opened)
        return gate

    def spider_opened(self) -> None:
        """Say what the operator changed: another address of the list, a list of their own."""
        self._list.log_local()
        if self._options.is_walsh_research and self._url != BLOCKLIST_URL:
            logger.warning(
                "WALSH_BLOCKLIST_URL is %s: opt-outs that are published only at %s are not in "
                "force in this run",
                self._url,
                BLOCKLIST_URL,
            )

    @staticmethod
    def problems(settings: BaseSettings) -> Problems:
        """Yield an error for each setting that has to be changed."""
        why = "a listed host gets no request, not even for robots.txt"
        yield from require_order(settings, Gate.BLOCKLIST, why, before=(Gate.ROBOTS, Gate.PACING))

    async def process_request(self, request: Request) -> Request | None:
        """Deny a listed host; fetch the list first if it is due."""
        rank = rank_of(request)
        if rank is Rank.OPERATOR:
            self._prerequisites.check(request)
        is_the_list = rank is Rank.OPERATOR and not hops_of(request)
        is_judged = self._list.has_list and not is_the_list
        if is_judged and (instead := await self._judge(request, rank)):
            return instead
        if rank is Rank.TARGET:
            self._look_ahead()
        return None

    async def _judge(self, request: Request, rank: Rank) -> Request | None:
        # A request for robots.txt is made for a target that has passed here, after the fetch.
        if rank is Rank.TARGET and self._list.is_due:
            came_meanwhile = self._list.came_meanwhile
            instead = await self._prerequisites.before(
                request, self._url, None, self._steps, came_meanwhile
            )
            if instead is not None:
                return instead
        is_for_list = rank is Rank.OPERATOR or marks_of(request).for_blocklist
        blocks = self._list.blocks_for_list if is_for_list else self._list.blocks
        published = self._list.hash
        if entry := blocks(request.url):
            note_answer(request, "blocklist", "listed", rule=entry.domain, blocklist=published)
            raise self._denials.deny(request, "blocklist", entry.why)
        note_answer(request, "blocklist", "not listed", blocklist=published)
        return None

    def _look_ahead(self) -> None:
        """Look up the names of hosts that come soon, but never that of a listed one (R3)."""
        if self._list.is_due:
            return
        urls = [request.url for request in self._queue.upcoming(NAMES_AHEAD)]
        self._network.look_ahead(url for url in urls if not self._list.blocks(url))

    def _steps(self) -> Steps:
        """Fetch the list; its host is claimed meanwhile, and other crawls on the state wait."""
        try:
            yield from self._fetch()
        finally:
            self._worker.let_go([self._url, self._schema_url])

    def _fetch(self) -> Steps:
        """Yield the requests for the list, and for its schema if one is published."""
        logger.info("waiting for the blocklist: %s", self._url)
        candidate = yield self._request(self._url)
        while isinstance(candidate, FetchedMeanwhile):
            if self._list.has_come():
                return
            candidate = yield self._request(self._url)
        if isinstance(candidate, NotModified):
            self._list.keep_unchanged(candidate.response)
            return
        if isinstance(candidate, BaseException):
            if not isinstance(candidate, RequestDeferred):
                self._stats.inc_value("walsh/blocklist/failed")
            reason = reason_of(candidate, self._url)
            self._list.keep_last(f"the blocklist could not be fetched: {reason}")
            return
        schema = None
        if self._schema_url:
            answer = yield self._request(self._schema_url)
            if not isinstance(answer, BaseException):
                schema = answer
            elif not isinstance(answer, NotModified):
                reason = reason_of(answer, self._schema_url)
                logger.warning("%s could not be fetched: %s", self._schema_url, reason)
        yield from self._list.adopt(candidate, schema)

    def _request(self, url: str) -> Request:
        request = Request(url, headers={"Accept": "application/json, */*;q=0.5"})
        if url == self._url:
            request.meta["download_maxsize"] = LONGEST_LIST
        mark(request, validators=self._list.validators(url))
        return request
