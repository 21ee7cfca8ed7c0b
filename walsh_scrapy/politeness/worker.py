"""A crawl as one of the workers of its state: it claims hosts, and gives them up (decision 41)."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import create_looping_call

from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.policy.claims import BEAT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from scrapy.utils.asyncio import AsyncioLoopingCall
    from twisted.internet.task import LoopingCall

    from walsh_scrapy.policy.claims import HostWork
    from walsh_scrapy.runtime.context import Context
    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.claims import Claimed


class Worker:
    """The hosts that a crawl has claimed, and the visits there that have not ended.

    A host is given up when all its due sources were visited, in the transaction of the last visit
    if that is possible. A crawl without declared sources claims nothing.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._began = context.started_at
        self._timer: AsyncioLoopingCall | LoopingCall | None = None
        self._hosts: dict[str, str] = {}  # by the URL of a source that is visited
        self._visits: dict[str, int] = {}  # by claimed host
        self._complete: set[str] = set()  # claimed hosts whose sources are all begun
        self._put_off: set[str] = set()
        self.workers = 1  #: that share the state, as far as is known
        #: Called with that number as often as it is asked for.
        self.counted: Callable[[int], None] = lambda _: None

    def claim(self, work: Sequence[HostWork]) -> Claimed:
        """Claim hosts. The first call says that this worker lives, and goes on saying so."""
        if self._timer is None:
            self._timer = create_looping_call(self._renew)
            self._timer.start(BEAT_SECONDS)
        claimed = self._context.state.ledger.claim([each.host for each in work], self._began)
        self._visits.update(dict.fromkeys(claimed.ours, 0))
        return claimed

    def begin(self, host: str, source: Source) -> None:
        """Count a visit at a claimed host."""
        self._hosts[source.url] = host
        self._visits[host] += 1

    def complete(self, host: str) -> None:
        """Note that all visits at a claimed host have begun."""
        self._complete.add(host)
        self._give_up(host)

    def finish(self, source: Source) -> None:
        """Give the host of a visit up with the commit that follows, if it is the last visit."""
        host = self._hosts.get(source.url)
        if host in self._complete and host not in self._put_off and self._visits[host] == 1:
            self._context.state.ledger.finish(host)

    def ended(self, source: Source, *, put_off: bool = False) -> None:
        """Note that a visit has ended; with ``put_off`` its source is still due."""
        host = self._hosts.pop(source.url, None)
        if host is None:
            return
        self._visits[host] -= 1
        if put_off:
            self._put_off.add(host)
        self._give_up(host)

    @property
    def hosts(self) -> Collection[str]:
        """The hosts that it has claimed."""
        return self._visits.keys()

    def visits(self) -> Mapping[str, set[str]]:
        """Return the sources that are visited, by their URLs, of hosts where all have begun."""
        found = defaultdict[str, set[str]](set)
        for url, host in self._hosts.items():
            if host in self._complete:
                found[host].add(url)
        return found

    def give_back(self, hosts: Collection[str]) -> None:
        """Give hosts up, all of whose visits wait: another worker makes them."""
        self._hosts = {url: host for url, host in self._hosts.items() if host not in hosts}
        for host in hosts:
            del self._visits[host]
        self._complete.difference_update(hosts)
        self._put_off.difference_update(hosts)
        with suppress(StateUnavailable):
            self._context.state.ledger.unclaim(hosts)

    def abandon(self) -> None:
        """Give up all hosts: visits there have not ended, although nothing is under way."""
        names = [*self._visits]
        self._hosts.clear()
        self._visits.clear()
        self._complete.clear()
        self._put_off.clear()
        with suppress(StateUnavailable):
            self._context.state.ledger.unclaim(names, put_off=True)

    def let_go(self, urls: Sequence[str]) -> None:
        """Give up the hosts of URLs, which were claimed with their leases, unless visits go on."""
        hosts = {self._context.host(url) for url in urls} - self._visits.keys()
        with suppress(StateUnavailable):  # then the claims run out
            self._context.state.ledger.unclaim(hosts)

    def close(self) -> None:
        """Give all hosts up: the crawl ends."""
        if self._timer is not None:
            self._timer.stop()
        with suppress(StateUnavailable):  # then the claims run out
            self._context.state.ledger.leave()

    def _give_up(self, host: str) -> None:
        if host not in self._complete or self._visits[host]:
            return
        self._complete.remove(host)
        del self._visits[host]
        put_off = host in self._put_off
        self._put_off.discard(host)
        with suppress(StateUnavailable):  # then the claim runs out
            self._context.state.ledger.unclaim([host], put_off=put_off)

    def _renew(self) -> None:
        with suppress(StateUnavailable):
            self.workers = self._context.state.ledger.renew(self._context.run, self._began)
            self.counted(self.workers)
