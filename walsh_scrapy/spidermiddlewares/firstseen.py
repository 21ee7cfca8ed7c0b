"""R7: what a response gave is written in one transaction, and only new entries go on."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import Request

from walsh_scrapy import meta
from walsh_scrapy.crawl import Crawl
from walsh_scrapy.exceptions import Denied, NotDue, NotModified, RequestDeferred, reason_of
from walsh_scrapy.items import EntryItem, InvalidItem, check
from walsh_scrapy.metadata.feeds import NotAFeed
from walsh_scrapy.policy.freshness import due_again
from walsh_scrapy.state.sources import EntryRecord, SourceRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure

    from walsh_scrapy.sources import Source

logger = logging.getLogger(__name__)


class FirstSeenMiddleware:
    """Brings every request for a source to an end in the record, whatever came of it.

    Entries, validators and the time of the next visit are committed together, before an item goes
    to pipelines and exports: the state is the record, an export a view of it (rulings 17, 18).
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)
        self._over: WeakSet[Request] = WeakSet()
        # Under the contract's identity no item leaves that is more than metadata (ruling 23).
        self._closed = self._crawl.options.is_walsh_research

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware for one crawl."""
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """See to it that no request of a source ends without a word."""
        async for item in start:
            if isinstance(item, Request) and meta.source(item):
                item.errback = self._ended
            yield item

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Commit what a response gave; hand on requests, and items never seen before."""
        request = meta.asked_by(response)
        source = meta.source(request)
        found: list[EntryItem] = []
        async for item in result:
            if source is not None and isinstance(item, EntryItem):
                found.append(item)
            elif isinstance(item, Request) or not self._closed or _is_valid(item):
                yield item
        # What an errback returns comes by here as well, and so does an end in an error.
        if source is not None and request not in self._over:
            for item in self._commit(source, response, found):
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
        self._failed(source, _unwanted(request) or reason_of(exception))
        return () if isinstance(exception, NotAFeed) else None

    def _commit(
        self, source: Source, response: Response, found: list[EntryItem]
    ) -> list[EntryItem]:
        now = self._crawl.now()
        seen = datetime.fromtimestamp(int(now), UTC).isoformat().replace("+00:00", "Z")
        valid: dict[str, EntryItem] = {}
        for item in found:
            item.first_seen = seen
            if _is_valid(item):
                valid.setdefault(item.key, item)  # written twice in one document, it is one entry
        validators = meta.Validators.of(response)
        new = self._crawl.state.sources.commit(
            SourceRecord(
                url=source.url,
                kind=source.kind,
                fetched_at=now,
                due_at=self._due(source, now),
                outcome="fetched",
                validator_url=validators.url,
                etag=validators.etag,
                last_modified=validators.last_modified,
            ),
            [_record(item, source.url, now) for item in valid.values()],
        )
        self._count("fetched")
        self._crawler.stats.inc_value("walsh/entries/known", len(valid) - len(new))
        self._crawler.stats.inc_value("walsh/entries/new", len(new))
        return [item for key, item in valid.items() if key in new]

    def _ended(self, failure: Failure) -> None:
        """Record what became of a request that brought no page."""
        request, error = meta.asked_by(failure), failure.value
        source = meta.source(request)
        if source is None:
            return
        self._over.add(request)
        if isinstance(error, NotModified):
            self._unchanged(source, error.response)
        elif isinstance(error, Denied):
            self._denied(source, error)
        elif isinstance(error, NotDue):
            self._count("not_due")
            self._crawler.stats.inc_value("walsh/sources/due", -1)
            self._crawler.stats.min_value("walsh/sources/next_due", error.due_at)
        elif isinstance(error, RequestDeferred):
            self._deferred(source, error)
        else:
            self._failed(source, reason_of(error))

    def _unchanged(self, source: Source, response: Response) -> None:
        known = self._known(source)
        given = meta.Validators.of(response)
        record = replace(
            known,
            outcome="unchanged",
            detail="",
            failures=0,
            etag=given.etag or known.etag,
            last_modified=given.last_modified or known.last_modified,
        )
        self._write(record, source)
        self._count("unchanged")

    def _denied(self, source: Source, error: Denied) -> None:
        logger.info("%s is denied by %s: %s", source.url, error.gate, error.reason)
        outcome = f"denied by {error.gate}"
        self._write(replace(self._known(source), outcome=outcome, detail=error.reason), source)
        self._count(f"denied/{error.gate}")

    def _deferred(self, source: Source, error: RequestDeferred) -> None:
        """Leave a source as due as it was: the next run goes on with it (ruling 7)."""
        logger.info("%s is left to a later run: %s", source.url, error)
        self._count("deferred")
        self._crawler.stats.min_value("walsh/sources/deferred_until", error.until)

    def _failed(self, source: Source, reason: str) -> None:
        known = self._known(source)
        logger.warning("%s failed: %s", source.url, reason)
        failures = known.failures + 1
        self._write(replace(known, outcome="failed", detail=reason, failures=failures), source)
        self._count("failed")

    def _write(self, record: SourceRecord, source: Source) -> None:
        now = self._crawl.now()
        due_at = self._due(source, now, record.failures)
        self._crawl.state.sources.commit(replace(record, fetched_at=now, due_at=due_at))

    def _known(self, source: Source) -> SourceRecord:
        known = self._crawl.state.sources.find(source.url)
        return known or SourceRecord(url=source.url, kind=source.kind)

    def _due(self, source: Source, now: float, failures: int = 0) -> float:
        revisit = self._crawl.options.min_revisit
        every = source.every.total_seconds() if source.every else 0.0
        return due_again(now, max(revisit, every), failures)

    def _count(self, outcome: str) -> None:
        self._crawler.stats.inc_value(f"walsh/sources/{outcome}")


def _unwanted(request: Request) -> str | None:
    media_type = request.meta.get(meta.UNWANTED)
    return f"{media_type} is no feed, so its body was left alone" if media_type else None


def _record(item: EntryItem, source_url: str, now: float) -> EntryRecord:
    exported = json.dumps(item.exported(), ensure_ascii=False)
    return EntryRecord(item.key, item.full_key, source_url, item.kind, now, exported)


def _is_valid(item: object) -> bool:
    try:
        check(item)
    except InvalidItem as error:
        logger.warning("an item is left out: %s", error)
        return False
    return True
