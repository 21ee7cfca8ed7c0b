"""R7: conditional requests, and the response 304 Not Modified."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.messages import conditions_of
from walsh_scrapy.crawl.ticket import Validators, hops_of, note, rank_of, visit_of
from walsh_scrapy.exceptions import AlreadyRead, NotDue, NotModified
from walsh_scrapy.policy.freshness import CLOCK_SKEW, NEVER
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.spider import DeclaringSpider

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.crawl.crawl import Crawl
    from walsh_scrapy.sources.source import Source


class ConditionalMiddleware(Component):
    """Sends validators back to the one URL that they came from (order 560, decision 17).

    A request that the spider made by itself, for no visit that was due, is checked by the present
    state: a source that was just visited is not due (R8).
    """

    def __init__(self, crawl: Crawl) -> None:
        self._crawler = crawl.crawler  # its spider is made later
        self._visits = crawl.visits
        self._context = crawl.context

    async def process_request(self, request: Request) -> None:
        """Send the validators of this URL, and none that a redirect carried along."""
        visit, url = visit_of(request), request.url
        if hops_of(request):
            pass  # its first request was checked
        elif visit and visit.source:
            note(request, validators=self._known(visit.source, visit.llmstxt))
            if visit.llmstxt is None and url != visit.source.url:
                self._check_other(visit.source, url)
        elif not visit and rank_of(request) is Rank.TARGET and (source := self._visits.owner(url)):
            self._known(source, None if url == source.url else url)
        for name, value in conditions_of(request).items():
            request.headers.pop(name, None)
            if value is not None:
                request.headers[name] = value

    async def process_response(self, request: Request, response: Response) -> Response:
        """Raise NotModified for a 304 to a page, if the request had validators."""
        is_page = rank_of(request) is Rank.TARGET
        if is_page and response.status == 304 and any(conditions_of(request).values()):
            self._crawler.stats.inc_value("walsh/conditional/not_modified")
            raise NotModified(response)
        return response

    def _known(self, source: Source, llmstxt: str | None) -> Validators | None:
        """Return the validators of a page, or of an llms.txt, from earlier visits.

        Raises NotDue or AlreadyRead for a request that a spider makes by itself before it is due.
        """
        if not self._visits.is_begun(source):
            least = source.revisit_interval(self._context.options.min_revisit)
            now = self._context.clock.now()
            found = self._context.state.sources.due(source.url, least, now)
            if found and found.at > now and not self._is_forced():
                raise NotDue(found.at)
        return self._of_llmstxt(llmstxt) if llmstxt else self._of_page(source)

    def _of_page(self, source: Source) -> Validators | None:
        """Return the validators of the last visit."""
        record = self._visits.find_record(source)
        # Those of a feed are not those of the same page as markdown.
        return Validators.from_record(record) if record and record.kind == source.kind else None

    def _check_other(self, source: Source, url: str) -> None:
        """Raise AlreadyRead if ``url`` is another source's, which was fetched lately.

        So a document that both declare is fetched once. Not if that source has moved itself,
        because two sources could then wait for each other; nor if it is gone (410), or overdue by
        more than ``WALSH_MIN_REVISIT``, as it then probably is not declared any more.
        """
        least, now = self._context.options.min_revisit, self._context.clock.now()
        other = self._context.state.sources.due(url, least, now)
        if other is None or other.record.visited_at is None or other.record.kind != source.kind:
            return
        has_moved = other.record.address != other.record.url
        if not has_moved and now < other.at + least < NEVER:
            problem = other.record.detail if other.record.failures else ""
            raise AlreadyRead(url, other.record.visited_at, other.at, problem)

    def _of_llmstxt(self, url: str) -> Validators | None:
        """Return the validators of an llms.txt; raise AlreadyRead if it was fetched already.

        One request in a run is enough for all sources of its host, even with ``force``.
        """
        record = self._context.state.llmstxt.find(url)
        if record is None:
            return None
        now = self._context.clock.now()
        is_fresh = record.due_at > now and not self._is_forced()
        is_past = record.requested_at <= now + CLOCK_SKEW
        if is_past and (is_fresh or record.requested_at >= self._context.started_at):
            raise AlreadyRead(url, record.requested_at, record.due_at, record.problem)
        return Validators.from_record(record)

    def _is_forced(self) -> bool:
        spider = self._crawler.spider
        return isinstance(spider, DeclaringSpider) and spider.force
