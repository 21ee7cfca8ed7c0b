"""R8: a source is asked for once a day or less; what is not due yet waits for a later run."""

from __future__ import annotations

import logging
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from scrapy import Request

from walsh_scrapy import meta
from walsh_scrapy.crawl import Crawl
from walsh_scrapy.policy.durations import format_moment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class DueMiddleware:
    """Lets a source's first request in when its time has come.

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
        """Hand on what is due, who waited longest first, and say how much is not.

        A host that lets in one request a day would otherwise give it to the same source for ever.
        """
        force = getattr(self._crawler.spider, "force", False)
        known = self._crawl.state.sources.due_times()
        now, due, waiting = self._crawl.now(), list[tuple[float, Request]](), list[float]()
        async for item in start:
            source = meta.source(item) if isinstance(item, Request) else None
            if source is None:
                yield item
                continue
            due_at = known.get(source.url, 0.0)
            if force or due_at <= now:
                due.append((due_at, item))
            else:
                waiting.append(due_at)
        self._crawler.stats.set_value("walsh/sources/due", len(due))
        self._say(waiting)
        for _, request in sorted(due, key=itemgetter(0)):
            yield request

    def _say(self, waiting: list[float]) -> None:
        if not waiting:
            return
        self._crawler.stats.inc_value("walsh/sources/not_due", len(waiting))
        self._crawler.stats.min_value("walsh/sources/next_due", min(waiting))
        when = format_moment(min(waiting))
        logger.info("%d sources are not due yet, the next one at %s", len(waiting), when)
