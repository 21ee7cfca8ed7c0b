"""What an exception means for the visit that it ends, and what needs the operator (R7, R8)."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from scrapy.spidermiddlewares.httperror import HttpError

from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.crawl.freshness import lifetime_of
from walsh_scrapy.crawl.hosts import HostLost
from walsh_scrapy.crawl.ticket import set_visit, source_of, visit_of
from walsh_scrapy.exceptions import (
    AlreadyRead,
    BadAnswer,
    Denied,
    MachineTrouble,
    NotDue,
    NotModified,
    PutOff,
    RequestDeferred,
    StateUnavailable,
)
from walsh_scrapy.policy.reasons import ReasonGroups
from walsh_scrapy.policy.urls import host_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy import Request
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.crawl.record import VisitRecorder

logger = logging.getLogger(__name__)


class VisitOutcome:
    """Records visits, and leaves a source due whose request is deferred, or if the state fails."""

    def __init__(
        self, context: Context, stats: StatsCollector, troubles: Troubles, recorder: VisitRecorder
    ) -> None:
        self._stats = stats
        self._context = context
        self._clock = context.clock
        self._troubles = troubles
        self.recorder = recorder

    def ended(self, request: Request, error: BaseException | None) -> None:
        """Record the outcome of a visit whose request ended in an exception."""
        with self.deferring(request):
            match error:
                case NotModified():
                    self.recorder.unchanged(request, error.response)
                case AlreadyRead():
                    self.recorder.shared(request, error)
                case Denied():
                    self.recorder.denied(request, error)
                case NotDue():
                    self._left(request)
                    self._stats.inc_value("walsh/sources/not_due")
                    self._stats.inc_value("walsh/sources/due", -1)
                    self._stats.min_value("walsh/sources/next_due", error.due_at)
                case RequestDeferred():
                    raise error
                case _:
                    reason = reason_of(error, request.url)
                    self.recorder.failed(request, reason, _response_of(error))

    def carry(self, request: Request, error: BaseException | None, following: Request) -> None:
        """Give the next request of a visit what the visit has learned before ``error``."""
        visit, next_visit, response = visit_of(request), visit_of(following), _response_of(error)
        if visit and next_visit:
            if response is not None:
                now = self._clock.now()
                visit = visit.passed(lifetime_of(response, now), response.status)
            set_visit(following, visit.carried_to(next_visit))

    @contextmanager
    def deferring(self, request: Request) -> Iterator[None]:
        """Leave the source of a request as due as it was if the block raises RequestDeferred."""
        try:
            yield
        except RequestDeferred as error:
            source = source_of(request)
            url = source.url if source else request.url
            level = logging.DEBUG if isinstance(error, PutOff) else logging.INFO
            logger.log(level, "%s is deferred to a later run: %s", url, error)
            if source:
                self._refused(request, error)
            self._stats.inc_value("walsh/sources/deferred")
            self._stats.min_value("walsh/sources/deferred_until", error.until)
            self._troubles.put_off(request.url, error.until)
            # Our own trouble, and a host that another worker owns by now, defer nobody else.
            is_ours = isinstance(error, StateUnavailable | MachineTrouble | HostLost)
            self._left(request, put_off=not is_ours)

    def _left(self, request: Request, *, put_off: bool = False) -> None:
        """Note that a visit has ended of which nothing is recorded."""
        if source := source_of(request):
            self.recorder.hosts.end_visit(source, deferred=put_off)

    def _refused(self, request: Request, error: RequestDeferred) -> None:
        """Record a refusal (429, 503) if that is why a request of a source is deferred."""
        status = error.refused if isinstance(error, PutOff) else None
        try:
            if type(error) is RequestDeferred:
                host = self._context.host(request.url)
                snapshot = self._context.state.hosts.find(host)
                status = snapshot.times.refused if snapshot.hold else None
            if status is not None:
                self.recorder.refused(request, status)
        except StateUnavailable as failure:
            logger.debug("the refusal is not recorded: %s", failure)


def _response_of(error: BaseException | None) -> Response | None:
    """Return the response that came, although it is of no use."""
    return error.response if isinstance(error, HttpError | BadAnswer | NotModified) else None


class Troubles:
    """The failures of a crawl by their reasons, and until when each host is deferred."""

    def __init__(self) -> None:
        self.failures = ReasonGroups()
        self.deferred: dict[str, float] = {}  #: by host: the earliest time, in epoch seconds

    def failed(self, url: str, reason: str) -> None:
        """Count a source that failed; ``reason`` is one sentence."""
        self.failures.add(host_of(url), reason)

    def put_off(self, url: str, until: float) -> None:
        """Note that a request is deferred until a time in epoch seconds."""
        host = host_of(url)
        self.deferred[host] = min(until, self.deferred.get(host, until))
