"""The row of a run in the state: written when the spider opens, completed when it closes."""

from __future__ import annotations

import logging
import math
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from scrapy import signals

from walsh_scrapy.crawl import Crawl
from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.identity import SPEC_VERSION
from walsh_scrapy.state.runs import RunRecord
from walsh_scrapy.tools.summary import summary_of

if TYPE_CHECKING:
    from typing import Any, Self

    from scrapy import Spider
    from scrapy.crawler import Crawler

    from walsh_scrapy.runtime.context import Context

logger = logging.getLogger(__name__)

#: The packages of commands that run a spider.
_SCRAPYS: Final = "scrapy.commands."
_OUR_COMMANDS: Final = "walsh_scrapy.tools."
_PACKAGES: Final = ("walsh-scrapy", "scrapy", "twisted", "feedparser", "markdown-it-py")


class RunLog:
    """Writes the row of a run; the requests and entries of the run name it."""

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._context = crawl.context

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Listen for the begin and the end of a crawl."""
        extension = cls(Crawl.of(crawler))
        crawler.signals.connect(extension.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(extension.spider_closed, signal=signals.spider_closed)
        return extension

    def spider_opened(self, spider: Spider) -> None:
        """Record the begin. If the state fails, the crawl ends for that reason."""
        context = self._context
        run = RunRecord(
            spider=spider.name,
            command=command_of(self._crawl.crawler, spider),
            begun=context.started_at,
            versions=versions(),
            settings=settings_of(context),
        )
        try:
            context.run = context.state.runs.begin(run)
        except StateUnavailable as error:
            logger.debug("the begin of the run is not recorded: %s", error)

    def spider_closed(self, reason: str) -> None:
        """Record the end; ``reason`` is why the spider closed, as Scrapy names it."""
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
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a folder or an egg
            found[package] = "not installed as a package"
    return found


def settings_of(context: Context) -> dict[str, Any]:
    """Return the options in force, as JSON has them: an endless time is "inf".

    Not where the state is: its URL may have a password. ``signing_key`` is the thumbprint of the
    key that signs, "" if none does; where the key is kept is nobody's business.
    """
    settings = asdict(context.options)
    del settings["state_url"]
    for name, value in settings.items():
        if value == math.inf:
            settings[name] = str(value)
    settings["signing_key"] = context.signer.key_id if context.signer else ""
    return settings
