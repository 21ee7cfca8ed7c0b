"""At the end of a run, one summary: what became of each source, and how much was new."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals

from walsh_scrapy.report.counts import Counts

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class Summary:
    """Logs the outcome of a run when its spider has closed."""

    def __init__(self, crawler: Crawler) -> None:
        self._stats = crawler.stats

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Wait for the end of a crawl."""
        extension = cls(crawler)
        crawler.signals.connect(extension.spider_closed, signal=signals.spider_closed)
        return extension

    def spider_closed(self, reason: str) -> None:
        """Sum up."""
        lines = "\n  ".join(Counts.of(self._stats.get_stats()).lines())
        logger.info("run %s; sources:\n  %s", reason, lines)
