"""A spider's start requests enter the crawl as the scheduler has room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from walsh_scrapy.politeness.hostqueue import HostQueues

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from scrapy.crawler import Crawler


class RoomMiddleware:
    """Holds the next start request back while enough others could go out.

    Scrapy takes all start requests of a spider at once, and handles no response meanwhile: with a
    hundred thousand sources that is hundreds of megabytes, and an exchange that seems to last for
    seconds.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._queues = HostQueues.of(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware for one crawl."""
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Hand on the start requests one by one."""
        async for item in start:
            await self._queues.room()
            yield item
