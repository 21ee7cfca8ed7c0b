"""R3: the blocklist is checked first, before robots.txt is fetched."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals

from walsh_scrapy.crawl.documents.publishedlist import PublishedList
from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.refusal import refuse_to_start
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.crawl.ticket import note_answer
from walsh_scrapy.identity import BLOCKLIST_URL
from walsh_scrapy.options import BadSetting
from walsh_scrapy.policy.urls import is_web

if TYPE_CHECKING:
    from scrapy import Request

    from walsh_scrapy.crawl.parts import Crawl

logger = logging.getLogger(__name__)

#: The number of waiting requests whose host names are resolved ahead. This asks the resolver, not
#: the hosts.
DNS_PREFETCH = 8


class BlocklistMiddleware(Component):
    """Denies every request to a host on the blocklist (order 10).

    The scheduler hands out no target while the list is fetched. Requests for the list itself and
    for the robots.txt of its host skip this gate, and pass every other gate.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._options = crawl.context.options
        self._url = self._options.blocklist_url
        self._queue = crawl.queue
        self._fetcher = crawl.fetcher
        try:
            self._list = PublishedList(crawl)
        except BadSetting as error:
            refuse_to_start(error, log_file=crawl.settings["LOG_FILE"])
        self._queue.register_preparer(Gate.BLOCKLIST, self._list)
        self._denials = crawl.denials
        self._network = crawl.network
        crawl.crawler.signals.connect(self.spider_opened, signals.spider_opened)

    def spider_opened(self) -> None:
        """Log the local blocklist, and warn if another URL replaces the published blocklist."""
        self._list.log_local()
        if self._options.is_walsh_research and self._url != BLOCKLIST_URL:
            logger.warning(
                "WALSH_BLOCKLIST_URL = %s: hosts that are listed only at %s, the public blocklist "
                "of Walsh-Research, are not blocked in this run",
                self._url,
                BLOCKLIST_URL,
            )

    async def process_request(self, request: Request) -> None:
        """Deny a request to a listed host; fetch the list first if it is due."""
        if not (is_web(request.url) or request.url.startswith("ftp:")):
            return
        self._network.check_route(request)
        if not self._list.is_ready(request):
            with self._fetcher.gate_waits():
                await self._list.prepare_list()
        if self._list.checks(request):
            self._check(request)
        self._prefetch_dns()

    def _check(self, request: Request) -> None:
        evidence = {"blocklist": self._list.hash, "blocklist_at": self._list.requested_at}
        if entry := self._list.blocking(request):
            note_answer(request, "blocklist", "listed", rule=entry.domain, **evidence)
            raise self._denials.deny(request, "blocklist", entry.why)
        note_answer(request, "blocklist", "not listed", **evidence)

    def _prefetch_dns(self) -> None:
        """Resolve the names of the next hosts, except for the hosts on the blocklist."""
        if self._list.is_due:
            return
        urls = [request.url for request in self._queue.upcoming(DNS_PREFETCH)]
        self._network.look_ahead(url for url in urls if not self._list.blocks(url))
