"""R8: a source is asked for once a day or less; what is not due yet waits for a later run."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from scrapy import Request

from walsh_scrapy import meta
from walsh_scrapy.crawl import Crawl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class DueMiddleware:
    """Lets a source's first request in when its time has come, with the validators it left.

    ``-a force=1`` sets the waiting aside, and no other gate (ruling 20).
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl = Crawl.of(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Hand on what is due, and say how much is not."""
        force = getattr(self._crawler.spider, "force", False)
        now, waiting = self._crawl.now(), list[float]()
        async for item in start:
            due_at = self._prepare(item) if isinstance(item, Request) else 0.0
            if force or due_at <= now:
                yield item
            else:
                waiting.append(due_at)
        self._say(waiting)

    def _prepare(self, request: Request) -> float:
        """Give a request what an earlier visit left for it, and return when it is due."""
        source = meta.source(request)
        known = self._crawl.state.sources.find(source.url) if source else None
        if known is None:
            return 0.0
        if known.validator_url:
            request.meta[meta.VALIDATORS] = meta.Validators(
                known.validator_url, known.etag, known.last_modified
            )
        return known.due_at

    def _say(self, waiting: list[float]) -> None:
        stats = self._crawler.stats
        stats.set_value("walsh/sources/not_due", len(waiting))
        if waiting:
            stats.set_value("walsh/sources/next_due", min(waiting))
            when = datetime.fromtimestamp(min(waiting), UTC).isoformat(" ", "seconds")
            logger.info("%d sources are not due yet, the next one at %s", len(waiting), when)
