"""Which declared sources are due: each is requested once a day or less (R8).

hosts with work, in the order of decision 6 -> as there is room: a page of their sources
-> the scheduler; a host with few requests left -> the next page of its sources
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.frontier import FEW, host_order
from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.state.agenda import FIRST, Terms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping

    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.politeness.schedulerqueue import SchedulerQueue
    from walsh_scrapy.runtime.context import Context, Pauses
    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.agenda import Counts, DueSource, HostWork, Place
    from walsh_scrapy.state.declared import Selection

logger = logging.getLogger(__name__)

#: Requests that a host has in memory at most; all others of it are a number.
MOST_OF_HOST: Final = 50
#: Hosts with few sources that are read at once.
_HOSTS_AT_ONCE: Final = 100


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
        *,
        force: bool = False,
    ) -> None:
        self._context = context
        self._queue = queue
        options = context.options
        terms = Terms(
            began=context.clock.now(),
            min_revisit=options.min_revisit,
            force=force,
            histories=context.state.sources.histories() if options.adaptive else None,
        )
        self._agenda = context.state.agenda(chosen, terms)
        hosts, self.counts = self._agenda.hosts()
        self._hosts = deque(in_order(hosts, pauses.intervals, context.late_hosts))
        self._read: deque[tuple[str, list[DueSource]]] = deque()
        self._rests: dict[str, _Rest] = {}

    async def each(self) -> AsyncIterator[DueUrl]:
        """Yield the sources, as the scheduler has room for them.

        A host with many sources gets the next ones when few of its requests are left. With another
        scheduler all of them come at once.
        """
        while self._rests or self._read or self._hosts:
            host = await self._queue.next_short(or_room=bool(self._read or self._hosts))
            if host is None:
                host, found = self._next_host()
            else:
                found = self._next_page(host)
            rest = self._rests[host].sources if host in self._rests else 0
            for left, each in zip(range(len(found) - 1, -1, -1), found, strict=True):
                self._queue.expect(host, rest + left)
                yield each
            if not found:
                self._queue.expect(host, rest)

    def _next_host(self) -> tuple[str, list[DueUrl]]:
        """Return the next host, and the URLs of the sources that it gets at first."""
        if self._read:
            host, found = self._read.popleft()
            return host, self._urls(found)
        work = self._hosts.popleft()
        if work.sources > MOST_OF_HOST:
            self._rests[work.host] = _Rest(work.sources, FIRST)
            return work.host, self._next_page(work.host, MOST_OF_HOST)
        names = [work.host]
        while self._hosts and len(names) < _HOSTS_AT_ONCE:
            if self._hosts[0].sources > MOST_OF_HOST:
                break
            names.append(self._hosts.popleft().host)
        self._read.extend(self._sources_of(names))
        return self._next_host()

    def _sources_of(self, names: list[str]) -> Iterable[tuple[str, list[DueSource]]]:
        """Return the due sources of hosts that have few."""
        found: dict[str, list[DueSource]] = {name: [] for name in names}
        place: Place | None = FIRST
        while place:
            page, place = self._agenda.sources(names, self._context.clock.now(), place)
            for each in page:
                found[each.host].append(each)
        return found.items()

    def _next_page(self, host: str, most: int = MOST_OF_HOST - FEW) -> list[DueUrl]:
        """Return the URLs of the next sources of a host that has many, about ``most``."""
        found: list[DueSource] = []
        while not found and (rest := self._rests.pop(host, None)):
            page, place = self._agenda.sources([host], self._context.clock.now(), rest.begin, most)
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


def in_order(
    hosts: Iterable[HostWork], intervals: Mapping[str, float], late: Collection[str]
) -> list[HostWork]:
    """Return hosts in the order of `policy.frontier.start_order`."""

    def order(work: HostWork) -> tuple[bool, float, float, float]:
        return *host_order(work.host, work.sources, work.since, intervals, late), work.position

    return sorted(hosts, key=order)


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
