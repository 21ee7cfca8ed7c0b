"""R3: the operator's blocklist is checked first, before robots.txt is requested."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals

from walsh_scrapy.crawl.blocklist import PublishedList
from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.refusal import refuse_to_start
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.crawl.ticket import note_answer
from walsh_scrapy.identity import BLOCKLIST_URL
from walsh_scrapy.options import BadSetting

if TYPE_CHECKING:
    from scrapy import Request

    from walsh_scrapy.crawl.crawl import Crawl

logger = logging.getLogger(__name__)

#: Requests whose names are looked up before their turn (decision 27).
NAMES_AHEAD = 8


class BlocklistMiddleware(Component):
    """Denies every request to a listed host (order 10, decision 14).

    The scheduler hands out no target while the list is fetched. The requests for the list and for
    its robots.txt pass every other gate.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._options = crawl.context.options
        self._url = self._options.blocklist_url
        self._queue = crawl.queue
        self._fetcher = crawl.fetcher
        try:
            parts = (crawl.stats, crawl.access, crawl.fetcher, crawl.engine, crawl.reader)
            self._list = PublishedList(crawl.context, *parts)
        except BadSetting as error:
            refuse_to_start(error, log_file=crawl.settings["LOG_FILE"])
        self._queue.register_preparer(Gate.BLOCKLIST, self._list)
        self._denials = crawl.denials
        self._network = crawl.network
        crawl.crawler.signals.connect(self.spider_opened, signals.spider_opened)

    def spider_opened(self) -> None:
        """Log the changes of the operator: another address of the list, a local list."""
        self._list.log_local()
        if self._options.is_walsh_research and self._url != BLOCKLIST_URL:
            logger.warning(
                "WALSH_BLOCKLIST_URL is %s: opt-outs that are published only at %s are not in "
                "force in this run",
                self._url,
                BLOCKLIST_URL,
            )

    async def process_request(self, request: Request) -> None:
        """Deny a listed host; fetch the list first if it is due and nobody has."""
        self._network.check_route(request)
        if not self._list.is_ready(request):
            with self._fetcher.gate_waits():
                await self._list.prepare_list()
        if self._list.checks(request):
            self._check(request)
        self._look_ahead()

    def _check(self, request: Request) -> None:
        found = {"blocklist": self._list.hash, "blocklist_at": self._list.requested_at}
        if entry := self._list.blocking(request):
            note_answer(request, "blocklist", "listed", rule=entry.domain, **found)
            raise self._denials.deny(request, "blocklist", entry.why)
        note_answer(request, "blocklist", "not listed", **found)

    def _look_ahead(self) -> None:
        """Look up the names of hosts that come soon, but never that of a listed one (R3)."""
        if self._list.is_due:
            return
        urls = [request.url for request in self._queue.upcoming(NAMES_AHEAD)]
        self._network.look_ahead(url for url in urls if not self._list.blocks(url))
