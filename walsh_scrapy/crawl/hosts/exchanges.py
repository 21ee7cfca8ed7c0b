"""Exchanges: one request to a host, from its start to its end (R4).

    begin -> sent -> answered, failed or cancelled -> end
          -> never sent -> withdraw

There is one at a time with a host, and under ``WALSH_SERIAL`` with all hosts together. Pacing and
the log get its end, whichever way it ended.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from walsh_scrapy.crawl.context import PerLoop
from walsh_scrapy.crawl.failures import NEVER_REACHED, reason_of
from walsh_scrapy.crawl.hosts.ownedhosts import HostLost
from walsh_scrapy.crawl.startup import Gate, Kind
from walsh_scrapy.crawl.ticket import (
    evidence_of,
    limit_to_visit,
    note,
    rank_of,
    restore_limits,
    subject_of,
    ticket_of,
)
from walsh_scrapy.exceptions import (
    Denied,
    MachineTrouble,
    NotReached,
    ProxyTrouble,
    StateUnavailable,
    StoodStill,
    TooLate,
    Unreachable,
    VisitTimeout,
)
from walsh_scrapy.policy.backoff import SERVER_ERRORS, is_redirect, requested_wait
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import (
    MARGIN,
    MAX_TIMEOUT_SECONDS,
    RECHECK_SECONDS,
    Exchange,
    HostLoads,
    delay_after,
    longest_wait,
)
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.state.evidence import RequestRecord
from walsh_scrapy.state.ownership import RequestLimits
from walsh_scrapy.wire.stalls import stalled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.crawl.hosts.ownedhosts import BeginResult
    from walsh_scrapy.crawl.parts import Crawl

_PURPOSES: Final = {Rank.OPERATOR: "blocklist", Rank.ROBOTS: "robots", Rank.TARGET: "target"}

#: The headers of a conditional request (R7).
_CONDITIONS: Final = ("If-None-Match", "If-Modified-Since")


class _Begun(NamedTuple):
    at: float  #: by the monotonic clock
    stalled: float  #: seconds for which the process had stood still until then
    until: float  #: its latest possible end: its timeout, and the margin of its host


class _Traffic:
    """The exchanges in progress, and the lock of the request that is sent next."""

    def __init__(self) -> None:
        self.begun: WeakKeyDictionary[Request, _Begun] = WeakKeyDictionary()
        self.ended = asyncio.Event()
        self.next = asyncio.Lock()  # held by the request that is sent once none is in flight

    @property
    def until(self) -> float:
        """The latest possible end of all, by the monotonic clock; 0 if none is in progress."""
        return max((exchange.until for exchange in self.begun.values()), default=0.0)


#: Shared by all serial crawls of this process, because R4 allows one request at a time in it.
_SERIAL = PerLoop(_Traffic)


class Exchanges:
    """The exchanges of one crawl. Methods raise StateUnavailable if the state fails."""

    def __init__(self, crawl: Crawl) -> None:
        context = crawl.context
        self._is_own = crawl.kind is Kind.OWN
        self._context = context
        self._engine = crawl.engine
        self._hosts = crawl.hosts
        self._queue = crawl.queue
        self._access = crawl.access
        self._deferred_hosts = context.deferred_hosts
        self._declared_delays = crawl.declared_delays
        self._timeout = crawl.settings.getfloat("DOWNLOAD_TIMEOUT")
        self._settles_urls = Gate.ADDRESS in crawl.gates
        self._loads = HostLoads()
        self._left: WeakSet[Request] = WeakSet()
        self._responses: WeakKeyDictionary[Request, Response] = WeakKeyDictionary()
        urls = context.options.blocklist_url, context.options.blocklist_schema_url
        self._list_names = frozenset(host_of(url) for url in urls if url)

    @cached_property
    def _traffic(self) -> _Traffic:
        return _SERIAL.get() if self._context.options.serial else _Traffic()

    # ---- begin ----

    async def begin(self, request: Request, *, while_open: bool = False) -> float:
        """Begin an exchange and return 0, or return the seconds after which to try again.

        Raises RequestDeferred or Unreachable if the host was deferred, or must wait too long,
        VisitTimeout if the visit has no time left, and HostLost if the host of a visit was lost,
        because another worker may have made the visit.
        With ``while_open`` it raises RequestDeferred when the crawl ends.
        """
        async with self.quiet():
            if while_open and self._engine.is_closing:
                raise self._access.make_deferral("the crawl ends")
            result = self._begin(request)
        seconds = result.wait
        if result.status == "lost":
            if subject_of(request) is not None:
                host = self._context.host(request.url)
                reason = f"{host} was lost to another worker"
                raise HostLost(self._context.clock.now(), reason)
            seconds = RECHECK_SECONDS
        self._access.check_wait(request, seconds)
        return seconds

    def _begin(self, request: Request) -> BeginResult:
        """Begin an exchange; see ``Hosts.begin``."""
        ticket = ticket_of(request)
        name = host_of(request.url)
        if self._settles_urls:
            self._check_address(request)
        restore_limits(request)
        timeout = request.meta.get("download_timeout") or self._timeout
        timeout = limit_to_visit(request, min(timeout, MAX_TIMEOUT_SECONDS))
        request.meta["download_timeout"] = timeout
        self._deferred_hosts.check(request.url, ticket.rank)
        host = self._context.host(request.url)
        max_wait = longest_wait(
            name, ticket.rank, self._list_names, for_blocklist=ticket.for_blocklist
        )
        delay = max(self._delay(request), self._hosts.project_delay(host))
        limits = RequestLimits(delay, timeout, max_wait)
        result = self._hosts.begin(request, host, limits, self._record(request))
        if result.status == "ready":
            # In the slot of another host it would wait for that host, and its time would be over.
            request.meta["download_slot"] = host
            note(
                request,
                released=True,
                reached=False,
                connecting=0.0,
                sent=None,
                answered=None,
                from_gateway=False,
            )
            now = self._context.clock.monotonic()
            self._traffic.begun[request] = _Begun(now, stalled(), now + timeout + MARGIN)
        return result

    def _check_address(self, request: Request) -> None:
        """Raise Denied or RequestDeferred for a request that AddressMiddleware has not let pass."""
        if not ticket_of(request).settled:
            raise Denied("address", f"{request.url} is not the URL that all gates have checked")
        if (seconds := self._access.seconds_after_redirect(request)) > 0.0:
            raise self._access.make_deferral("its redirect asked for a longer wait", seconds)

    def quiet(self) -> AbstractAsyncContextManager[None]:
        """Wait until no request of the process is in flight, if the crawl is serial.

        Requests that wait enter one at a time.
        """
        return self._quiet_process() if self._context.options.serial else nullcontext()

    @asynccontextmanager
    async def _quiet_process(self) -> AsyncIterator[None]:
        traffic = self._traffic
        async with traffic.next:
            while (seconds := traffic.until - self._context.clock.monotonic()) > 0:
                traffic.ended.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(traffic.ended.wait(), min(seconds, RECHECK_SECONDS))
                self.sweep()
            yield

    # ---- end ----

    def end(
        self, request: Request, response: Response | None, error: Exception | None = None
    ) -> None:
        """End an exchange, if it has not ended yet: the delay of its host counts from now.

        A response that was downloaded counts as it came: a middleware nearer to the wire may have
        changed or hidden it. ``error`` is how it ended without one, if that is known (decision 2).
        """
        latency = self._over(request)
        if latency is None:
            return
        response = self._responses.pop(request, response)
        host = self._hosts.host_of(request)
        name = host_of(request.url)
        exchange = self._exchange(request, response, latency, error)
        if name != host:
            exchange = exchange.of_domain()
        record = replace(
            self._record(request),
            requested_at=self._context.clock.now() - latency,
            status=ticket_of(request).answered if response is None else response.status,
            duration=latency,
            monotonic=self._context.clock.monotonic(),
            error="" if response is not None else _words(error, request.url),
            retry_after=exchange.retry_after,
            has_validator=response is not None and _has_validator(response),
        )
        snapshot = self._hosts.end(request, host, exchange, record)
        seconds = latency + ticket_of(request).connecting
        note(request, hold=snapshot.hold, seconds=seconds)
        if is_redirect(exchange.status) and exchange.retry_after:
            # A redirect's Retry-After holds for the request that follows it, at whatever host.
            not_before = self._context.clock.monotonic() + exchange.retry_after
            note(request, not_before=not_before)
        if response is not None and response.status == 200 and rank_of(request) is Rank.TARGET:
            self._context.project_delays.record_page(host)
        asked_delay = self._hosts.project_delay(host)
        wait = snapshot.times.ready_at(asked_delay) - snapshot.now
        until = snapshot.now + snapshot.hold
        if isinstance(error, Unreachable) and not self._is_own:
            self._deferred_hosts.add_unreachable(request.url, error, rank_of(request), until)
            if not error.is_of_origin:
                self._hosts.give_up(name)
        elif isinstance(error, ProxyTrouble):
            self._deferred_hosts.add(name, str(error), error.until)
        if reason := self._add_time(request, host, seconds, error):
            self._deferred_hosts.add_paced(request.url, reason, until)
            self._hosts.give_up(host)
        self._queue.delay(host, wait, max(snapshot.times.delay, asked_delay), latency)
        self.let_go_inline(request, host)

    def _add_time(
        self, request: Request, host: str, seconds: float, error: Exception | None
    ) -> str | None:
        """Add the seconds of an exchange to those of its visit and of its host (decision 46).

        Returns why the host is deferred from now on, or None. A request without a visit is not
        counted, nor is trouble of this machine or of a proxy.
        """
        time = ticket_of(request).visit_time
        if time is None or isinstance(error, MachineTrouble):
            return None
        time.seconds += seconds
        return self._loads.add(host, seconds)

    def was_sent(self, request: Request, error: Exception) -> bool:
        """Return True if a request went to its host before an error came."""
        if request in self._responses:  # the error is of a middleware nearer to the wire
            return True
        is_ours = isinstance(error, MachineTrouble | Denied | TooLate)
        was_begun = isinstance(error, StoodStill | ProxyTrouble)
        return ticket_of(request).reached and (was_begun or not is_ours)

    def withdraw(self, request: Request, error: Exception) -> None:
        """End the exchange of a request that was never sent; the request log forgets it."""
        if self._over(request) is None:
            return
        host = self._hosts.host_of(request)
        self._hosts.withdraw(request, host)
        self.let_go_inline(request, host)
        if isinstance(error, MachineTrouble):
            self._deferred_hosts.add(host_of(request.url), str(error), error.until)
            self._queue.recheck(host)

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Keep a response, and end the exchange of a cancelled request: it passes no middleware.

        A request made by ``engine.download_async`` may be cancelled; its exchange continues.
        """
        self._responses[request] = response
        if not self._engine.is_active(request):
            self._end_cancelled(request, response)

    def left_downloader(self, request: Request) -> None:
        """End the exchange of a cancelled request that failed."""
        self._left.add(request)
        if not self._engine.is_active(request):
            self._end_cancelled(request, None)

    def _end_cancelled(self, request: Request, response: Response | None) -> None:
        with suppress(StateUnavailable):  # the crawl ends, and has said why
            self.end(request, response)

    def sweep(self) -> None:
        """End the exchanges that are over without an event.

        A middleware nearer to the wire may have hidden the response, or have raised an exception.
        A cancelled request is not active any longer, but its exchange goes on until it has left the
        downloader.
        """
        in_flight = self._hosts.in_flight
        for request in self._engine.find_ended(in_flight) if in_flight else ():
            if not ticket_of(request).reached or request in self._left:
                self.end(request, None)

    def _over(self, request: Request) -> float | None:
        """Return the seconds that an exchange took; None if it has ended already, or never began.

        They count from the moment when the request was sent, or from the start of the exchange if
        it was not: before that its connection may have waited while a document was read. Time in
        which the process stood still does not count, because the host is not the reason.
        """
        begun = self._traffic.begun.pop(request, None)
        if begun is None:
            return None
        self._traffic.ended.set()
        ticket = ticket_of(request)
        sent = (begun.at, begun.stalled) if ticket.sent is None else (ticket.sent, ticket.stalled)
        passed = self._context.clock.monotonic() - sent[0]
        return max(0.0, passed - (stalled() - sent[1]))

    def let_go_inline(self, request: Request, host: str) -> None:
        """Let go of the host of a request that did not come from our scheduler."""
        if self._queue.turn_of(request) is None:
            self._hosts.let_go(host, request)

    def _delay(self, request: Request, latency: float = 0.0) -> float:
        min_delay = max(self._context.min_delay, self._declared_delays.before(request))
        latency *= self._context.project_delays.latency_factor
        return delay_after(min_delay, ticket_of(request).robots_interval, latency)

    def _exchange(
        self, request: Request, response: Response | None, latency: float, error: Exception | None
    ) -> Exchange:
        """Return an exchange as pacing sees it; ``response`` is None if there was no response."""
        is_unreachable = isinstance(error, Unreachable)
        is_of_origin = isinstance(error, Unreachable) and error.is_of_origin
        status = response.status if response is not None else 0
        retry_after = None if response is None else self._requested_wait(response)
        is_failed = status in {0, *SERVER_ERRORS} and retry_after is None
        # In a project's own crawl an unreachable host is the project's, and a failure through its
        # proxy may be the proxy's.
        is_proxys = is_failed and request.meta.get("proxy")
        if self._is_own and (isinstance(error, NEVER_REACHED) or is_proxys):
            return Exchange(delay=self._delay(request), latency=latency, status=0, is_ignored=True)
        return Exchange(
            delay=self._delay(request, latency),
            latency=latency,
            status=status,
            retry_after=retry_after,
            for_robots=rank_of(request) is Rank.ROBOTS,
            from_gateway=response is not None and ticket_of(request).from_gateway,
            unreachable=is_unreachable and not is_of_origin,
            is_ignored=is_of_origin
            or isinstance(error, StoodStill | ProxyTrouble | NotReached | VisitTimeout),
        )

    def _requested_wait(self, response: Response) -> float | None:
        """Return the seconds of the Retry-After of a response; None if it asks for no wait."""
        values = b"\n".join(response.headers.getlist("Retry-After")).decode("latin-1")
        date = response.headers.get("Date")
        now = datetime.fromtimestamp(self._context.clock.now(), UTC)
        return requested_wait(values, date.decode("latin-1") if date else None, now)

    def _record(self, request: Request) -> RequestRecord:
        """Return the row of a request before it is sent."""
        ticket = ticket_of(request)
        return RequestRecord(
            requested_at=self._context.clock.now(),
            host=self._context.host(request.url),
            url=request.url,
            gates="; ".join(f"{gate}: {answer}" for gate, answer in ticket.answers.items()),
            run=self._context.run,
            purpose=_PURPOSES[ticket.rank],
            conditional=any(request.headers.get(name) for name in _CONDITIONS),
            evidence=evidence_of(request),
            source=subject_of(request),
        )


def _has_validator(response: Response) -> bool:
    return bool(response.headers.get("ETag") or response.headers.get("Last-Modified"))


def _words(error: Exception | None, url: str) -> str:
    """Return why there was no response, for the request log."""
    return reason_of(error, url) if error else "cancelled, and no response came"
