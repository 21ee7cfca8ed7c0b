"""The start requests of a spider enter the crawl only while the scheduler has room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from walsh_scrapy.crawl.crawl import Crawl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from scrapy.crawler import Crawler

    from walsh_scrapy.crawl.queue import Queue


class RoomMiddleware:
    """Delays the next start request while enough hosts have a request that may be sent.

    Scrapy takes all start requests of a spider at once, and handles no response meanwhile. A
    hundred thousand sources would take hundreds of megabytes, and the first exchange would seem to
    last for seconds.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware for one crawl."""
        return cls(Crawl.of(crawler).queue)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Pass the start requests on, one by one."""
        async for item in start:
            await self._queue.wait_for_room()
            yield item
