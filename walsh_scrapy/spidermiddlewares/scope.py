"""R6: a crawl requests only its declared targets, and follows no links."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from scrapy import Request

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.queue import RequestPreparer
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.crawl.ticket import (
    first_url,
    links_of,
    note_answer,
    rank_of,
    request_of,
    resolved,
    set_visit,
    source_of,
    visit_of,
)
from walsh_scrapy.exceptions import Denied, StateUnavailable
from walsh_scrapy.metadata.alternates import announced, is_dump
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.programname import program_name
from walsh_scrapy.sources.source import declared_urls
from walsh_scrapy.spider import DeclaringSpider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.http import Response

    from walsh_scrapy.crawl.crawl import Crawl
    from walsh_scrapy.crawl.visits import Visits
    from walsh_scrapy.sources.source import Source

logger = logging.getLogger(__name__)

#: The place that declares a target: the sources file, the page of its source, or where that has
#: moved.
_DeclaredBy = Literal["declared", "announced", "moved"]


class ScopeMiddleware(Component, RequestPreparer):
    """Drops every request for a URL that no source of the spider declares (decision 16).

    As a spider middleware it drops them with a log line. As a downloader middleware it denies
    requests that did not come from the spider (``engine.crawl``, ``engine.download_async``). A bot
    with its own identity may follow links, with ``WALSH_SCOPE = "any"`` (decision 24).
    """

    def __init__(self, crawl: Crawl) -> None:
        self._crawler = crawl.crawler  # its spider is made later
        self._visits = crawl.visits
        self._denials = crawl.denials
        self._options = crawl.context.options
        self._declared_only = self._options.scope == "declared"
        crawl.queue.register_preparer(Gate.SCOPE, self)

    async def process_request(self, request: Request) -> None:
        """Deny an undeclared target; a redirect of a declared target is part of it.

        The request log names the place that declares a target, if that is not the sources file.
        """
        if reason := self._reason_against(request):
            raise self._denials.deny(request, "scope", reason)

    async def prepare(self, request: Request) -> None:
        """Raise Denied for a request that will be denied, so that its host gets no request."""
        if reason := self._reason_against(request):
            raise Denied("scope", reason)

    def _reason_against(self, request: Request) -> str | None:
        """Return why a request is denied, or None."""
        if not self._declared_only:
            return None
        if rank_of(request) is Rank.TARGET:
            declared_by = self._declared_by(request)
            if declared_by is None:
                return f"{request.url} is not a declared target (R6)"
            if declared_by != "declared":
                note_answer(request, "scope", declared_by)
        if is_dump(request.url):
            return f"{request.url} holds the pages themselves, not a list of them (R6, R9)"
        return None

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass on the requests for declared targets."""
        async for item in start:
            if not isinstance(item, Request):
                yield item
            elif self._lets_pass(request := resolved(item) or item):
                yield request

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Pass on items, and requests for declared targets."""
        async for item in result:
            if not isinstance(item, Request):
                yield item
                continue
            request = resolved(item) or item
            if (visit := visit_of(request)) and visit.source:
                set_visit(request, replace(visit, announced=_announced(response)))
            if self._lets_pass(request):
                yield request

    @cached_property
    def _targets(self) -> Visits:
        spider = self._crawler.spider
        sources = spider.sources if isinstance(spider, DeclaringSpider) else ()
        if not self._options.is_walsh_research and not sources:
            logger.warning(
                "%s has no declared sources, so it may request nothing; "
                'to let it follow links, set WALSH_SCOPE = "any"',
                spider,
            )
        return self._visits

    def _declared_by(self, request: Request) -> _DeclaredBy | None:
        if request.method != "GET":
            return None
        visit = visit_of(request)
        first = first_url(request)
        if self._targets.declares(first, source_of(request)):
            return "declared"
        if first in (visit.announced if visit else ()):
            return "announced"
        return "moved" if self._is_where_it_moved(first, source_of(request)) else None

    def _is_where_it_moved(self, url: str, source: Source | None) -> bool:
        """Return True if the state knows that a declared source moved to this URL."""
        record = self._visits.find_record(source) if source else None
        if source is None or record is None or not self._targets.owner(source.url):
            return False
        return url in declared_urls(replace(source, url=record.address))

    def _lets_pass(self, request: Request) -> bool:
        if not self._declared_only or self._declared_by(request):
            return True
        logger.warning(
            "%s is dropped: it is not a declared target (R6); `%s mayfetch URL` shows whether "
            "a URL may be requested",
            request,
            program_name(),
        )
        reason = f"{request.url} is not a declared target (R6)"
        try:
            self._denials.write(request, Denied("scope", reason))
        except StateUnavailable as error:  # the rest of the spider's output is not lost for that
            logger.debug("the denial is not recorded: %s", error)
        self._crawler.stats.inc_value("walsh/scope/dropped")
        return False


def _announced(response: Response) -> tuple[str, ...]:
    """Return the URLs that a source's page announces as markdown, which it declares by that.

    URLs that an announced document announces are not declared.
    """
    visit = visit_of(request_of(response))
    if visit is None or visit.source is None or visit.source.kind != "llms":
        return ()
    return visit.announced or announced(links_of(response), response.url)
