"""R3: the operator's opt-outs come first, before even robots.txt is asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request

from walsh_scrapy import meta
from walsh_scrapy.blocklists import OperatorList
from walsh_scrapy.crawl import Crawl
from walsh_scrapy.exceptions import Denied, NotModified
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.reasons import reason_of
from walsh_scrapy.scheduler import scheduler_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

logger = logging.getLogger(__name__)


class BlocklistMiddleware:
    """Denies every request to a listed host, by a list that is never older than it allows.

    While the list is being fetched, all targets wait; its own requests, and those for the
    robots.txt they need, go through every other gate (order 10, ruling 14).
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        options = Crawl.of(crawler).options
        self._url, self._schema_url = options.blocklist_url, options.blocklist_schema_url
        self._list = OperatorList(Crawl.of(crawler))
        self._candidate: Response | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        return cls(crawler)

    async def process_request(self, request: Request) -> Request | None:
        """Deny a listed host, or send for the list first."""
        rank = meta.rank(request)
        is_the_list = rank is Rank.OPERATOR and not request.meta.get("redirect_urls")
        if not self._url or is_the_list:
            return None
        # A request for robots.txt is made for a target that passed here, with the list at hand.
        if rank is Rank.TARGET and self._list.is_due:
            return self._send_for_list(request)
        if entry := self._list.blocks(request.url):
            self._crawler.stats.inc_value("walsh/blocklist/denied")
            raise Denied("blocklist", f"{entry.domain} opted out ({entry.reason or 'no reason'})")
        meta.note(request, "blocklist", "not listed")
        return None

    def _send_for_list(self, request: Request) -> Request:
        if scheduler := scheduler_of(self._crawler):
            scheduler.set_aside(request, Rank.OPERATOR)
        return self._request(self._url, self._list_arrived, self._list_failed)

    def _request(
        self,
        url: str,
        callback: Callable[[Response], None],
        errback: Callable[[Failure], None],
    ) -> Request:
        return Request(
            url,
            callback=callback,
            errback=errback,
            dont_filter=True,
            headers={"Accept": "application/json, */*;q=0.5"},
            meta={meta.RANK: Rank.OPERATOR, meta.VALIDATORS: self._list.validators(url)},
        )

    def _list_arrived(self, response: Response) -> None:
        if not self._schema_url:
            self._adopt(response, None)
            return
        self._candidate = response
        self._crawler.engine.crawl(
            self._request(self._schema_url, self._schema_arrived, self._schema_failed)
        )

    def _list_failed(self, failure: Failure) -> None:
        if isinstance(failure.value, NotModified):
            self._list.keep_unchanged(failure.value.response)
        else:
            self._crawler.stats.inc_value("walsh/blocklist/failed")
            self._list.keep_last(f"the blocklist could not be fetched: {_reason(failure)}")
        self._go_on()

    def _schema_arrived(self, response: Response) -> None:
        if self._candidate is not None:
            self._adopt(self._candidate, response)

    def _schema_failed(self, failure: Failure) -> None:
        if not isinstance(failure.value, NotModified):
            logger.warning("%s could not be fetched: %s", self._schema_url, _reason(failure))
        if self._candidate is not None:
            self._adopt(self._candidate, None)

    def _adopt(self, candidate: Response, schema: Response | None) -> None:
        self._candidate = None
        self._list.adopt(candidate, schema)
        self._go_on()

    def _go_on(self) -> None:
        if scheduler := scheduler_of(self._crawler):
            scheduler.restrict(Rank.TARGET)


def _reason(failure: Failure) -> str:
    return reason_of(failure.value, meta.asked_by(failure).url)
