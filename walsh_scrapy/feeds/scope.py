"""R6: a crawl requests only the URLs that its sources declare, and follows no links."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from scrapy import Request

from walsh_scrapy.crawl.hosts.queue import RequestPreparer
from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.crawl.ticket import (
    first_url,
    links_of,
    note_answer,
    rank_of,
    request_of,
    resolved,
    set_visit,
)
from walsh_scrapy.exceptions import Denied
from walsh_scrapy.feeds.feedcrawl import FeedCrawl
from walsh_scrapy.feeds.metadata.formats import announced, is_dump
from walsh_scrapy.feeds.sources.source import declared_urls
from walsh_scrapy.feeds.sourcevisit import source_of, source_visit_of
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.programname import program_name
from walsh_scrapy.spider import DeclaringSpider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response

    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.feeds.feedcrawl import Visits
    from walsh_scrapy.feeds.sources.source import Source

logger = logging.getLogger(__name__)

#: Why a URL is declared: the sources file has it, the page of a source announces it as its markdown
#: version, or a source of the file has moved to it.
_DeclaredBy = Literal["declared", "announced", "moved"]


class ScopeMiddleware(Component, RequestPreparer):
    """Drops every request for a URL that no source of the spider declares (order 15 and 20).

    As a spider middleware it drops the requests that a spider yields, with a log line. As a
    downloader middleware it denies those that come in another way (``engine.crawl``,
    ``engine.download_async``). With ``WALSH_SCOPE = "any"`` it does nothing; under the
    Walsh-Research identity that value is not allowed.
    """

    def __init__(self, crawl: Crawl) -> None:
        super().__init__(crawl)
        self._declared = FeedCrawl.of(crawl)
        self._visits = self._declared.visits
        self._denials = crawl.denials
        self._options = crawl.context.options
        self._declared_only = self._options.scope == "declared"
        crawl.queue.register_preparer(Gate.SCOPE, self)

    async def process_request(self, request: Request) -> None:
        """Deny a request for an undeclared URL. Redirects of a declared URL are allowed."""
        if reason := self._check_request(request):
            raise self._denials.deny(request, "scope", reason)

    async def prepare(self, request: Request) -> None:
        """Raise Denied early, before the host's robots.txt is fetched."""
        if reason := self._check_request(request):
            raise Denied("scope", reason)

    def _check_request(self, request: Request) -> str | None:
        """Return why a request is denied, or None.

        Also adds to the request log why the URL is declared, unless the sources file has it.
        """
        if not self._declared_only:
            return None
        if rank_of(request) is Rank.TARGET:
            declared_by = self._declared_by(request)
            if declared_by is None:
                return f"no source declares {request.url}"
            if declared_by != "declared":
                note_answer(request, "scope", declared_by)
        if is_dump(request.url):
            return f"{request.url} contains whole pages, not a list of links"
        return None

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass on items, and start requests for declared URLs."""
        async for item in start:
            if not isinstance(item, Request):
                yield item
            elif self._accept(request := resolved(item) or item):
                yield request

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Pass on items, and requests for declared URLs."""
        async for item in result:
            if not isinstance(item, Request):
                yield item
                continue
            request = resolved(item) or item
            if (visit := source_visit_of(request)) and visit.source:
                set_visit(request, replace(visit, announced=_announced(response)))
            if self._accept(request):
                yield request

    @cached_property
    def _declarations(self) -> Visits:
        """The declared URLs. The first use warns if the spider declares none."""
        spider = self._crawl.crawler.spider
        # A file has at least one source, and to count its sources would read all of them.
        declares = self._declared.file or (isinstance(spider, DeclaringSpider) and spider.sources)
        if not declares and not self._options.is_walsh_research:
            logger.warning(
                "%s has no declared sources, so it may request nothing; "
                'to let it follow links, set WALSH_SCOPE = "any"',
                spider,
            )
        return self._visits

    def _declared_by(self, request: Request) -> _DeclaredBy | None:
        if request.method != "GET":
            return None
        visit = source_visit_of(request)
        first = first_url(request)
        if self._declarations.declares(first, source_of(request)):
            return "declared"
        if first in (visit.announced if visit else ()):
            return "announced"
        return "moved" if self._has_moved_to(first, source_of(request)) else None

    def _has_moved_to(self, url: str, source: Source | None) -> bool:
        """Return True if the state has this URL as the new one of a declared source."""
        record = self._visits.find_record(source) if source else None
        if source is None or record is None or not self._declarations.owner(source.url):
            return False
        return url in declared_urls(replace(source, url=record.address))

    def _accept(self, request: Request) -> bool:
        """Return True for a declared URL; log, record and count any other one."""
        if not self._declared_only or self._declared_by(request):
            return True
        logger.warning(
            "dropped %s: no source declares its URL; `%s mayfetch URL` shows whether a URL may be "
            "requested",
            request,
            program_name(),
        )
        self._denials.record_link(request, Denied("scope", f"no source declares {request.url}"))
        self._crawl.stats.inc_value("walsh/scope/dropped")
        return False


def _announced(response: Response) -> tuple[str, ...]:
    """Return the URLs that the page of an llms source announces as its markdown version.

    The page declares them by its Link headers. A document at such a URL cannot declare further
    ones.
    """
    visit = source_visit_of(request_of(response))
    if visit is None or visit.source is None or visit.source.kind != "llms":
        return ()
    return visit.announced or announced(links_of(response), response.url)
