"""An item processor that passes each item to the export and the stats without a signal.

Scrapy makes a task for each item and listener of a signal. With 20 entries in a feed, that is a
tenth of the CPU of a visit.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.extensions.corestats import CoreStats
from scrapy.extensions.feedexport import FeedExporter
from scrapy.pipelines import ItemPipelineManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class ItemProcessor(ItemPipelineManager):
    """Calls the two listeners of Scrapy to ``item_scraped``; all others get the signal."""

    def __init__(self, *middlewares: object, crawler: Crawler) -> None:
        super().__init__(*middlewares, crawler=crawler)
        self._crawler = crawler
        self._listeners: list[Callable[..., None]] = []

    async def open_spider_async(self) -> None:
        """Open the pipelines, and disconnect both listeners from the signal."""
        await super().open_spider_async()
        listening: tuple[type[Any], ...] = (CoreStats, FeedExporter)
        for kind in listening:
            if extension := self._crawler.get_extension(kind):
                listener = extension.item_scraped
                self._crawler.signals.disconnect(listener, signal=signals.item_scraped)
                self._listeners.append(listener)

    async def process_item_async(self, item: Any) -> Any:  # noqa: ANN401 - of any item class
        """Export and count an item, and return it as the pipelines leave it."""
        item = await super().process_item_async(item)
        for listener in self._listeners:
            try:
                listener(item=item, spider=self._crawler.spider)
            except Exception:  # as Scrapy does when it sends the signal
                logger.exception("Error caught on signal handler: %r", listener)
        return item
