"""The feed crawler's part of a crawl: its sources, and their visits (R6, R8).

hosts with due sources, in the order in which a run begins them
-> few hosts are ready: the next one is taken
-> the first page of its sources goes to the scheduler
-> few of these requests remain: the next page
"""

from __future__ import annotations

import logging
from collections import deque
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

from scrapy.utils.asyncio import sleep

from walsh_scrapy.crawl.childprocess import TooCostly
from walsh_scrapy.crawl.declared import Declared, LastVisit, RunSummary
from walsh_scrapy.crawl.refusal import refuse_to_start
from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.feeds.metadata.entries import NotAFeed
from walsh_scrapy.feeds.sources.source import (
    SourcesError,
    declaration,
    declared_urls,
    delays_by_host,
)
from walsh_scrapy.feeds.sourcesummary import (
    Problems,
    done_sources,
    error_of,
    is_by_source,
    source_lines,
    source_progress,
    source_summary,
)
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.feeds.stores.entrystore import number_entries
from walsh_scrapy.feeds.stores.sourcestore import FIRST_POSITION, DeclaredSources, RunTerms
from walsh_scrapy.feeds.stores.sync import OldFiles
from walsh_scrapy.options import WrongArgument
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.frontier import HostWork, in_order
from walsh_scrapy.policy.pacing import BEAT_SECONDS, RECHECK_SECONDS
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.spider import DeclaringSpider
from walsh_scrapy.state.engine import StateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping
    from typing import Self

    from scrapy.statscollectors import StatsCollector
    from sqlalchemy import Connection

    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.feeds.metadata.document import Document
    from walsh_scrapy.feeds.metadata.entries import Feed
    from walsh_scrapy.feeds.sources.source import Source
    from walsh_scrapy.feeds.stores.sourcestore import (
        DueSource,
        PagePosition,
        Selection,
        SourceCounts,
        SourcePage,
        SourceStore,
    )
    from walsh_scrapy.feeds.stores.sync import SyncedFile
    from walsh_scrapy.state.ownership import OtherOwner
    from walsh_scrapy.state.records import SourceRecord
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

    @property
    def folder(self) -> Path | None:
        """The folder of the sources file; None without one."""
        spider: object = self._crawl.crawler.spider
        if not isinstance(spider, ChoosesSources) or spider.sources_file is None:
            return None
        return Path(spider.sources_file).absolute().parent

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
        # A run in which nothing was due takes no longer for a million sources than for ten.
        record["problems"] = self._problem_counts if done_sources(stats) else {}
        error = error_of(record, self._crawl.context.run)
        return RunSummary("sources", record, source_lines(record), error)

    @cached_property
    def _problem_counts(self) -> dict[str, int]:
        """How many sources of the file have a problem at the end of the run, by problem.

        The summary is made again after the exports, and the sources are not read again for that.
        """
        try:
            return self.stores.sources.count_problems(self.file.id) if self.file else {}
        except (StateError, StateUnavailable) as error:
            logger.debug("the problems of sources are not counted: %s", error)
            return {}

    @property
    def _sources(self) -> Collection[Source]:
        spider: object = self._crawl.crawler.spider
        return spider.sources if isinstance(spider, DeclaringSpider) else ()


# ---- visits ----

logger = logging.getLogger(__name__)

#: The maximum of sources in a page of a host. At a request per second it lasts for 25 s.
MAX_PAGE_SOURCES: Final = 25
#: Seconds for which a host is left to other workers. A worker that waits for it looks every
#: `RECHECK_SECONDS`.
AWAY_SECONDS: Final = 3 * RECHECK_SECONDS
#: The reading of a document takes less than these seconds.
MAX_READING_SECONDS: Final = 60.0


class Visits:
    """The sources that a crawl may visit, and the rows of the visits in progress."""

    def __init__(self, crawl: Crawl, stores: Stores) -> None:
        self.context = crawl.context
        self.stores = stores
        self.declared_delays = crawl.declared_delays
        self.queue = crawl.queue
        self.hosts = crawl.hosts
        self._crawler = crawl.crawler  # its spider is made later
        self._begun: dict[str, DueSource] = {}  # by the URLs of their sources

    def begin(self, host: str, due: DueSource) -> None:
        """Begin the visit of a source, and own its host until it ends."""
        self._begun[due.source.url] = due
        self.hosts.begin_visit(host, due.source.url)

    def end(self, source: Source) -> None:
        """Note that a visit has ended."""
        self._begun.pop(source.url, None)
        self.hosts.end_visit(source.url)

    def is_begun(self, source: Source) -> bool:
        """Return True if the visit of a due source is in progress."""
        return source.url in self._begun

    def last_visit(self, host: str) -> LastVisit | None:
        """Return the latest earlier visit of the sources at a host that are visited now.

        None if no visit there is in progress.
        """
        moments = [
            due.record.visited_at if due.record else None
            for url, due in self._begun.items()
            if host_of(due.record.address if due.record else url) == host
        ]
        if not moments:
            return None
        return LastVisit(max((at for at in moments if at is not None), default=None))

    def find_record(self, source: Source) -> SourceRecord | None:
        """Return the row of a source, in a visit as of its begin: no other worker changes it."""
        if due := self._begun.get(source.url):
            return due.record
        record = self.stores.sources.find(source.url)
        return record and record.with_url(source.url)

    def number_entries(self, connection: Connection) -> None:
        """Give numbers to what is committed, if the run has found anything."""
        stats = self._crawler.stats
        if stats.get_value("walsh/entries/new") or stats.get_value("walsh/entries/changed"):
            number_entries(connection)

    def owner(self, url: str) -> Source | None:
        """Return the source that declares a URL, or None.

        The sources of a file are looked up in the state, those that a spider has set in memory.
        """
        if due := self._begun.get(url):
            return due.source
        declared = self._declared
        return declared.owner(url) if isinstance(declared, DeclaredSources) else declared.get(url)

    def declares(self, url: str, source: Source | None) -> bool:
        """Return True for a URL that is declared, probably by ``source``."""
        if source and self.owner(source.url) and url in declared_urls(source):
            return True
        return self.owner(url) is not None

    @cached_property
    def _declared(self) -> DeclaredSources | Mapping[str, Source]:
        sources: Collection[Source] = getattr(self._crawler.spider, "sources", ())
        if isinstance(sources, DeclaredSources):
            return sources
        return {url: source for source in sources for url in declared_urls(source)}


class DueUrl(NamedTuple):
    """A due source, and the URL to request: the declared one, or the one to which it moved."""

    source: Source
    url: str


class _Unread(NamedTuple):
    """The sources of a host that were not read yet: roughly their number, and the first one."""

    sources: int
    begin: PagePosition


class _Away(NamedTuple):
    """A host that was left to others: its remaining sources, and when it may be taken again."""

    rest: _Unread
    until: float


class DueSources:
    """The sources that a run visits, in the order of their requests.

    ``force`` ignores the due times, but no gate. A source that is gone (410) is not
    visited until the operator resumes it (`walsh sources resume`). Raises StateUnavailable if the
    state fails.
    """

    def __init__(self, visits: Visits, chosen: Selection, *, force: bool = False) -> None:
        self._visits = visits
        self._queue = visits.queue
        self._hosts = visits.hosts
        self._clock = visits.context.clock
        self._state = visits.context.state
        self._store = visits.stores.sources
        self._chosen = chosen
        revisit = visits.context.options.min_revisit
        self._selection_name = (
            f"file {chosen.file}, {chosen.kind}, only={chosen.only!r}, force={force}"
        )
        self._terms = RunTerms(began=self._clock.now(), min_revisit=revisit, force=force)
        work, self.counts = self._store.hosts(chosen, self._terms)
        self._to_take = deque(
            in_order(work, visits.declared_delays.delays, visits.context.late_hosts)
        )
        self._busy: list[HostWork] = []  # hosts that another worker has
        self._is_waiting = False  # for these
        self._away: dict[str, _Away] = {}  # hosts that gave way to other workers
        self._pages: dict[str, list[DueSource]] = {}  # read, and not yielded yet
        self._unread: dict[str, _Unread] = {}  # of the hosts that this worker owns
        self.begun = 0  #: sources that were yielded

    async def due_urls(self) -> AsyncIterator[DueUrl]:
        """Yield the sources, as the scheduler takes them.

        A host is taken before its sources are read, so that no other worker visits them. The next
        page of a host is read when few of its requests remain. At the end, hosts of other workers
        are left to those that are alive and visit the same sources. For all others this worker
        waits, and visits the sources that a killed worker has not visited.
        """
        self._hosts.beat(self._selection_name, self._visits.number_entries)
        while await self._wait_for_hosts():
            host = await self._queue.next_short(or_room=bool(self._to_take))
            if host is None:
                host = await self._take_next()
            elif host in self._unread and self._hosts.should_give_way(host):
                self._give_way(host)
                continue
            if host is None:
                continue
            page = self._next_page(host)
            rest = self._unread[host].sources if host in self._unread else 0
            for number, due in enumerate(page, 1):
                if not self._hosts.has_for(host, self):
                    break  # the host was lost, so these rows may be old
                self._queue.frontier.expect(host, rest + len(page) - number)
                self._visits.begin(host, due)
                self.begun += 1
                yield DueUrl(due.source, due.record.address if due.record else due.source.url)
            if not page:
                self._queue.frontier.expect(host, rest)
            if not rest:
                self._hosts.let_go(host, self)

    async def _wait_for_hosts(self) -> bool:
        """Wait until a host can be taken or has sources left; return False at the end.

        The end has come if nothing is due, or only at hosts of living workers that visit it.
        """
        earlier: dict[str, OtherOwner] = {}
        idle = 0.0
        while not (self._unread or self._to_take):
            if not self._busy:
                return False
            earlier = earlier or self._hosts.owned_by_others()
            await sleep(BEAT_SECONDS)
            idle = 0.0 if self._queue.waiting or self._queue.in_flight else idle + BEAT_SECONDS
            if idle >= MAX_READING_SECONDS:  # another worker may wait for a host of this one
                self._hosts.abandon()
            owners = self._hosts.owned_by_others()
            living = {
                host: owner
                for host, owner in owners.items()
                if owner.expires_at > earlier.get(host, owner).expires_at
            }
            earlier = owners
            self._take_over_work(living, is_idle=idle > 0.0)
            if self._busy and not self._is_waiting:
                logger.info("waiting for other crawls, which have %d hosts", len(self._busy))
                self._is_waiting = True
        return True

    def _take_over_work(self, living: Mapping[str, OtherOwner], *, is_idle: bool) -> None:
        """Plan to take the hosts of workers that have died, if sources there are still due.

        ``living`` has the owners that have beaten lately. An idle worker leaves their hosts to
        those that visit the same sources. As long as it has work itself, it can wait for them.
        """
        free = [work for work in self._busy if work.host not in living]
        self._busy = [
            work
            for work in self._busy
            if work.host in living and not (is_idle and living[work.host].has_same_sources)
        ]
        if free:
            due = {work.host for work in self._store.hosts(self._chosen, self._terms)[0]}
            self._to_take.extend(work for work in free if work.host in due)

    async def _take_next(self) -> str | None:
        """Take the next host and return it; None if another worker owns it or has deferred it."""
        work = self._next_to_take()
        if work is None:
            await sleep(RECHECK_SECONDS)
            return None
        host = work.host
        away = self._away.get(work.host)
        rest = away.rest if away else _Unread(work.sources, FIRST_POSITION)
        pages: list[SourcePage] = []  # one for each attempt of the transaction
        try:
            status = self._queue.own(
                host, self, lambda connection: pages.append(self._page(connection, host, rest))
            )
        except StateUnavailable:  # the next try waits for a server that went away
            await sleep(RECHECK_SECONDS)
            return None
        self._to_take.remove(work)
        if status == "wait" and away:  # by a redirect, which is soon over
            self._stay_away(work, rest)
        elif status == "wait":
            self._busy.append(work)
        if status != "ready":
            return None
        self._away.pop(host, None)
        self._keep(host, rest, pages[-1])
        return host

    def _give_way(self, host: str) -> None:
        """Let a host go after its current visits: a redirect of another worker may wait for it."""
        rest = self._unread.pop(host)
        self._queue.frontier.expect(host, 0)
        self._hosts.let_go(host, self)
        self._stay_away(HostWork(host, rest.sources), rest)

    def _stay_away(self, work: HostWork, rest: _Unread) -> None:
        self._away[work.host] = _Away(rest, self._clock.monotonic() + AWAY_SECONDS)
        self._to_take.appendleft(work)

    def _next_to_take(self) -> HostWork | None:
        """Return the next host to take; None if all were left to other workers for a while.

        Such a host is taken again `AWAY_SECONDS` after it was let go.
        """
        now = self._clock.monotonic()
        for work in self._to_take:
            away = self._away.get(work.host)
            if away and self._hosts.has(work.host):  # still, for a redirect of this worker
                self._away[work.host] = away._replace(until=now + AWAY_SECONDS)
            elif away is None or now >= away.until:
                return work
        return None

    def _next_page(self, host: str) -> list[DueSource]:
        """Return the next sources of a host that has many; none if it was lost."""
        if not self._hosts.has_for(host, self):
            self._unread.pop(host, None)
        page = self._pages.pop(host, [])
        while not page and (rest := self._unread.get(host)):
            self._keep(host, rest, self._state.read(partial(self._page, host=host, rest=rest)))
            page = self._pages.pop(host)
        return page

    def _page(self, connection: Connection, host: str, rest: _Unread) -> SourcePage:
        """Read the next page of the sources of an owned host."""
        delay = self._hosts.delay(host) or self._visits.declared_delays.delays.get(host, 1.0)
        max_sources = max(1, int(MAX_PAGE_SOURCES / max(1.0, delay)))
        now = self._clock.now()
        return self._store.page_reader(
            self._chosen, self._terms, host, now, rest.begin, max_sources
        )(connection)

    def _keep(self, host: str, rest: _Unread, page: SourcePage) -> None:
        """Keep a page that was read, and the remaining sources of the host after it."""
        self._pages[host], place = page
        self._unread.pop(host, None)
        if place:
            self._unread[host] = _Unread(max(1, rest.sources - len(self._pages[host])), place)

    def report(self, stats: StatsCollector) -> None:
        """Count due sources and the others in the stats, and log the number of the others."""
        counts: SourceCounts = self.counts
        stats.set_value("walsh/sources/due", counts.due)
        if counts.gone:
            stats.set_value("walsh/sources/resting", counts.gone)
        if counts.later:
            stats.set_value("walsh/sources/not_due", counts.later)
            stats.set_value("walsh/sources/next_due", counts.next_due)
            sources = count_of(counts.later, "source")
            when = format_moment(counts.next_due)
            logger.info("not due yet: %s, the next one at %s", sources, when)
