"""Which declared sources are due: each is requested once a day or less (R8).

hosts with work, in the order of decision 6 -> as there is room: a claim of some of them
-> their sources -> the scheduler; a host with few requests left -> the next page of its sources
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy.utils.asyncio import sleep

from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.policy.claims import (
    BEAT_SECONDS,
    WORK_AT_A_TIME,
    HostWork,
    enough_ready,
    in_order,
    one_claim,
    surplus,
)
from walsh_scrapy.policy.frontier import FEW
from walsh_scrapy.policy.hosttimes import RECHECK_SECONDS
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.runtime.requests import source_of
from walsh_scrapy.state.agenda import FIRST, Terms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.politeness.schedulerqueue import SchedulerQueue
    from walsh_scrapy.politeness.worker import Worker
    from walsh_scrapy.runtime.context import Context, Pauses
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
        queue: SchedulerQueue,
        worker: Worker,
        *,
        force: bool = False,
    ) -> None:
        self._context = context
        self._queue = queue
        self._worker = worker
        self._pauses = pauses
        options = context.options
        terms = Terms(began=context.clock.now(), min_revisit=options.min_revisit, force=force)
        self._agenda = context.state.agenda(chosen, terms)
        hosts, self.counts = self._agenda.hosts()
        self._hosts = deque(in_order(hosts, pauses.intervals, context.late_hosts))
        self._left = sum(each.requests for each in self._hosts)
        self._busy: list[HostWork] = []  # hosts that another process has
        self._is_waiting = False  # for these
        self._read: dict[str, list[DueSource]] = {}  # of claimed hosts
        self._rests: dict[str, _Rest] = {}
        self.begun = 0  #: sources that were yielded, and not given back
        self._workers = 1
        self._ahead: set[str] = set()  # hosts that were claimed while this worker was alone
        worker.counted = self._share

    async def each(self) -> AsyncIterator[DueUrl]:
        """Yield the sources, as the scheduler has room for them.

        A host with many sources gets the next ones when few of its requests are left. With another
        scheduler all of them come at once. At the end, hosts that other workers have are waited
        for: what a worker leaves that is killed is done here.
        """
        while await self._has_more():
            is_more = bool(self._read or self._hosts)
            host = await self._queue.next_short(or_room=is_more)
            if host is not None:
                found = self._next_page(host)
            elif self._read:
                host, found = self._next_host()
            else:
                try:
                    self._claim()
                except StateUnavailable:  # the next try waits for a server that went away
                    await sleep(RECHECK_SECONDS)
                continue
            rest = self._rests[host].sources if host in self._rests else 0
            for left, each in zip(range(len(found) - 1, -1, -1), found, strict=True):
                self._queue.expect(host, rest + left)
                self._worker.begin(host, each.source)
                self.begun += 1
                yield each
            if not found:
                self._queue.expect(host, rest)
            if not rest:
                self._worker.complete(host)

    async def _has_more(self) -> bool:
        """Return False if nothing is due any more that no other worker has done.

        What waits in the scheduler is waited for: it may be given back.
        """
        idle = 0.0
        while not (self._rests or self._read or self._hosts):
            if not self._busy:
                if not self._queue.waiting:
                    return False
                await self._queue.wait_for_change()
                continue
            if not self._is_waiting:
                logger.info("waiting for other crawls, which have %d hosts", len(self._busy))
            self._is_waiting = True
            seconds = BEAT_SECONDS if len(self._busy) > WORK_AT_A_TIME else RECHECK_SECONDS
            await sleep(seconds)
            idle = 0.0 if self._queue.waiting or self._queue.asked else idle + seconds
            if idle >= _LONGEST_READING:  # another worker may wait for what is claimed here
                self._worker.abandon()
            self._hosts.extend(self._busy)
            self._left = sum(each.requests for each in self._busy)
            self._busy.clear()
        return True

    def _claim(self) -> None:
        """Claim the next hosts, and read their sources."""
        work = one_claim(self._hosts, self._left, self._workers)
        ours, busy = self._worker.claim(work)
        got = {each.host: each for each in work if each.host in ours}
        few = [host for host in got if got[host].sources <= MOST_OF_HOST]
        self._read |= self._sources_of(few)
        for host in got.keys() - few:
            self._rests[host] = _Rest(got[host].sources, FIRST)
            self._queue.expect(host, got[host].sources)
        self._busy += [each for each in work if each.host in busy]
        for each in work:
            self._hosts.popleft()
            self._left -= each.requests

    def _next_host(self) -> tuple[str, list[DueUrl]]:
        """Return the next host that was read, and the URLs of its sources."""
        host = next(iter(self._read))
        return host, self._urls(self._read.pop(host))

    def _share(self, workers: int) -> None:
        """Claim as many workers do; give back what is too much if another one has come.

        What is under way then, or waits for a document, is given back later.
        """
        was_alone, self._workers = self._workers == 1, workers
        self._queue.enough = enough_ready(workers)
        if was_alone:
            self._ahead = set(self._worker.hosts)
        if workers > 1 and self._ahead:
            self._give_back()

    def _give_back(self) -> None:
        """Give hosts back, but for those of one claim: whatever is not under way there."""
        self._ahead.intersection_update(self._worker.hosts)
        idle, visits = [], self._worker.visits()
        for host, waiting in self._queue.at_rest().items():
            if host not in self._ahead:
                continue
            visited = {source.url for each in waiting if (source := source_of(each))}
            if len(visited) == len(waiting) and visited == visits.get(host):
                idle.append(HostWork(host, len(visited)))
        found = self._read.items()
        read = [HostWork(host, len(each)) for host, each in found if host in self._ahead]
        back = surplus((*idle, *read))
        for host, sources, *_ in back:
            if self._read.pop(host, None) is None:
                self._queue.drop(host)
                self.begun -= sources
        self._worker.give_back({each.host for each in back})
        self._hosts.extendleft(reversed(back))
        self._left += sum(each.requests for each in back)

    def _sources_of(self, names: list[str]) -> dict[str, list[DueSource]]:
        """Return the due sources of hosts that have few."""
        found: dict[str, list[DueSource]] = {name: [] for name in names}
        place: Place | None = FIRST if names else None
        while place:
            page, place = self._agenda.sources(names, self._context.clock.now(), place)
            for each in page:
                found[each.host].append(each)
        return found

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
