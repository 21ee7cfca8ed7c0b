"""R7: a visit is committed in one transaction, and only new entries are passed on."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from scrapy import Request
from scrapy.http import Response
from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.spider import iterate_spider_output
from twisted.python.failure import Failure

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.outcome import Outcomes
from walsh_scrapy.crawl.ticket import (
    hops_of,
    repeats,
    request_of,
    set_visit,
    source_of,
    visit_of,
)
from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.items import EntryItem, InvalidItem, check
from walsh_scrapy.metadata.entries import (
    DocumentKeys,
    EntryKeys,
    Feed,
    NotAFeed,
    distinct_entries,
    document_keys,
)
from walsh_scrapy.policy.durations import parse_http_date, rfc3339
from walsh_scrapy.policy.wording import and_more
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.state.entries import EntryRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.crawl.crawl import Crawl

logger = logging.getLogger(__name__)

#: Items that are handled before timers and answers have their turn (decision 34).
MOST_AT_ONCE: Final = 250
#: Bytes that one document may add to the state, as JSON (decision 34).
MOST_BYTES: Final = 8 * 1024 * 1024
#: Refused items of one document that are logged; further ones are counted.
MOST_LOGGED: Final = 3
#: The document of a visit if the spider does not yield it.
NOTHING_SAID: Final = Feed(title=None, language=None, entries=())

_as_json = json.JSONEncoder(ensure_ascii=False).encode  # made once: json.dumps makes one an item


class FirstSeenMiddleware(Component):
    """Records the outcome of every visit of a source, failed and denied ones too.

    Entries, validators and the time of the next visit are committed together, before an item goes
    to pipelines and exports: an export is a view of the state (decisions 17, 18). A visit ends
    once: with the document after which the spider makes no further request for it. The entries of
    the documents before that are committed as they come.

    Start requests enter while the scheduler takes more. Scrapy takes all of a spider at once, and
    handles no response meanwhile. A hundred thousand sources would take hundreds of megabytes, and
    the first exchange would seem to last for seconds.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._context = crawl.context
        self._queue = crawl.queue
        self._outcomes = Outcomes(crawl.stats, crawl.problems, crawl.visits, crawl.engine)
        self._over: WeakSet[Request] = WeakSet()
        # Under the contract's identity only metadata may leave (decision 23).
        self._closed = self._context.options.is_walsh_research

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass the start requests on, one by one; every visit of a source has our errback."""
        async for item in start:
            await self._queue.wait_for_room()
            if isinstance(item, Request) and visit_of(item):
                self._crawl.reader.expect_documents()
            yield self._watched(item)

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Commit a response's entries; pass on requests, and items that were never seen before."""
        request = request_of(response)
        source = source_of(request)
        feed, goes_on = NOTHING_SAID, False
        items = DocumentItems(request, self._context, response)
        async for item in _in_turns(result):
            if request in self._over:  # its errback gave this, after an HTTP error
                yield item
            elif source is not None and isinstance(item, EntryItem):
                items.add(item)
            elif isinstance(item, Feed):
                feed = item
            elif isinstance(item, Request):
                is_same = _goes_on(request, item)
                goes_on = goes_on or is_same
                with self._outcomes.deferring(request):
                    if is_same:
                        self._outcomes.continue_visit(request, response, item)
                    yield self._watched(item)
            elif not self._closed or items.passes(item):
                yield item
        items.log_rest()
        if source is not None and request not in self._over:
            for item in self._commit(response, feed, items, goes_on=goes_on):
                yield item

    def process_spider_exception(
        self, response: Response, exception: Exception
    ) -> tuple[()] | None:
        """Record that a response could not be read; NotAFeed is not an error of the spider."""
        request = request_of(response)
        if source_of(request) is None or request in self._over:
            return None
        self._over.add(request)
        self._outcomes.record_exception(request, exception, response)
        return () if isinstance(exception, (NotAFeed, RequestDeferred)) else None

    def _watched(self, item: Any) -> Any:  # noqa: ANN401 - a spider may yield anything
        if isinstance(item, Request) and source_of(item):
            errback = item.errback  # that of a copy may be ours already
            is_ours = isinstance(errback, partial) and errback.func == self._failed
            item.errback = errback if is_ours else partial(self._failed, errback)
        return item

    async def _failed(
        self, errback: Callable[[Failure], Any] | None, failure: Failure
    ) -> AsyncIterator[Any]:
        """Record the outcome of a failed request, after the spider's errback.

        The visit continues if the spider requests another document instead.
        """
        request, goes_on = request_of(failure), False
        found = DocumentItems(request, self._context)
        self._over.add(request)
        try:
            async for item in self._errback_output(errback, failure):
                following = item.copy() if item is request else item  # that one has ended
                if _goes_on(request, following):
                    goes_on = True
                    self._outcomes.continue_visit(request, failure.value, following)
                if isinstance(item, Request) or not self._closed or found.passes(item):
                    yield self._watched(following)
        finally:
            found.log_rest()
            if source_of(request) is None:
                logger.warning("%s is for no source any more: a middleware changed it", request)
            elif not goes_on:
                self._outcomes.record_exception(request, failure.value)

    async def _errback_output(
        self, errback: Callable[[Failure], Any] | None, failure: Failure
    ) -> AsyncIterator[Any]:
        if other := self._alternative(request_of(failure), failure.value):
            yield other
        elif errback is not None:
            try:
                output = errback(failure)
                if isinstance(output, Failure):
                    output.raiseException()
                found = await ensure_awaitable(iterate_spider_output(output))
                async for item in as_async_generator(found):
                    yield item
            except Exception as error:
                if error is not failure.value:  # else it is handed back, and the state has it
                    raise

    def _commit(
        self, response: Response, feed: Feed, items: DocumentItems, *, goes_on: bool
    ) -> list[EntryItem]:
        """Commit the entries of a document, and the visit unless it goes on; return the new ones.

        Entries of a document after which the visit goes on are kept at once, so that none is lost.
        Its validators are not: they would stand for the whole visit.
        """
        request = request_of(response)
        records = items.records()
        new: frozenset[str] = frozenset()
        left_out = feed.left_out + len(items.valid) - len(records)
        with self._outcomes.deferring(request):
            if not goes_on:
                new = self._outcomes.record_document(
                    request, response, feed, records, left_out=left_out
                )
            elif records:
                new = self._outcomes.record_entries(request, records)
            self._crawl.stats.inc_value("walsh/entries/known", len(records) - len(new))
            self._crawl.stats.inc_value("walsh/entries/new", len(new))
        return [item for key, item in items.valid.items() if key in new]

    def _alternative(self, request: Request, error: BaseException | None) -> Request | None:
        """Return the spider's request instead of one for a page that robots.txt denies."""
        spider = self._crawl.crawler.spider
        is_denied = isinstance(error, Denied) and error.gate == "robots"
        if not is_denied or not isinstance(spider, DeclaringSpider):
            return None
        return spider.alternative_to(request)


class DocumentItems:
    """The items of one document: those that are refused, and those that are kept.

    ``response`` is the document. Its ``Date`` shows if the dates of its entries are evidence.
    """

    def __init__(self, request: Request, context: Context, response: object = None) -> None:
        self.valid: dict[str, EntryItem] = {}  #: by key
        self._items: list[EntryItem] = []
        self._url = request.url
        self._source = source_of(request)
        self._now = context.clock.now()
        self._run = context.run
        self._answered_at = _answered_at(response, self._now)
        self._refused = 0

    def add(self, item: EntryItem) -> None:
        """Keep an item of a source, first seen now, if it may be kept."""
        item.first_seen = rfc3339(self._now)
        if self._source is not None and self.passes(item):
            self._items.append(item)

    def passes(self, item: object) -> bool:
        """Return True if an item may be kept (R6, decision 23); log the first that may not."""
        try:
            check(item)
        except InvalidItem as error:
            self._refused += 1
            if self._refused <= MOST_LOGGED:
                logger.warning("an item is left out: %s", error)
            return False
        return True

    def log_rest(self) -> None:
        """Log the number of refused items in addition to the logged ones."""
        if self._refused > MOST_LOGGED:
            more = and_more(self._refused - MOST_LOGGED)
            logger.warning("items of %s are left out: %s", self._url, more)

    def records(self) -> list[EntryRecord]:
        """Return the records of the items, newest first, as far as they fit in `MOST_BYTES`.

        An entry that is twice in the document has one record. Items without a date count as the
        oldest.
        """
        document = document_keys([_keys_of(item) for item in self._items], self._answered_at)
        places = distinct_entries(document.entries)
        self.valid = {document.entries[place].key: self._items[place] for place in places}
        records: list[EntryRecord] = []
        size = 0
        for place in sorted(places, key=self._date, reverse=True):
            record = self._record(self._items[place], document.entries[place], document)
            size += len(record.item.encode())
            if size > MOST_BYTES:  # names that all entries share can make any number of bytes
                break
            records.append(record)
        return records

    def _date(self, place: int) -> str:
        return self._items[place].published or self._items[place].updated or ""

    def _record(self, item: EntryItem, keys: EntryKeys, document: DocumentKeys) -> EntryRecord:
        return EntryRecord(
            key=keys.key,
            page_key=keys.page_key,
            title_key=keys.title_key,
            evident_date=keys.date,
            is_own=item.is_own,
            is_page_repeated=keys.page_key in document.repeated_pages,
            has_doubtful_dates=document.has_doubtful_dates,
            source=self._source.url if self._source else item.source,
            kind=item.kind,
            first_seen=self._now,
            item=_as_json(item.to_dict()),
            run=self._run,
        )


def _keys_of(item: EntryItem) -> EntryKeys:
    return EntryKeys(item.page_key, item.key, item.title_key, item.published)


def _answered_at(response: object, now: float) -> float:
    """Return the moment of a response by its ``Date`` header, or ``now``, in epoch seconds."""
    header = response.headers.get("Date") if isinstance(response, Response) else None
    moment = datetime.fromtimestamp(now, UTC)
    date = parse_http_date(header.decode("latin-1"), moment) if header else None
    return date.timestamp() if date else now


def _goes_on(request: Request, following: object) -> bool:
    """Return True if a visit goes on with this request of the spider.

    That may be a copy of the request itself, to send it again. A copy after a redirect is not
    declared.
    """
    visit = visit_of(request)
    if visit is None or visit.source is None or not isinstance(following, Request):
        return False
    if repeats(request, following) and not hops_of(request):
        set_visit(following, visit)
    return source_of(following) == visit.source


async def _in_turns(items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Yield the items; timers and answers have their turn in between."""
    number = 0
    async for item in items:
        yield item
        number += 1
        if number % MOST_AT_ONCE == 0:
            await asyncio.sleep(0)
