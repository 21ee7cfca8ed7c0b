"""Progress of a run, logged every 15 seconds (``WALSH_PROGRESS``)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call

from walsh_scrapy.policy.wording import counted
from walsh_scrapy.politeness.hostqueue import HostQueues
from walsh_scrapy.runtime.context import Context
from walsh_scrapy.tools.summary import SourceCounts, is_by_source

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

EVERY_SECONDS = 15.0


class Progress:
    """Logs a line every ``EVERY_SECONDS`` seconds, unless it is the same as the last."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._last = ""
        self._timer = create_looping_call(self._log)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Follow a crawl from start to end; raises NotConfigured if progress is off."""
        if Context.of(crawler).options.progress == "off":
            raise NotConfigured
        extension = cls(crawler)
        crawler.signals.connect(extension.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(extension.spider_closed, signal=signals.spider_closed)
        return extension

    def spider_opened(self) -> None:
        """Start the timer."""
        self._timer.start(EVERY_SECONDS, now=False)

    def spider_closed(self) -> None:
        """Stop the timer."""
        if self._timer.running:
            self._timer.stop()

    def _log(self) -> None:
        line = f"{self._done()}{self._waiting()}"
        if line != self._last:
            logger.info("so far: %s", line)
        self._last = line

    def _done(self) -> str:
        stats = self._crawler.stats.get_stats()
        if is_by_source(stats):
            counts = SourceCounts.of(stats)
            return f"{counts.done} of {counted(counts.due, 'source')} done, {counts.failed} failed"
        return counted(stats.get("response_received_count", 0), "response")

    def _waiting(self) -> str:
        waiting = HostQueues.of(self._crawler).waiting
        return "" if waiting is None else f", {counted(waiting, 'request')} waiting"
