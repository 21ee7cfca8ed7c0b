"""Scrapy's log lines, without the work on those that nobody will see."""

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
    """Makes no line of a page or an item unless ``LOG_LEVEL`` lets it be seen.

    Scrapy makes a log record of each, and only its handlers find out that it is not wanted.
    """

    def __init__(self, level: int) -> None:
        self._is_silent = level > logging.DEBUG

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Go by the project's ``LOG_LEVEL``, a name or a number."""
        level = crawler.settings["LOG_LEVEL"]
        names = logging.getLevelNamesMapping()
        return cls(names.get(str(level).upper()) or int(level))

    def crawled(  # type: ignore[override]  # None is Scrapy's word for no line
        self, request: Request, response: Response, spider: Spider
    ) -> LogFormatterResult | None:
        """Say which page came."""
        return None if self._is_silent else super().crawled(request, response, spider)

    def scraped(  # type: ignore[override]
        self, item: object, response: Response | Failure | None, spider: Spider
    ) -> LogFormatterResult | None:
        """Say which item came of it."""
        return None if self._is_silent else super().scraped(item, response, spider)
