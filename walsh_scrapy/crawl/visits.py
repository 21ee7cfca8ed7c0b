"""The visits of a crawl, from the state's list of what is due to requests (R6, R8).

hosts with work, in the order of decision 6 -> as there is room: the next one is taken
-> its sources -> the scheduler; a host with few requests left -> the next page of its sources
"""

from __future__ import annotations

import logging
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy.utils.asyncio import sleep

from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.policy.frontier import FEW, in_order
from walsh_scrapy.policy.pacing import BEAT_SECONDS, RECHECK_SECONDS
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.sources import declared_urls
from walsh_scrapy.state.sources import FIRST, DeclaredSources, Terms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.crawl.context import Context, Pauses
    from walsh_scrapy.crawl.hosts import Hosts
    from walsh_scrapy.crawl.queue import Queue
    from walsh_scrapy.policy.frontier import HostWork
    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.records import SourceRecord
    from walsh_scrapy.state.sources import Counts, DueSource, Place, Selection

logger = logging.getLogger(__name__)

#: Requests that a host has in memory at most; all others of it are a number.
MOST_OF_HOST: Final = 50
#: Seconds that the reading of a document never takes.
_LONGEST_READING: Final = 60.0


class Visits:
    """The sources that a crawl may visit, and what is known of those that it visits now."""

    def __init__(
        self, crawler: Crawler, context: Context, pauses: Pauses, queue: Queue, hosts: Hosts
    ) -> None:
        self.context = context
        self.pauses = pauses
        self.queue = queue
        self.hosts = hosts
        self._crawler = crawler  # its spider is made later
        self._begun: dict[str, DueSource] = {}  # by the URLs of their sources

    def begin(self, host: str, due: DueSource) -> None:
        """Begin the visit of a source, and own its host until it ends."""
        self._begun[due.source.url] = due
        self.hosts.begin_visit(host, due.source)

    def end(self, source: Source, *, deferred: bool = False) -> None:
        """Note that a visit has ended; with ``deferred`` its source is still due."""
        self._begun.pop(source.url, None)
        self.hosts.end_visit(source, deferred=deferred)

    def is_begun(self, source: Source) -> bool:
        """Return True if a visit that was due goes on; else its spider requests it by itself."""
        return source.url in self._begun

    def known(self, source: Source) -> SourceRecord | None:
        """Return what is known of a source: as its visit began, since nobody else changes it."""
        if due := self._begun.get(source.url):
            return due.record
        found = self.context.state.sources.find(source.url)
        return found and found.with_url(source.url)

    def owner(self, url: str) -> Source | None:
        """Return the source that declares a URL, or None.

        Those of a sources file are looked up in the state, those that a spider set in memory.
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
    """A source that is due, and the URL to request: its own, or where it moved to."""

    source: Source
    url: str


class _Rest(NamedTuple):
    """What of a host is still to come: about how many sources, and where they begin."""

    sources: int
    begin: Place


class DueSources:
    """The sources that a run asks for, in the order of their requests.

    ``force`` ignores the due times, but no gate (decision 20). A source that is gone (410) is left
    out until the operator resumes it (`scrapy sources resume`). Raises StateUnavailable if the
    state fails.
    """

    def __init__(self, visits: Visits, chosen: Selection, *, force: bool = False) -> None:
        self._visits = visits
        self._queue = visits.queue
        self._hosts = visits.hosts
        self._clock = visits.context.clock
        self._store = visits.context.state.sources
        self._chosen = chosen
        revisit = visits.context.options.min_revisit
        self._terms = Terms(began=self._clock.now(), min_revisit=revisit, force=force)
        work, self.counts = self._store.hosts(chosen, self._terms)
        self._left = deque(in_order(work, visits.pauses.delays, visits.context.late_hosts))
        self._busy: list[HostWork] = []  # hosts that another worker has
        self._is_waiting = False  # for these
        self._rests: dict[str, _Rest] = {}  # of the hosts that this worker owns
        self.begun = 0  #: sources that were yielded

    async def each(self) -> AsyncIterator[DueUrl]:
        """Yield the sources, as the scheduler has room for them.

        A host is taken before its sources are read, so that no other worker visits them. A host
        with many sources gets the next ones when few of its requests are left. At the end, hosts
        that other workers have are waited for: what a worker leaves that is killed is done here.
        """
        self._hosts.beat()
        while await self._has_more():
            host = await self._queue.next_short(or_room=bool(self._left))
            if host is None and (host := await self._take_next()) is None:
                continue
            found = self._next_page(host)
            rest = self._rests[host].sources if host in self._rests else 0
            for left, each in zip(range(len(found) - 1, -1, -1), found, strict=True):
                if not self._hosts.has_for(host, self):
                    break  # it was lost meanwhile, so what was read of it may be old
                self._queue.expect(host, rest + left)
                self._visits.begin(host, each)
                self.begun += 1
                yield DueUrl(each.source, each.record.address if each.record else each.source.url)
            if not found:
                self._queue.expect(host, rest)
            if not rest:
                self._hosts.let_go(host, self)

    async def _has_more(self) -> bool:
        """Return False if nothing is due any more that no other worker has done."""
        idle = 0.0
        while not (self._rests or self._left):
            if not self._busy:
                return False
            if not self._is_waiting:
                logger.info("waiting for other crawls, which have %d hosts", len(self._busy))
            self._is_waiting = True
            await sleep(BEAT_SECONDS)
            idle = 0.0 if self._queue.waiting or self._queue.asked else idle + BEAT_SECONDS
            if idle >= _LONGEST_READING:  # another worker may wait for what this one owns
                self._hosts.abandon()
            due, _ = self._store.hosts(self._chosen, self._terms)
            still_due = {work.host for work in due}
            self._left.extend(work for work in self._busy if work.host in still_due)
            self._busy.clear()
        return True

    async def _take_next(self) -> str | None:
        """Take the next host, and return it; None if another worker has it, or did its work."""
        work = self._left[0]
        try:
            taken = self._queue.own(work.host, self)
        except StateUnavailable:  # the next try waits for a server that went away
            await sleep(RECHECK_SECONDS)
            return None
        self._left.popleft()
        if taken == "busy":
            self._busy.append(work)
        if taken != "ours":
            return None
        self._rests[work.host] = _Rest(work.sources, FIRST)
        return work.host

    def _next_page(self, host: str) -> list[DueSource]:
        """Return the next sources of a host that has many; none if it was lost."""
        found: list[DueSource] = []
        if not self._hosts.has_for(host, self):
            self._rests.pop(host, None)
        most = MOST_OF_HOST - FEW
        while not found and (rest := self._rests.pop(host, None)):
            now = self._clock.now()
            page, place = self._store.page(self._chosen, self._terms, host, now, rest.begin, most)
            found += page
            if place:
                self._rests[host] = _Rest(max(1, rest.sources - len(page)), place)
        return found

    def report(self, stats: StatsCollector) -> None:
        """Count the due sources and the others in the stats, and log how many are not due."""
        counts: Counts = self.counts
        stats.set_value("walsh/sources/due", counts.due)
        if counts.gone:
            stats.set_value("walsh/sources/resting", counts.gone)
        if counts.later:
            stats.set_value("walsh/sources/not_due", counts.later)
            stats.set_value("walsh/sources/next_due", counts.next_due)
            sources, when = count_of(counts.later, "source"), format_moment(counts.next_due)
            logger.info("not due yet: %s, the next one at %s", sources, when)
