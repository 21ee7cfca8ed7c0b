"""The feed crawler's part of a crawl: its sources, their stores and their visits."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from walsh_scrapy.crawl.childprocess import TooCostly
from walsh_scrapy.crawl.declared import Declared, RunSummary
from walsh_scrapy.crawl.refusal import refuse_to_start
from walsh_scrapy.feeds.metadata.entries import NotAFeed
from walsh_scrapy.feeds.sources.source import SourcesError, declaration, delays_by_host
from walsh_scrapy.feeds.sourcesummary import (
    Problems,
    done_sources,
    is_by_source,
    is_none_read,
    source_lines,
    source_progress,
    source_summary,
)
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.feeds.stores.sync import OldFiles
from walsh_scrapy.feeds.visits import Visits
from walsh_scrapy.options import WrongArgument
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.spider import DeclaringSpider

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Self

    from walsh_scrapy.crawl.declared import LastVisit
    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.feeds.metadata.document import Document
    from walsh_scrapy.feeds.metadata.entries import Feed
    from walsh_scrapy.feeds.sources.source import Source
    from walsh_scrapy.feeds.stores.sourcestore import SourceStore
    from walsh_scrapy.feeds.stores.sync import SyncedFile
    from walsh_scrapy.state.retention import Deletable


@runtime_checkable
class ChoosesSources(Protocol):
    """A spider over the sources of a file."""

    sources_file: str | None

    def check_choice(self, store: SourceStore, file: int) -> None:
        """Raise WrongArgument if the arguments select no source of the file with this number."""


class FeedCrawl(Declared):
    """The sources of a spider, which are those of a file or those in its attribute ``sources``."""

    packages = ("feedparser", "markdown-it-py")

    @classmethod
    def of(cls, crawl: Crawl) -> Self:
        """Return the feed crawler's part of a crawl.

        A project that names single middlewares may use them with a spider that declares nothing.
        """
        if not isinstance(crawl.declared, cls):
            crawl.declared = cls(crawl)
        return crawl.declared

    @cached_property
    def stores(self) -> Stores:
        """The stores of sources and entries."""
        return Stores(self._crawl.context.state)

    @cached_property
    def file(self) -> SyncedFile | None:
        """The sources file of the spider, in the state as it is now; None if it has none.

        A wrong file, or one in which the spider's arguments select nothing, ends the process with
        one line.
        """
        crawl = self._crawl
        spider: object = crawl.crawler.spider
        if not isinstance(spider, ChoosesSources) or spider.sources_file is None:
            return None
        try:
            file = self.stores.sync(spider.sources_file, crawl.context.clock.now())
            spider.check_choice(self.stores.sources, file.id)
        except (SourcesError, WrongArgument) as error:
            refuse_to_start(error, log_file=crawl.settings["LOG_FILE"])
        return file

    @cached_property
    def visits(self) -> Visits:
        """The visits of sources."""
        return Visits(self._crawl, self.stores)

    async def read(self, document: Document) -> Feed:
        """Return the feed, or the list of links, in a document (decision 34).

        Raises as ``Reader.call``, and NotAFeed also for a document that costs too much.
        """
        try:
            return await self._crawl.reader.call(document.url, document.read)
        except TooCostly as error:
            raise NotAFeed(str(error)) from None

    @cached_property
    def problems(self) -> Problems:
        """The failures of the run, and until when its hosts are deferred."""
        return Problems()

    @property
    def is_forced(self) -> bool:
        """Whether the spider visits sources that are not due."""
        spider: object = self._crawl.crawler.spider
        return isinstance(spider, DeclaringSpider) and spider.force

    def delays(self) -> Mapping[str, float]:
        """Return the delays of the file, also those of sources that the spider does not visit."""
        return self.file.delays if self.file else delays_by_host(self._sources, host_of)

    def declaration(self) -> bytes | str:
        """Return the name of the copy of the file, or a document of the declared sources."""
        if self.file:
            return self.stores.declaration(self.file, self._crawl.context.clock.now())
        return declaration(self._sources)

    def last_visit(self, host: str) -> LastVisit | None:
        """Return the latest earlier visit of the sources at a host that are visited now."""
        return self.visits.last_visit(host)

    def old_rows(self, now: float) -> Iterable[Deletable]:
        """Return the files that no run has read for 90 days."""
        return (OldFiles(now),)

    def progress(self, stats: Mapping[str, Any]) -> tuple[str, int | None]:
        """Return what a run has done, and how many sources remain."""
        if not is_by_source(stats):
            return super().progress(stats)
        return source_progress(stats), stats["walsh/sources/due"] - done_sources(stats)

    def summary(self, stats: Mapping[str, Any], reason: str, now: float) -> RunSummary:
        """Return the summary of a run by source, or by request if the spider visits none."""
        if not is_by_source(stats):
            return super().summary(stats, reason, now)
        record = source_summary(stats, self.problems, reason, now)
        failed = f"no source was read, and {record['failed']} failed"
        error = failed if is_none_read(stats) else ""
        return RunSummary("sources", record, source_lines(record), error)

    @property
    def _sources(self) -> Collection[Source]:
        spider: object = self._crawl.crawler.spider
        return spider.sources if isinstance(spider, DeclaringSpider) else ()
