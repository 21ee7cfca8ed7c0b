"""At the end of a run, one summary: what became of the sources, or else of the requests."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import signals

from walsh_scrapy.tools.answers import answer_lines, has_agenda
from walsh_scrapy.tools.counts import Counts

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
        stats = self._stats.get_stats()
        by_source = has_agenda(stats)
        lines = Counts.of(stats).lines() if by_source else answer_lines(stats)
        what = "sources" if by_source else "requests"
        logger.info("run %s; %s:\n  %s", reason, what, "\n  ".join(lines))
