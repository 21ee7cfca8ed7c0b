"""Which declared sources are due: each is requested once a day or less (R8).

hosts with work, in the order of decision 6 -> as there is room: the next one is taken
-> its sources -> the scheduler; a host with few requests left -> the next page of its sources
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy.utils.asyncio import sleep

from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.policy.frontier import FEW, in_order
from walsh_scrapy.policy.pacing import BEAT_SECONDS, RECHECK_SECONDS
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.state.agenda import FIRST, Terms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.crawl.context import Context, Pauses
    from walsh_scrapy.crawl.hosts import Hosts
    from walsh_scrapy.crawl.queue import Queue
    from walsh_scrapy.policy.frontier import HostWork
    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.agenda import Counts, DueSource, Place
    from walsh_scrapy.state.declared import Selection

logger = logging.getLogger(__name__)

#: Requests that a host has in memory at most; all others of it are a number.
MOST_OF_HOST: Final = 50


#: Seconds that the reading of a document never takes.
_LONGEST_READING: Final = 60.0


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

    def __init__(
        self,
        context: Context,
        chosen: Selection,
        pauses: Pauses,
        queue: Queue,
        hosts: Hosts,
        *,
        force: bool = False,
    ) -> None:
        self._context = context
        self._queue = queue
        self._hosts = hosts
        options = context.options
        terms = Terms(began=context.clock.now(), min_revisit=options.min_revisit, force=force)
        self._agenda = context.state.agenda(chosen, terms)
        work, self.counts = self._agenda.hosts()
        self._left = deque(in_order(work, pauses.delays, context.late_hosts))
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
                self._queue.expect(host, rest + left)
                self._hosts.begin_visit(host, each.source)
                self.begun += 1
                yield each
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
            due, _ = self._agenda.hosts()
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

    def _next_page(self, host: str) -> list[DueUrl]:
        """Return the URLs of the next sources of a host that has many."""
        found: list[DueSource] = []
        most = MOST_OF_HOST - FEW
        while not found and (rest := self._rests.pop(host, None)):
            now = self._context.clock.now()
            page, place = self._agenda.sources([host], now, rest.begin, most)
            found += page
            if place:
                self._rests[host] = _Rest(max(1, rest.sources - len(page)), place)
        return self._urls(found)

    def _urls(self, found: Iterable[DueSource]) -> list[DueUrl]:
        """Return the URLs to request; rename records whose URL has a new spelling in the file."""
        store = self._context.state.sources
        spellings: dict[str, str] = {}
        urls = []
        for source, record, *_ in found:
            if record.url != source.url:  # as another file spells it
                spellings[record.url] = source.url
            urls.append(DueUrl(source, record.with_url(source.url).address))
        if spellings:
            store.rename(spellings)
        return urls


def report(stats: StatsCollector, counts: Counts) -> None:
    """Count the due sources and the others in the stats, and log how many are not due."""
    stats.set_value("walsh/sources/due", counts.due)
    if counts.gone:
        stats.set_value("walsh/sources/resting", counts.gone)
    if counts.later:
        stats.set_value("walsh/sources/not_due", counts.later)
        stats.set_value("walsh/sources/next_due", counts.next_due)
        sources, when = count_of(counts.later, "source"), format_moment(counts.next_due)
        logger.info("not due yet: %s, the next one at %s", sources, when)
