"""R7: what a response gave is written in one transaction, and only new entries go on."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import Request
from scrapy.spidermiddlewares.httperror import HttpError

from walsh_scrapy.exceptions import (
    AlreadyRead,
    BadAnswer,
    Denied,
    NotDue,
    NotModified,
    RequestDeferred,
)
from walsh_scrapy.items import EntryItem, InvalidItem, check
from walsh_scrapy.metadata.feeds import Feed, NotAFeed
from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.context import Crawl
from walsh_scrapy.runtime.failures import reason_of
from walsh_scrapy.state.entries import EntryRecord
from walsh_scrapy.visits.outcome import Visits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

    from walsh_scrapy.sources import Source

logger = logging.getLogger(__name__)


#: What a spider's document says of itself, if the spider does not hand it on.
NOTHING_SAID = Feed(title=None, language=None, entries=())

_as_json = json.JSONEncoder(ensure_ascii=False).encode  # made once: json.dumps makes one an item


class FirstSeenMiddleware:
    """Brings every request for a source to an end in the record, whatever came of it.

    Entries, validators and the time of the next visit are committed together, before an item goes
    to pipelines and exports: the state is the record, an export a view of it (decisions 17, 18).
    A source ends once: with the document that a spider does not follow up with another request.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._visits = Visits(crawler)
        self._over: WeakSet[Request] = WeakSet()
        # Under the contract's identity no item leaves that is more than metadata (decision 23).
        self._closed = self._crawl.options.is_walsh_research

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware for one crawl."""
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """See to it that no request of a source ends without a word."""
        async for item in start:
            yield self._watched(item)

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Commit what a response gave; hand on requests, and items never seen before."""
        request = meta.asked_by(response)
        source = meta.source(request)
        feed, found, goes_on = NOTHING_SAID, list[EntryItem](), False
        async for item in result:
            if source is not None and isinstance(item, EntryItem):
                found.append(item)
            elif isinstance(item, Feed):
                feed = item
            elif isinstance(item, Request):
                if source is not None and meta.source(item) == source:
                    goes_on = True
                    self._visits.goes_on(source, request, response, item)
                yield self._watched(item)
            elif not self._closed or _is_valid(item):
                yield item
        # What an errback returns comes by here as well, and so does an end in an error.
        if source is not None and not goes_on and request not in self._over:
            for item in self._commit(source, response, feed, found):
                yield item

    def process_spider_exception(
        self, response: Response, exception: Exception
    ) -> tuple[()] | None:
        """Record that a response could not be read; what is no feed is no error of the spider."""
        request = meta.asked_by(response)
        source = meta.source(request)
        if source is None or request in self._over:
            return None
        self._over.add(request)
        self._visits.failed(source, request, reason_of(exception, response.url), response)
        return () if isinstance(exception, NotAFeed) else None

    def _watched(self, item: Any) -> Any:  # noqa: ANN401 - requests, and whatever else
        if isinstance(item, Request) and meta.source(item):
            item.errback = self._ended
        return item

    def _commit(
        self, source: Source, response: Response, feed: Feed, found: list[EntryItem]
    ) -> list[EntryItem]:
        now = self._crawl.now()
        seen = rfc3339(now)
        valid: dict[str, EntryItem] = {}
        for item in found:
            item.first_seen = seen
            if _is_valid(item):
                valid.setdefault(item.key, item)  # written twice in one document, it is one entry
        records = [_record(item, source.url, now) for item in valid.values()]
        try:
            new = self._visits.fetched(source, meta.asked_by(response), response, feed, records)
        except RequestDeferred as error:  # the state failed
            self._deferred(source, error)
            return []
        self._crawler.stats.inc_value("walsh/entries/known", len(valid) - len(new))
        self._crawler.stats.inc_value("walsh/entries/new", len(new))
        return [item for key, item in valid.items() if key in new]

    def _ended(self, failure: Failure) -> list[Request]:
        """Record what became of a request that brought no page, unless there is another to ask."""
        request, error = meta.asked_by(failure), failure.value
        source = meta.source(request)
        if source is None:
            return []
        if other := self._instead(request, error):
            other.meta.update(
                (name, request.meta[name])
                for name in (meta.PASSED, meta.ANNOUNCED, meta.MOVE, meta.GONE)
                if name in request.meta
            )
            return [self._watched(other)]
        self._over.add(request)
        try:
            self._end(source, request, error)
        except RequestDeferred as deferred:
            self._deferred(source, deferred)
        return []

    def _end(self, source: Source, request: Request, error: BaseException | None) -> None:
        if isinstance(error, NotModified):
            self._visits.unchanged(source, request, error.response)
        elif isinstance(error, AlreadyRead):
            self._visits.shared(source, request, error)
        elif isinstance(error, Denied):
            self._visits.denied(source, request, error)
        elif isinstance(error, NotDue):
            self._crawler.stats.inc_value("walsh/sources/not_due")
            self._crawler.stats.inc_value("walsh/sources/due", -1)
            self._crawler.stats.min_value("walsh/sources/next_due", error.due_at)
        elif isinstance(error, RequestDeferred):
            raise error
        else:
            answer = error.response if isinstance(error, HttpError | BadAnswer) else None
            self._visits.failed(source, request, reason_of(error, request.url), answer)

    def _instead(self, request: Request, error: BaseException | None) -> Request | None:
        """Return what a spider asks for in the place of a page that robots.txt denies."""
        if not (isinstance(error, Denied) and error.gate == "robots"):
            return None
        instead: Callable[[Request], Request | None] | None
        instead = getattr(self._crawler.spider, "instead_of", None)
        return instead(request) if instead else None

    def _deferred(self, source: Source, error: RequestDeferred) -> None:
        """Leave a source as due as it was: the next run goes on with it (decision 7)."""
        logger.info("%s is left to a later run: %s", source.url, error)
        self._crawler.stats.inc_value("walsh/sources/deferred")
        self._crawler.stats.min_value("walsh/sources/deferred_until", error.until)


def _record(item: EntryItem, source_url: str, now: float) -> EntryRecord:
    return EntryRecord(
        key=item.key,
        full_key=item.full_key,
        page_key=item.page_key,
        source=source_url,
        kind=item.kind,
        first_seen=now,
        item=_as_json(item.exported()),
    )


def _is_valid(item: object) -> bool:
    try:
        check(item)
    except InvalidItem as error:
        logger.warning("an item is left out: %s", error)
        return False
    return True
