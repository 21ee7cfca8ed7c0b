"""R3: the operator's blocklist is checked first, before robots.txt is asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request

from walsh_scrapy.exceptions import Denied, NotModified
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.politeness.blocklist import BlocklistCache
from walsh_scrapy.politeness.prerequisites import Prerequisites
from walsh_scrapy.runtime.context import Context
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.runtime.gates import Gate
from walsh_scrapy.runtime.requestmeta import mark, note_answer, rank_of
from walsh_scrapy.runtime.startup import check_start, require_order

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from walsh_scrapy.politeness.prerequisites import Steps

logger = logging.getLogger(__name__)


class BlocklistMiddleware:
    """Denies every request to a listed host (order 10, decision 14).

    While the list is fetched, all targets wait. The requests for the list and for its robots.txt
    pass every other gate.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        context = Context.of(crawler)
        self._url = context.options.blocklist_url
        self._schema_url = context.options.blocklist_schema_url
        self._list = BlocklistCache(context)
        self._prerequisites = Prerequisites(crawler, Rank.OPERATOR)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        check_start(crawler, _check)
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        """Deny a listed host; fetch the list first if it is due."""
        rank = rank_of(request)
        if rank is Rank.OPERATOR:
            self._prerequisites.check(request)
        is_the_list = rank is Rank.OPERATOR and not request.meta.get("redirect_urls")
        if not self._url or is_the_list:
            return None
        # A request for robots.txt is made for a target that has passed here, after the fetch.
        if rank is Rank.TARGET and self._list.is_due:
            instead = await self._prerequisites.before(request, self._url, None, self._steps)
            if instead is not None:
                return instead
        if entry := self._list.blocks(request.url):
            self._crawler.stats.inc_value("walsh/blocklist/denied")
            raise Denied("blocklist", f"{entry.domain} opted out ({entry.reason or 'no reason'})")
        note_answer(request, "blocklist", "not listed")
        return None

    def _steps(self) -> Steps:
        """Yield the requests for the list, and for its schema if one is published."""
        candidate = yield self._request(self._url)
        if isinstance(candidate, NotModified):
            self._list.keep_unchanged(candidate.response)
            return
        if isinstance(candidate, BaseException):
            self._crawler.stats.inc_value("walsh/blocklist/failed")
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
        self._list.adopt(candidate, schema)

    def _request(self, url: str) -> Request:
        request = Request(url, headers={"Accept": "application/json, */*;q=0.5"})
        mark(request, validators=self._list.validators(url))
        return request


def _check(settings: BaseSettings) -> None:
    require_order(
        settings,
        (Gate.BLOCKLIST,),
        (Gate.ROBOTS, Gate.PACING),
        "a listed host gets no request, not even for robots.txt; "
        "set the order of BlocklistMiddleware to 10",
    )
