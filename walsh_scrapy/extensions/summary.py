"""The summary at the end of a run: the outcomes of its sources, or else of its requests."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals

from walsh_scrapy.tools.summary import SourceCounts, is_by_source, request_lines

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class Summary:
    """Logs the summary when the spider has closed."""

    def __init__(self, crawler: Crawler) -> None:
        self._stats = crawler.stats

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Listen for the end of a crawl."""
        extension = cls(crawler)
        crawler.signals.connect(extension.spider_closed, signal=signals.spider_closed)
        return extension

    def spider_closed(self, reason: str) -> None:
        """Log the summary; ``reason`` is why the spider closed, as Scrapy names it."""
        stats = self._stats.get_stats()
        by_source, counts = is_by_source(stats), SourceCounts.of(stats)
        lines = counts.lines() if by_source else request_lines(stats)
        what = "sources" if by_source else "requests"
        logger.info("run %s; %s:\n  %s", reason, what, "\n  ".join(lines))
        if counts.none_was_read:
            logger.error("no source was read, and %d failed", counts.failed)
