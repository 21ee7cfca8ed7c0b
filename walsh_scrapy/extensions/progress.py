"""Progress of a run: a display at a terminal, else lines of the log (``WALSH_PROGRESS``)."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.tools.progress import Display, ProgressSnapshot, Rate, awaited, outcomes_of

if TYPE_CHECKING:
    from walsh_scrapy.crawl.crawl import Crawl

logger = logging.getLogger(__name__)

#: Seconds from one line of the log to the next.
LINE_SECONDS = 60.0
#: Seconds from one change of the display to the next.
DISPLAY_SECONDS = 1.0


class Progress(Component):
    """Shows each second how far a run is, or logs a line a minute if something was done since.

    Raises NotConfigured if progress is off.
    """

    def __init__(self, crawl: Crawl) -> None:
        if crawl.context.options.progress == "off":
            raise NotConfigured
        super().__init__(crawl)  # its queues are made with the scheduler
        self._clock = crawl.context.clock
        self._began = self._clock.monotonic()
        self._rate = Rate()
        self._last = ""
        self._display: Display | None = None
        self._timer = create_looping_call(self._tell)
        crawl.crawler.signals.connect(self.spider_opened, signals.spider_opened)
        crawl.crawler.signals.connect(self.spider_closed, signals.spider_closed)

    def spider_opened(self) -> None:
        """Start the timer, and the display if there is a terminal."""
        self._display = Display.open([*map(str, self._crawl.settings.getdict("FEEDS"))])
        self._timer.start(DISPLAY_SECONDS if self._display else LINE_SECONDS, now=False)

    def spider_closed(self) -> None:
        """Stop the timer, and end the display with what is done at last."""
        if self._timer.running:
            self._timer.stop()
        if self._display:
            self._display.show(self._snapshot())
            self._display.close()

    def _tell(self) -> None:
        snapshot = self._snapshot()
        if self._display:
            self._display.show(snapshot)
        elif snapshot.counts != self._last:
            logger.info("so far: %s", snapshot.line)
            self._last = snapshot.counts

    def _snapshot(self) -> ProgressSnapshot:
        stats, now = self._crawl.stats.get_stats(), self._clock.monotonic()
        due, done, outcomes = outcomes_of(stats)
        queue, workers = self._crawl.queue, self._crawl.hosts.workers
        if workers > 1:
            outcomes = (*outcomes, f"one of {workers} workers")
        return ProgressSnapshot(
            due=due,
            done=done,
            outcomes=outcomes,
            seconds=now - self._began,
            rate=self._rate.at(now, stats.get("response_received_count", 0)),
            left=math.inf if due is None else queue.remaining(due - done),
            awaited=awaited(queue, self._crawl.context.retries, now),
        )
