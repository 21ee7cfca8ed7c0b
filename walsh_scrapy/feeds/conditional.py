"""R7: conditional requests (If-None-Match, If-Modified-Since), and 304 Not Modified."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.crawl.messages import conditions_of, set_conditions
from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.ticket import Validators, hops_of, note, rank_of
from walsh_scrapy.exceptions import AlreadyRead, NotDue, NotModified
from walsh_scrapy.feeds.feedcrawl import FeedCrawl
from walsh_scrapy.feeds.freshness import NEVER
from walsh_scrapy.feeds.sourcevisit import source_visit_of
from walsh_scrapy.policy.durations import CLOCK_SKEW
from walsh_scrapy.policy.frontier import Rank

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.feeds.sources.source import Source


class ConditionalMiddleware(Component):
    """Sends ETag and Last-Modified back, each to the one URL that it came from (order 560).

    Also enforces R8: a spider's own request for a source, outside of the visits that are due, is
    checked against the state, and ends with NotDue if the source was visited lately.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._crawler = crawl.crawler  # its spider is made later
        self._declared = FeedCrawl.of(crawl)
        self._visits = self._declared.visits
        self._stores = self._declared.stores
        self._context = crawl.context

    async def process_request(self, request: Request) -> None:
        """Set the validators of this URL, and remove those that a redirect copied along."""
        if not hops_of(request):  # else the first request of the redirect chain was checked
            self._check_due(request)
        set_conditions(request)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Raise NotModified if a page answered 304 to a conditional request."""
        is_page = rank_of(request) is Rank.TARGET
        if is_page and response.status == 304 and any(conditions_of(request).values()):
            self._crawler.stats.inc_value("walsh/conditional/not_modified")
            raise NotModified(response)
        return response

    def _check_due(self, request: Request) -> None:
        """Put the validators of earlier visits into the ticket of a request for a source.

        Raises NotDue or AlreadyRead for a request that comes before its source is due.
        """
        visit = source_visit_of(request)
        if visit and visit.source:
            self._check_source(visit.source)
            if visit.llmstxt:
                note(request, validators=self._check_llmstxt(visit.llmstxt))
                return
            note(request, validators=self._find_page_validators(visit.source))
            if request.url != visit.source.url:
                self._check_other_source(visit.source, request.url)
        elif not visit and rank_of(request) is Rank.TARGET:
            source = self._visits.owner(request.url)
            if source:
                self._check_source(source)
                if request.url != source.url:
                    self._check_llmstxt(request.url)

    def _check_source(self, source: Source) -> None:
        """Raise NotDue for a source that is not due, and whose visit has not begun."""
        if self._is_forced or self._visits.is_begun(source):
            return
        now = self._context.clock.now()
        due = self._stores.sources.due(
            source.url, source.revisit_interval(self._context.options.min_revisit), now
        )
        if due and due.at > now:
            raise NotDue(due.at)

    def _find_page_validators(self, source: Source) -> Validators | None:
        record = self._visits.find_record(source)
        # A source whose kind was changed has the validators of another representation.
        return Validators.from_record(record) if record and record.kind == source.kind else None

    def _check_other_source(self, source: Source, url: str) -> None:
        """Raise AlreadyRead if ``url`` belongs to another source that was visited lately.

        A document that both sources lead to is then fetched once. It is fetched nevertheless

        - if the other source has moved, because two sources could wait for each other;
        - if the other source is gone (410);
        - if the other source is overdue by more than ``WALSH_MIN_REVISIT``, because it is then
          probably no longer declared.
        """
        min_revisit = self._context.options.min_revisit
        now = self._context.clock.now()
        other = self._stores.sources.due(url, min_revisit, now)
        if other is None or other.record.visited_at is None or other.record.kind != source.kind:
            return
        has_moved = other.record.address != other.record.url
        is_gone = other.at >= NEVER
        is_overdue = now >= other.at + min_revisit
        if not (has_moved or is_gone or is_overdue):
            problem = other.record.detail if other.record.failures else ""
            raise AlreadyRead(url, other.record.visited_at, other.at, problem)

    def _check_llmstxt(self, url: str) -> Validators | None:
        """Raise AlreadyRead if an llms.txt need not be fetched; else return its validators.

        All sources of a host share its llms.txt, so one run fetches it once, even with ``force=1``.
        """
        record = self._stores.llmstxt.find(url)
        if record is None:
            return None
        now = self._context.clock.now()
        is_fresh = record.due_at > now and not self._is_forced
        is_plausible = record.requested_at <= now + CLOCK_SKEW
        if is_plausible and (is_fresh or record.requested_at >= self._context.started_at):
            raise AlreadyRead(url, record.requested_at, record.due_at, record.problem)
        return Validators.from_record(record)

    @property
    def _is_forced(self) -> bool:
        return self._declared.is_forced
