"""A long run shows how far it is (``WALSH_PROGRESS``)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call

from walsh_scrapy.politeness.hostqueues import HostQueues
from walsh_scrapy.runtime.context import Context
from walsh_scrapy.tools.answers import has_agenda
from walsh_scrapy.tools.counts import Counts

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

EVERY_SECONDS = 15.0


class Progress:
    """Logs a line every quarter of a minute, while there is something to tell."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._said = ""
        self._timer = create_looping_call(self._say)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Follow a crawl from its opening to its end."""
        if Context.of(crawler).options.progress == "off":
            raise NotConfigured
        extension = cls(crawler)
        crawler.signals.connect(extension.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(extension.spider_closed, signal=signals.spider_closed)
        return extension

    def spider_opened(self) -> None:
        """Begin to tell."""
        self._timer.start(EVERY_SECONDS, now=False)

    def spider_closed(self) -> None:
        """Fall silent: the summary follows."""
        if self._timer.running:
            self._timer.stop()

    def _say(self) -> None:
        stats = self._crawler.stats.get_stats()
        if has_agenda(stats):
            counts = Counts.of(stats)
            done = f"{counts.done} of {counts.due} sources done, {counts.failed} failed"
        else:
            done = f"{stats.get('response_received_count', 0)} answers"
        queued = HostQueues.of(self._crawler).waiting
        waiting = "" if queued is None else f", {queued} requests wait for their hosts"
        line = f"{done}{waiting}"
        if line != self._said:
            logger.info("so far: %s", line)
        self._said = line
