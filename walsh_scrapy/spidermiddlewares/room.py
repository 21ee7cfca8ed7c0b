"""A spider's start requests enter the crawl as the scheduler has room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from walsh_scrapy.scheduler import scheduler_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    from scrapy.crawler import Crawler


class RoomMiddleware:
    """Holds the next start request back while enough others could go out.

    Scrapy takes all that a spider starts with at once, and answers nothing meanwhile: with a
    hundred thousand sources that is hundreds of megabytes, and an exchange that seems to last for
    seconds.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware for one crawl."""
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Hand on what the spider starts with, one by one."""
        async for item in start:
            if scheduler := scheduler_of(self._crawler):
                await scheduler.room()
            yield item
