"""The hosts that this crawl owns: taken before they are asked, and let go afterwards (decision 41).

A crawl is one of the workers of its state. It takes a host before it reads what it must know of it.
Until it lets the host go, no other worker asks the host.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from scrapy import Request
from scrapy.utils.asyncio import create_looping_call

from walsh_scrapy.exceptions import StateUnavailable
from walsh_scrapy.policy.claims import BEAT_SECONDS
from walsh_scrapy.runtime.requests import source_of

if TYPE_CHECKING:
    from scrapy.utils.asyncio import AsyncioLoopingCall
    from twisted.internet.task import LoopingCall

    from walsh_scrapy.runtime.context import Context
    from walsh_scrapy.sources import Source

#: What came of an attempt to own a host: another worker has it now, or has deferred it.
Taken: TypeAlias = Literal["ours", "busy", "deferred"]
#: Ready hosts with which a worker takes no further one: alone it has the names of some looked up.
_ENOUGH_ALONE: Final = 8
_ENOUGH_OF_SEVERAL: Final = 1


class Hosts:
    """The hosts that a crawl owns, each as long as there is a reason.

    Reasons are visits (the URL of their source), requests, and any other object. A host is let go
    with its last reason.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._timer: AsyncioLoopingCall | LoopingCall | None = None
        self._reasons: dict[str, set[object]] = {}  # by host
        self._visits: dict[str, str] = {}  # the host of each, by the URL of its source
        self._deferred: set[str] = set()  # given up for the run
        self.workers = 1  #: that share the state, as far as is known

    @property
    def enough(self) -> int:
        """With how many ready hosts this worker takes no further one."""
        return _ENOUGH_ALONE if self.workers <= 1 else _ENOUGH_OF_SEVERAL

    def beat(self) -> None:
        """Say that this worker lives, and go on saying so: it owns hosts for whole visits."""
        if self._timer is None:
            self._timer = create_looping_call(self._beat)
            self._timer.start(BEAT_SECONDS)

    def take(self, host: str, reason: object) -> Taken:
        """Own a host, if no other worker does and none has deferred it since this run began."""
        if host not in self._reasons:
            claimed = self._context.state.ledger.claim([host], self._context.started_at)
            if not claimed.ours:
                return "busy" if claimed.busy else "deferred"
            self._reasons[host] = set()
        self._reasons[host].add(reason)
        return "ours"

    def has(self, host: str) -> bool:
        """Return True if this crawl owns a host."""
        return host in self._reasons

    def keep(self, host: str, reason: object) -> None:
        """Add a reason to own a host that is owned; a visit is the reason of its requests."""
        reasons = self._reasons.get(host)
        if reasons is not None and _visit(reason) not in reasons:
            reasons.add(reason)

    def begin_visit(self, host: str, source: Source) -> None:
        """Own a host until the visit of a source there has ended."""
        self._visits[source.url] = host
        self._reasons[host].add(source.url)

    def finish_visit(self, source: Source) -> None:
        """Let the host of a visit go with the commit that follows, if it is the last visit."""
        host = self._visits.get(source.url, "")
        if self._reasons.get(host) == {source.url} and host not in self._deferred:
            self._context.state.ledger.finish(host)

    def end_visit(self, source: Source, *, deferred: bool = False) -> None:
        """Note that a visit has ended; with ``deferred`` its source is still due."""
        if host := self._visits.pop(source.url, None):
            self.let_go(host, source.url, deferred=deferred)

    def let_go(self, host: str, reason: object, *, deferred: bool = False) -> None:
        """End a reason to own a host; with ``deferred`` some of its work is left to a later run."""
        reasons = self._reasons.get(host)
        if reasons is None or reason not in reasons:
            return
        reasons.remove(reason)
        if deferred:
            self._deferred.add(host)
        if not reasons:
            self._let_go(host)

    def abandon(self) -> None:
        """Let go of all hosts: their visits have not ended, although nothing is under way."""
        self._visits.clear()
        for host in list(self._reasons):
            self._deferred.add(host)
            self._let_go(host)

    def close(self) -> None:
        """Let go of all hosts: the crawl ends."""
        if self._timer is not None:
            self._timer.stop()
        with suppress(StateUnavailable):  # then the claims run out
            self._context.state.ledger.leave()

    def _let_go(self, host: str) -> None:
        del self._reasons[host]
        deferred = host in self._deferred
        self._deferred.discard(host)
        with suppress(StateUnavailable):  # then the claim runs out
            self._context.state.ledger.unclaim([host], put_off=deferred)

    def _beat(self) -> None:
        with suppress(StateUnavailable):
            context = self._context
            self.workers = context.state.ledger.renew(context.run, context.started_at)


def _visit(reason: object) -> str | None:
    """Return the URL of the source that a request is for, if any: it stands for the visit."""
    source = source_of(reason) if isinstance(reason, Request) else None
    return source.url if source else None
