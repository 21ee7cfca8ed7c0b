"""The summary at the end of a run: in the log, and as JSON in a file (``WALSH_SUMMARY``)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy import signals

from walsh_scrapy.crawl import Crawl
from walsh_scrapy.runtime.failures import words_of
from walsh_scrapy.tools.summary import (
    SourceCounts,
    is_by_source,
    summary_lines,
    summary_of,
    write_summary,
)

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class Summary:
    """Logs and writes the summary when the spider has closed, also of a run that ends early."""

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Listen for the end of a crawl."""
        extension = cls(Crawl.of(crawler))
        crawler.signals.connect(extension.spider_closed, signal=signals.spider_closed)
        return extension

    def spider_closed(self, reason: str) -> None:
        """Log the summary; ``reason`` is why the spider closed, as Scrapy names it."""
        stats, context = self._crawl.stats.get_stats(), self._crawl.context
        lines = summary_lines(stats, self._crawl.troubles, reason, context.clock.now())
        what = "sources" if is_by_source(stats) else "requests"
        logger.info("run %s; %s:\n  %s", reason, what, "\n  ".join(lines))
        counts = SourceCounts.of(stats)
        if counts.none_was_read:
            logger.error("no source was read, and %d failed", counts.failed)
        if context.options.summary:
            self._write(Path(context.options.summary), reason)

    def _write(self, path: Path, reason: str) -> None:
        try:
            write_summary(path, summary_of(self._crawl, reason))
        except OSError as error:
            self._crawl.engine.end(
                "summary_failed",
                f"the summary {path} cannot be written: {words_of(error)}; the state has it, in "
                "`runs`",
            )
