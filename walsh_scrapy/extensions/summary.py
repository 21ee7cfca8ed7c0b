"""The record of a run: its row in the state, and its summary there and in the log."""

from __future__ import annotations

import logging
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from scrapy import signals

from walsh_scrapy import __version__
from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.identity import SPEC_VERSION
from walsh_scrapy.sources.source import declaration
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.tools.summary import (
    SourceCounts,
    is_by_source,
    summary_lines,
    summary_of,
)

if TYPE_CHECKING:
    from typing import Any

    from scrapy import Spider
    from scrapy.crawler import Crawler

    from walsh_scrapy.crawl.crawl import Crawl
    from walsh_scrapy.crawl.messages import Signer
    from walsh_scrapy.options import Options

logger = logging.getLogger(__name__)

#: The packages of commands that run a spider.
_SCRAPYS: Final = "scrapy.commands."
_OUR_COMMANDS: Final = "walsh_scrapy.tools."
_PACKAGES: Final = ("scrapy", "twisted", "feedparser", "markdown-it-py")


class Summary(Component):
    """Writes the row of a run when the spider opens, and completes it when the spider closes.

    The requests and entries of the run name the row. The summary is in it and in the log, also for
    a run that ends early.
    """

    def __init__(self, crawl: Crawl) -> None:
        super().__init__(crawl)
        self._context = crawl.context
        crawl.crawler.signals.connect(self.spider_opened, signals.spider_opened)
        crawl.crawler.signals.connect(self.spider_closed, signals.spider_closed)

    def spider_opened(self, spider: Spider) -> None:
        """Record the begin. If the state fails, the crawl ends for that reason."""
        context = self._context
        declaring = spider if isinstance(spider, DeclaringSpider) else DeclaringSpider(spider.name)
        run = RunRecord(
            spider=spider.name,
            command=command_of(self._crawl.crawler, spider),
            begun=context.started_at,
            versions=versions(),
            settings=settings_of(context.options, self._crawl.signer) | {"force": declaring.force},
        )
        try:
            context.run = context.state.runs.begin(run, self._declared(declaring))
        except StateUnavailable as error:
            logger.debug("the begin of the run is not recorded: %s", error)

    def _declared(self, spider: DeclaringSpider) -> bytes | str:
        """Return the document of what a run declares, or the name of its copy."""
        if file := self._crawl.sources_file:
            return self._context.state.declaration(file, self._context.clock.now())
        return declaration(spider.sources)

    def spider_closed(self, reason: str) -> None:
        """Record the end, and log the summary; ``reason`` is why, as Scrapy names it."""
        self._end(reason)
        stats, context = self._crawl.stats.get_stats(), self._context
        lines = summary_lines(stats, self._crawl.troubles, reason, context.clock.now())
        what = "sources" if is_by_source(stats) else "requests"
        logger.info("run %s; %s:\n  %s", reason, what, "\n  ".join(lines))
        counts = SourceCounts.of(stats)
        if counts.none_was_read:
            logger.error("no source was read, and %d failed", counts.failed)

    def _end(self, reason: str) -> None:
        context = self._context
        if context.run is None:
            return
        summary = summary_of(self._crawl, reason)
        try:
            context.state.runs.end(context.run, summary["ended"], reason, summary)
        except StateUnavailable as error:
            logger.debug("the end of the run is not recorded: %s", error)


def command_of(crawler: Crawler, spider: Spider) -> str:
    """Return the command that asks for a URL by hand, or "" for a crawl (decision 39).

    `fetch`, `parse` and `check` give the spider a ``start`` of their own, `shell` only opens the
    engine, and our own commands have spiders that are named after them.
    """
    if not crawler.crawling:
        return "shell"
    start = type(spider).start.__module__
    if start.startswith(_OUR_COMMANDS):
        return spider.name
    return start.removeprefix(_SCRAPYS) if start.startswith(_SCRAPYS) else ""


def versions() -> dict[str, str]:
    """Return the versions of the contract, of Python and of the packages that read and ask."""
    found = {"contract": SPEC_VERSION, "python": platform.python_version()}
    found["walsh-scrapy"] = __version__  # also in a clone and in an egg
    return found | {package: version(package) for package in _PACKAGES}


def settings_of(options: Options, signer: Signer | None) -> dict[str, Any]:
    """Return the options in force, as JSON has them, and which key signs.

    ``signing_key`` is the thumbprint of that key, "" if none signs, and not the path of its file.
    """
    key = signer.key_id if signer else ""
    return options.for_record() | {"signing_key": key}
