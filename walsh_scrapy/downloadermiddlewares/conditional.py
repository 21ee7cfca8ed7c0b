"""R7: conditional requests, and the response 304 Not Modified."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.messages import conditions_of
from walsh_scrapy.crawl.targets import Targets
from walsh_scrapy.crawl.ticket import Validators, hops_of, mark, rank_of, visit_of
from walsh_scrapy.exceptions import AlreadyRead, NotDue, NotModified
from walsh_scrapy.policy.freshness import CLOCK_SKEW
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.spider import DeclaringSpider

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.sourcerecord import SourceRecord


class ConditionalMiddleware:
    """Sends validators back to the one URL that they came from (order 560, decision 17).

    A request of a declared URL that the spider made without a visit is judged by the record as it
    is: a source that was just visited is not due (R8).
    """

    def __init__(self, crawler: Crawler, context: Context) -> None:
        self._crawler = crawler  # its spider is made later
        self._context = context

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        return cls(crawler, Crawl.of(crawler).context)

    async def process_request(self, request: Request) -> None:
        """Send the validators of this URL, and none that a redirect carried along."""
        visit = visit_of(request)
        if visit and visit.source and not hops_of(request):
            record = self._context.state.sources.find(visit.source.url)
            mark(request, validators=self._known(visit.source, record, visit.llmstxt))
            if visit.llmstxt is None and request.url != visit.source.url:
                self._check_other(visit.source, request.url)
        elif visit is None and not hops_of(request) and rank_of(request) is Rank.TARGET:
            self._check_declared(request.url)
        for name, value in conditions_of(request).items():
            request.headers.pop(name, None)
            if value is not None:
                request.headers[name] = value

    async def process_response(self, request: Request, response: Response) -> Response:
        """Raise NotModified for a 304, if the request had validators."""
        if response.status == 304 and any(conditions_of(request).values()):
            self._crawler.stats.inc_value("walsh/conditional/not_modified")
            raise NotModified(response)
        return response

    @cached_property
    def _targets(self) -> Targets:
        spider = self._crawler.spider
        return Targets(spider.sources if isinstance(spider, DeclaringSpider) else ())

    def _check_declared(self, url: str) -> None:
        """Raise NotDue or AlreadyRead if ``url`` is declared, and was read before it is due."""
        if source := self._targets.owner(url):
            record = self._context.state.sources.find(source.url)
            self._known(source, record, None if url == source.url else url)

    def _known(
        self, source: Source, record: SourceRecord | None, llmstxt: str | None
    ) -> Validators | None:
        """Return the validators of a page, or of an llms.txt, from earlier visits."""
        of_page = self._of_page(source, record)
        return self._of_llmstxt(llmstxt) if llmstxt else of_page

    def _of_page(self, source: Source, record: SourceRecord | None) -> Validators | None:
        """Return the validators of the last visit; raise NotDue if it was just made."""
        if record is None:
            return None
        now, options = self._context.clock.now(), self._context.options
        due_at = record.due(source.revisit_interval(options.min_revisit), now).at
        if due_at > now and not self._is_forced():
            raise NotDue(due_at)
        if record.validator_url is None or record.kind != source.kind:
            return None  # validators of a feed are not those of the same page as markdown
        return Validators(record.validator_url, record.etag, record.last_modified)

    def _check_other(self, source: Source, url: str) -> None:
        """Raise AlreadyRead if ``url`` is another source's, which was fetched lately."""
        other = self._context.state.sources.find(url)
        if other is None or other.fetched_at is None:
            return
        least, now = self._context.options.min_revisit, self._context.clock.now()
        if other.covers_moved_source(source.kind, least, now):
            trouble = other.detail if other.failures else ""
            raise AlreadyRead(url, other.fetched_at, other.due(least, now).at, trouble)

    def _of_llmstxt(self, url: str) -> Validators | None:
        """Return the validators of an llms.txt; raise AlreadyRead if it was fetched already.

        One request in a run is enough for all sources of its host, also with ``force``.
        """
        record = self._context.state.llmstxt.find(url)
        if record is None:
            return None
        now = self._context.clock.now()
        is_fresh = record.due_at > now and not self._is_forced()
        is_past = record.asked_at <= now + CLOCK_SKEW
        if is_past and (is_fresh or record.asked_at >= self._context.started_at):
            raise AlreadyRead(url, record.asked_at, record.due_at, record.trouble)
        if record.validator_url is None:
            return None
        return Validators(record.validator_url, record.etag, record.last_modified)

    def _is_forced(self) -> bool:
        spider = self._crawler.spider
        return isinstance(spider, DeclaringSpider) and spider.force
