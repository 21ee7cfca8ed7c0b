"""R3: the operator's opt-outs come first, before even robots.txt is asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request

from walsh_scrapy.downloadermiddlewares.pacing import PacingMiddleware
from walsh_scrapy.downloadermiddlewares.robots import RobotsMiddleware
from walsh_scrapy.exceptions import Denied, NotModified
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.politeness.blocklist import OperatorList
from walsh_scrapy.politeness.prerequisites import Errands
from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.context import Crawl
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.runtime.startup import check_floor, require_order

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from walsh_scrapy.politeness.prerequisites import Flow

logger = logging.getLogger(__name__)


class BlocklistMiddleware:
    """Denies every request to a listed host, by a list that is never older than it allows.

    While the list is being fetched, all targets wait; its own requests, and those for the
    robots.txt they need, go through every other gate (order 10, decision 14).
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        options = Crawl.of(crawler).options
        self._url, self._schema_url = options.blocklist_url, options.blocklist_schema_url
        self._list = OperatorList(Crawl.of(crawler))
        self._errands = Errands(crawler, Rank.OPERATOR)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        check_floor(crawler, _floor)
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        """Deny a listed host, or send for the list first."""
        rank = meta.rank(request)
        if rank is Rank.OPERATOR:
            self._errands.check(request)
        is_the_list = rank is Rank.OPERATOR and not request.meta.get("redirect_urls")
        if not self._url or is_the_list:
            return None
        # A request for robots.txt is made for a target that passed here, with the list at hand.
        if rank is Rank.TARGET and self._list.is_due:
            instead = await self._errands.before(request, self._url, None, self._fetch)
            if instead is not None:
                return instead
        if entry := self._list.blocks(request.url):
            self._crawler.stats.inc_value("walsh/blocklist/denied")
            raise Denied("blocklist", f"{entry.domain} opted out ({entry.reason or 'no reason'})")
        meta.note(request, "blocklist", "not listed")
        return None

    def _fetch(self) -> Flow:
        """Ask for the list, then for its schema if one is published, and see what is in force."""
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
        return Request(
            url,
            headers={"Accept": "application/json, */*;q=0.5"},
            meta={meta.VALIDATORS: self._list.validators(url)},
        )


def _floor(settings: BaseSettings) -> None:
    require_order(
        settings,
        (BlocklistMiddleware,),
        (RobotsMiddleware, PacingMiddleware),
        "a listed host sees no request, not for its robots.txt either; "
        "set the order of BlocklistMiddleware to 10",
    )
