"""Scrapy's feed exports: one that cannot be written ends the run in order (decision 29)."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.extensions import feedexport
from scrapy.utils.defer import ensure_awaitable

from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.failures import words_of
from walsh_scrapy.extensions.feedstorage import FileFeedStorage

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.extensions.feedexport import FeedSlot

logger = logging.getLogger(__name__)


class FeedExporter(feedexport.FeedExporter):
    """Scrapy's exporter, but a full disk is one line of the log and exit status 1.

    Scrapy logs a traceback for each item that it cannot write, and the run exits with 0. Here the
    run ends, and its other exports are written to their ends.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._crawl = Crawl.of(crawler)

    def item_scraped(self, item: Any, spider: Spider) -> None:  # noqa: ANN401 - of any item class
        """Write an item into each export."""
        slots, going_on = self.slots, list[Any]()
        for slot in slots:
            self.slots = [slot]
            try:
                super().item_scraped(item, spider)
                if isinstance(slot.storage, FileFeedStorage):
                    slot.storage.item_written()
            except OSError as error:
                self._give_up(slot, error)
            else:
                going_on += self.slots
        self.slots = going_on

    async def _close_slot(self, slot: FeedSlot, spider: Spider) -> None:  # noqa: ARG002 - Scrapy's
        """Finish an export and store it, as Scrapy does, but without a traceback if that fails."""
        if not (slot.itemcount or (slot.store_empty and slot.batch_id == 1)):
            return
        kind = type(slot.storage).__name__
        try:
            slot.start_exporting()  # an empty one was not opened yet
            slot.finish_exporting()
            await ensure_awaitable(slot.storage.store(self._get_file(slot)))
        except Exception as error:  # noqa: BLE001 - storages of other projects may raise anything
            self._give_up(slot, error)
            self.crawler.stats.inc_value(f"feedexport/failed_count/{kind}")
        else:
            what = f"{slot.format} feed ({slot.itemcount} items) in: {slot.uri}"
            logger.info("Stored %s", what)
            self.crawler.stats.inc_value(f"feedexport/success_count/{kind}")
        await self.crawler.signals.send_catch_log_async(signals.feed_slot_closed, slot=slot)

    def _give_up(self, slot: FeedSlot, error: Exception) -> None:
        self._crawl.engine.end(
            "export_failed",
            f"the export {slot.uri} cannot be written: {words_of(error)}; the run ends, and what "
            "is due stays due; `scrapy export` writes the entries that the state has",
        )
        if isinstance(slot.storage, FileFeedStorage):
            slot.storage.give_up(error)
        elif slot.file is not None:
            with suppress(OSError):
                slot.file.close()  # else Python would try to write the rest when it exits
