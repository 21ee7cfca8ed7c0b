"""R7: a visit is committed in one transaction, and only new entries are passed on as items."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from scrapy import Request, signals
from scrapy.http import Response
from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.spider import iterate_spider_output
from twisted.python.failure import Failure

from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.ticket import hops_of, repeats, request_of, set_visit
from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.feeds.feedcrawl import FeedCrawl
from walsh_scrapy.feeds.items import EntryItem, InvalidItem, check_item
from walsh_scrapy.feeds.metadata.entries import Feed, NotAFeed
from walsh_scrapy.feeds.metadata.sameentry import Known, judge, with_evident_dates
from walsh_scrapy.feeds.outcome import Outcomes
from walsh_scrapy.feeds.sourcevisit import source_of, source_visit_of
from walsh_scrapy.feeds.stores.entrywriter import EntryRecord, Written
from walsh_scrapy.policy.durations import parse_http_date, rfc3339
from walsh_scrapy.policy.entrykeys import EntryKeys, SourceKeys
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.spider import DeclaringSpider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.crawl.parts import Crawl

logger = logging.getLogger(__name__)

#: Items that are handled before the event loop gets a turn, so that a long document does not stop
#: timers and other responses.
MAX_ITEMS_AT_ONCE: Final = 250
#: The maximum number of bytes that one document adds to the state, as JSON.
MAX_STORED_BYTES: Final = 8 * 1024 * 1024
#: Invalid items of one document that are logged one by one; the others are counted.
MAX_LOGGED_ITEMS: Final = 3
#: The document of a visit in which the spider yields no Feed.
EMPTY_FEED: Final = Feed(title=None, language=None, entries=())

_as_json = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps builds an encoder per item


class FirstSeenMiddleware(Component):
    """Records the outcome of every visit of a source, including failed and denied visits.

    Entries, validators and the time of the next visit are committed in one transaction, before the
    items go to pipelines and exports. A crash therefore loses no entry, and repeats none. A visit
    ends with the document after which the spider makes no further request for the same source. The
    entries of earlier documents of the visit are committed when they come.

    Start requests are passed on only as fast as the scheduler needs them. Scrapy alone would take
    all of them before it handles the first response. For a hundred thousand sources that takes
    hundreds of megabytes, and several seconds, which would count as latency of the first host.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._context = crawl.context
        self._queue = crawl.queue
        self._outcomes = Outcomes(crawl, FeedCrawl.of(crawl))
        self._handled: WeakSet[Request] = WeakSet()  # requests whose outcome is recorded
        crawl.crawler.signals.connect(self.item_failed, signals.item_error)
        # The Walsh-Research bot promises to keep metadata only; other bots may yield any item.
        self._metadata_only = self._context.options.is_walsh_research

    def item_failed(self) -> None:
        """Count an item that a pipeline failed to handle: it is in the state, and nowhere else."""
        self._crawl.stats.inc_value("walsh/items/undelivered")

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass on start requests while the scheduler has room, with the errback of this class."""
        async for item in start:
            await self._queue.wait_for_room()
            if isinstance(item, Request) and source_visit_of(item):
                self._crawl.reader.expect_documents()
            yield self._add_errback(item)

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Commit the entries of a response; pass on requests, and items that are new."""
        request = request_of(response)
        source = source_of(request)
        feed = EMPTY_FEED
        goes_on = False
        items = DocumentItems(request, self._context, response)
        async for item in _yield_in_turns(result):
            if request in self._handled:  # output of the errback, after an HTTP error
                yield item
            elif source is not None and isinstance(item, EntryItem):
                items.add(item)
            elif isinstance(item, Feed):
                feed = item
            elif isinstance(item, Request):
                with self._outcomes.deferring(request):
                    if _continue_visit(request, item):
                        goes_on = True
                        self._outcomes.continue_visit(request, response, item)
                    yield self._add_errback(item)
            elif not self._metadata_only or items.accept(item):
                yield item
        items.log_rest()
        if source is not None and request not in self._handled:
            for item in self._commit(response, feed, items, goes_on=goes_on):
                yield item

    def process_spider_exception(
        self, response: Response, exception: Exception
    ) -> tuple[()] | None:
        """Record that a response could not be read.

        NotAFeed and RequestDeferred stop here, because they are no errors of the spider's code.
        """
        request = request_of(response)
        if source_of(request) is None or request in self._handled:
            return None
        self._handled.add(request)
        self._outcomes.record_exception(request, exception, response)
        return () if isinstance(exception, (NotAFeed, RequestDeferred)) else None

    def _add_errback(self, item: Any) -> Any:  # noqa: ANN401 - a spider may yield anything
        """Put ``_handle_failure`` before the errback of a request for a source."""
        if isinstance(item, Request) and source_of(item):
            errback = item.errback
            is_added = isinstance(errback, partial) and errback.func == self._handle_failure
            item.errback = errback if is_added else partial(self._handle_failure, errback)
        return item

    async def _handle_failure(
        self, errback: Callable[[Failure], Any] | None, failure: Failure
    ) -> AsyncIterator[Any]:
        """Call the spider's errback, pass on its output, and record the outcome of the request.

        The visit continues if the errback yields a request for the same source.
        """
        request = request_of(failure)
        goes_on = False
        items = DocumentItems(request, self._context)
        self._handled.add(request)
        try:
            async for item in self._run_errback(errback, failure):
                following = item.copy() if item is request else item  # `request` has ended
                if _continue_visit(request, following):
                    goes_on = True
                    self._outcomes.continue_visit(request, failure.value, following)
                if isinstance(item, Request) or not self._metadata_only or items.accept(item):
                    yield self._add_errback(following)
        finally:
            items.log_rest()
            if source_of(request) is None:
                logger.warning(
                    "the outcome of %s is not recorded: a middleware replaced the request, so it "
                    "no longer belongs to a source",
                    request,
                )
            elif not goes_on:
                self._outcomes.record_exception(request, failure.value)

    async def _run_errback(
        self, errback: Callable[[Failure], Any] | None, failure: Failure
    ) -> AsyncIterator[Any]:
        """Yield the output of the spider's errback, as Scrapy does.

        For a page that robots.txt denies, yield the spider's alternative to it, if there is one.
        """
        if alternative := self._find_alternative(request_of(failure), failure.value):
            yield alternative
        elif errback is not None:
            try:
                output = errback(failure)
                if isinstance(output, Failure):
                    output.raiseException()
                result = await ensure_awaitable(iterate_spider_output(output))
                async for item in as_async_generator(result):
                    yield item
            except Exception as error:
                if error is not failure.value:  # the errback handed the failure back, which is fine
                    raise

    def _commit(
        self, response: Response, feed: Feed, items: DocumentItems, *, goes_on: bool
    ) -> list[EntryItem]:
        """Commit the entries of a document; return the items of those that are new, or changed.

        Those with a changed title are returned if `WALSH_REPORT_CHANGES` is on.

        Without ``goes_on`` this ends the visit. With it only the entries are stored, so that none
        is lost. The validators are not, because they would vouch for the whole visit.
        """
        request = request_of(response)
        records = items.build_records()
        written = Written()
        left_out = feed.left_out + items.left_out
        with self._outcomes.deferring(request):
            if not goes_on:
                written = self._outcomes.record_document(
                    request, response, feed, records, left_out=left_out, repeated=items.repeated
                )
            elif records:
                written = self._outcomes.record_entries(request, records)
            new, changed = len(written.new), len(written.changed)
            self._crawl.stats.inc_value("walsh/entries/known", len(records) - new)
            self._crawl.stats.inc_value("walsh/entries/new", new)
            self._crawl.stats.inc_value("walsh/entries/changed", changed)
            self._crawl.stats.inc_value("walsh/entries/repeated", items.repeated)
        return items.report(written, has_changes=self._context.options.report_changes)

    def _find_alternative(self, request: Request, error: BaseException | None) -> Request | None:
        """Return the spider's replacement for a request that robots.txt denied, or None."""
        spider = self._crawl.crawler.spider
        is_denied = isinstance(error, Denied) and error.gate == "robots"
        if not is_denied or not isinstance(spider, DeclaringSpider):
            return None
        return spider.alternative_to(request)


class DocumentItems:
    """Collects the valid items of one document, and logs the invalid ones.

    ``response`` is the document. Its ``Date`` header shows whether the dates of the entries can be
    trusted.
    """

    def __init__(self, request: Request, context: Context, response: object = None) -> None:
        self.repeated = 0  #: entries that the document lists once more
        self.left_out = 0  #: entries beyond `MAX_STORED_BYTES`
        self._items: list[EntryItem] = []
        self._recorded: list[int] = []  # the places of the items that have a record
        self._url = request.url
        self._source = source_of(request)
        self._now = context.clock.now()
        self._run = context.run
        self._answered_at = _answered_at(response, self._now)
        self._invalid_count = 0

    def add(self, item: EntryItem) -> None:
        """Add an item of a source if it is valid; it is first seen now."""
        item.first_seen = rfc3339(self._now)
        if self._source is not None and self.accept(item):
            self._items.append(item)

    def accept(self, item: object) -> bool:
        """Return True if an item has the fields of the schema only; else log it (R6)."""
        try:
            check_item(item)
        except InvalidItem as error:
            self._invalid_count += 1
            if self._invalid_count <= MAX_LOGGED_ITEMS:
                logger.warning("dropped an item: %s", error)
            return False
        return True

    def log_rest(self) -> None:
        """Log the number of invalid items that were not logged one by one."""
        if self._invalid_count > MAX_LOGGED_ITEMS:
            more = count_of(self._invalid_count - MAX_LOGGED_ITEMS, "more item")
            logger.warning("dropped %s of %s", more, self._url)

    def build_records(self) -> list[EntryRecord]:
        """Return the records of the items, newest first, up to `MAX_STORED_BYTES` of JSON.

        An entry that is twice in the document gets one record. Items without a date are treated as
        the oldest. Also sets ``repeated`` and ``left_out``.
        """
        entries, has_doubtful_dates = with_evident_dates(
            [self._keys_of(item) for item in self._items], self._answered_at
        )
        judgement = judge(entries, Known())
        places = [
            place
            for place, verdict in enumerate(judgement.verdicts)
            if verdict.outcome != "repeated"
        ]
        self.repeated = len(entries) - len(places)
        records: list[EntryRecord] = []
        size = 0
        for place in sorted(places, key=self._date, reverse=True):
            item = self._items[place]
            record = EntryRecord(
                keys=entries[place],
                is_own=item.is_own,
                has_doubtful_dates=has_doubtful_dates,
                ambiguous=judgement.ambiguous,
                source=self._source.url if self._source else item.source,
                kind=item.kind,
                first_seen=self._now,
                item=_as_json(item.to_stored()),
                run=self._run,
            )
            size += len(record.item.encode())
            if size > MAX_STORED_BYTES:  # a long author name in the feed is repeated in every entry
                break
            records.append(record)
            self._recorded.append(place)
        self.left_out = len(places) - len(records)
        return records

    def report(self, written: Written, *, has_changes: bool) -> list[EntryItem]:
        """Return the items that are new, in document order, each with the key of its row.

        With ``has_changes`` also return those with a changed title.
        """
        places = [self._recorded[record] for record in written.new]
        for record, key in written.new.items():
            self._items[self._recorded[record]].key = key
        for record, (key, first_seen) in written.changed.items() if has_changes else ():
            item = self._items[self._recorded[record]]
            item.key, item.first_seen = key, rfc3339(first_seen)
            item.changed_at = rfc3339(self._now)
            places.append(self._recorded[record])
        return [self._items[place] for place in sorted(places)]

    def _date(self, place: int) -> str:
        return self._items[place].published or self._items[place].updated or ""

    def _keys_of(self, item: EntryItem) -> EntryKeys:
        """Return the keys of an item, which a spider of a project may have made itself."""
        keys = item.keys
        if keys is None:
            keys = SourceKeys(item.source).of(item.url, item.id, item.title)
        return keys._replace(date=item.published)


def _answered_at(response: object, now: float) -> float:
    """Return the ``Date`` of a response, or ``now`` if it has none, in epoch seconds."""
    header = response.headers.get("Date") if isinstance(response, Response) else None
    moment = datetime.fromtimestamp(now, UTC)
    date = parse_http_date(header.decode("latin-1"), moment) if header else None
    return date.timestamp() if date else now


def _continue_visit(request: Request, following: object) -> bool:
    """Return True if the visit of ``request`` goes on with ``following``, output of the spider.

    A copy of the request itself, which the spider yields to try again, joins the visit here. A copy
    of a redirected request does not, because its URL is not declared.
    """
    visit = source_visit_of(request)
    if visit is None or visit.source is None or not isinstance(following, Request):
        return False
    if repeats(request, following) and not hops_of(request):
        set_visit(following, visit)
    return source_of(following) == visit.source


async def _yield_in_turns(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Yield the items, and give the event loop a turn after every `MAX_ITEMS_AT_ONCE` items."""
    number = 0
    async for item in items:
        yield item
        number += 1
        if number % MAX_ITEMS_AT_ONCE == 0:
            await asyncio.sleep(0)
