"""The summary at the end of a run: in the log, and as JSON in a file (``WALSH_SUMMARY``)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import signals

from walsh_scrapy.runtime.context import Context
from walsh_scrapy.runtime.trouble import summary_failed
from walsh_scrapy.tools.summary import SourceCounts, is_by_source, summary_lines, summary_of
from walsh_scrapy.tools.summary.record import write_summary
from walsh_scrapy.visits.troubles import Troubles

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class Summary:
    """Logs and writes the summary when the spider has closed, also of a run that ends early."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._context = Context.of(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Listen for the end of a crawl."""
        extension = cls(crawler)
        crawler.signals.connect(extension.spider_closed, signal=signals.spider_closed)
        return extension

    def spider_closed(self, reason: str) -> None:
        """Log the summary; ``reason`` is why the spider closed, as Scrapy names it."""
        stats = self._crawler.stats.get_stats()
        lines = summary_lines(stats, Troubles.of(self._context), reason, self._context.clock.now())
        what = "sources" if is_by_source(stats) else "requests"
        logger.info("run %s; %s:\n  %s", reason, what, "\n  ".join(lines))
        counts = SourceCounts.of(stats)
        if counts.none_was_read:
            logger.error("no source was read, and %d failed", counts.failed)
        if self._context.options.summary:
            self._write(Path(self._context.options.summary), reason)

    def _write(self, path: Path, reason: str) -> None:
        try:
            write_summary(path, summary_of(self._crawler, reason))
        except OSError as error:
            summary_failed(self._crawler, str(path), error)
