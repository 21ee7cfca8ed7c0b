"""A log formatter for Scrapy that formats only the lines that ``LOG_LEVEL`` shows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy.logformatter import LogFormatter, LogFormatterResult

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from twisted.python.failure import Failure


class QuietLogFormatter(LogFormatter):
    """Formats lines about responses and items only if ``LOG_LEVEL`` is DEBUG or lower.

    Scrapy's own formatter formats a line for each of them, and the log handlers then drop it.
    """

    def __init__(self, level: int) -> None:
        self._is_silent = level > logging.DEBUG

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Read ``LOG_LEVEL``, a name or a number."""
        level = crawler.settings["LOG_LEVEL"]
        names = logging.getLevelNamesMapping()
        return cls(level if isinstance(level, int) else names[str(level)])

    def crawled(  # type: ignore[override]  # None means no line to Scrapy
        self, request: Request, response: Response, spider: Spider
    ) -> LogFormatterResult | None:
        """Return the line about a response, or None."""
        return None if self._is_silent else super().crawled(request, response, spider)

    def scraped(  # type: ignore[override]
        self, item: object, response: Response | Failure | None, spider: Spider
    ) -> LogFormatterResult | None:
        """Return the line about an item, or None."""
        return None if self._is_silent else super().scraped(item, response, spider)
