"""Exports of a run: complete after a kill; one that cannot be written ends the run.

Items reach the export and the stats without a signal: Scrapy makes a task for each item and each of
its listeners, which is a tenth of the CPU of a visit if a feed has 20 entries.
"""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from scrapy import signals
from scrapy.extensions import feedexport
from scrapy.extensions.corestats import CoreStats
from scrapy.pipelines import ItemPipelineManager
from scrapy.utils.defer import ensure_awaitable

from walsh_scrapy.crawl.failures import words_of
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.files import atomic_file
from walsh_scrapy.programname import program_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.extensions.feedexport import FeedSlot

logger = logging.getLogger(__name__)

#: Formats in which an item is a line, and files may be joined.
_LINES: Final = ("jsonlines", "jsonl", "jl", "csv")
#: More than an item has, so that each item is written at once.
_BUFFER_BYTES: Final = 1 << 20


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
        writable: list[Any] = []
        for slot in self.slots:
            self.slots = [slot]
            try:
                super().item_scraped(item, spider)
                if isinstance(slot.storage, FileFeedStorage):
                    slot.storage.item_written()
            except OSError as error:
                self._give_up(slot, error)
            else:
                writable += self.slots
        self.slots = writable

    async def _close_slot(self, slot: FeedSlot, spider: Spider) -> None:  # noqa: ARG002 - Scrapy's
        """Finish an export and store it, as Scrapy does, but without a traceback if that fails."""
        if not (slot.itemcount or (slot.store_empty and slot.batch_id == 1)):
            return
        kind = type(slot.storage).__name__
        try:
            slot.start_exporting()  # the file of an empty export is not open yet
            slot.finish_exporting()
            await ensure_awaitable(slot.storage.store(self._get_file(slot)))
        except Exception as error:  # noqa: BLE001 - storages of other projects may raise anything
            self._give_up(slot, error)
        else:
            description = f"{slot.format} feed ({slot.itemcount} items) in: {slot.uri}"
            logger.info("Stored %s", description)
            self.crawler.stats.inc_value(f"feedexport/success_count/{kind}")
        await self.crawler.signals.send_catch_log_async(signals.feed_slot_closed, slot=slot)

    def _give_up(self, slot: FeedSlot, error: Exception) -> None:
        kind = type(slot.storage).__name__
        self.crawler.stats.inc_value(f"feedexport/failed_count/{kind}")
        self._crawl.engine.end(
            "export_failed",
            f"the export {slot.uri} cannot be written: {words_of(error)}; the run ends, and due "
            f"sources stay due; `{program_name()} new --run {self._crawl.context.run} --json` "
            "prints its entries again",
        )
        if isinstance(slot.storage, FileFeedStorage):
            slot.storage.give_up(error)
        elif slot.file is not None:
            with suppress(OSError):
                slot.file.close()  # or Python would try to write the rest when it exits


class FileFeedStorage(feedexport.FileFeedStorage):
    """Scrapy's storage of a local file, for ``FEED_STORAGES``.

    A file that is replaced (``-O``, ``overwrite``) has another name until it is complete. A file
    that is extended (``-o``) gets each item at once. If its last line has no end, as after a full
    disk, the next item begins a new line.
    """

    def __init__(self, uri: str, *, feed_options: dict[str, Any] | None = None) -> None:
        super().__init__(uri, feed_options=feed_options)
        options = feed_options or {}
        has_lines = options.get("format") in _LINES and not options.get("postprocessing")
        self._is_in_lines = has_lines and self.write_mode == "ab"
        self._open = ExitStack()
        self._file: IO[bytes] | None = None

    def open(self, spider: Spider) -> IO[bytes]:  # noqa: ARG002 - Scrapy's interface
        """Return the file to write to. Raises OSError."""
        path = Path(self.path)
        if self.write_mode == "wb":
            self._file = self._open.enter_context(atomic_file(path))
            return self._file
        path.parent.mkdir(parents=True, exist_ok=True)
        ends_within_line = self._is_in_lines and _ends_within_line(path)
        self._file = self._open.enter_context(path.open("ab", buffering=_BUFFER_BYTES))
        if ends_within_line:
            self._file.write(b"\n")
        return self._file

    def item_written(self) -> None:
        """Write out the buffered item, if the file is extended. Raises OSError."""
        if self._file is not None and self.write_mode == "ab":
            self._file.flush()

    def store(self, file: IO[bytes]) -> None:  # noqa: ARG002 - Scrapy's interface
        """Complete the file. Raises OSError."""
        self._open.close()

    def give_up(self, error: Exception) -> None:
        """Close the file after an error. A file that would be replaced stays as it was."""
        with suppress(OSError):
            self._open.__exit__(type(error), error, error.__traceback__)


def _ends_within_line(path: Path) -> bool:
    """Return True if the last line of a file has no end."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


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
