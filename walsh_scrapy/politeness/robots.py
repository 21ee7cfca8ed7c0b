"""How a crawl fetches a robots.txt (R2; decisions 12 and 25)."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.exceptions import IgnoreRequest

from walsh_scrapy.exceptions import (
    Denied,
    FetchedMeanwhile,
    NotModified,
    RequestDeferred,
    Unreachable,
)
from walsh_scrapy.policy.redirects import resolve_reference
from walsh_scrapy.policy.robots.access import access_result
from walsh_scrapy.policy.urls import origin_of
from walsh_scrapy.politeness.robotscache import RobotsOutcome
from walsh_scrapy.runtime.requests import (
    DATA_LOSS,
    Hop,
    Validators,
    first_url,
    mark,
    request_of,
)

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.policy.robots.access import RobotsCopy
    from walsh_scrapy.politeness.hostqueue import HostQueues
    from walsh_scrapy.politeness.prerequisites import Steps
    from walsh_scrapy.politeness.robotscache import RobotsCache
    from walsh_scrapy.runtime.context import Context

logger = logging.getLogger(__name__)

#: Seconds on the wire for one robots.txt in a run, with its redirects and retries: a server that
#: sends it slowly delays all hosts. Pauses between the tries are not counted.
LONGEST_FETCH = 30.0
#: Seconds: for less than that no further try is made.
SHORTEST_TRY = 1.0
#: Flags of a response that did not come in whole: its validators are not kept (decision 17).
_CUT_OFF = {DATA_LOSS, "download_stopped"}


class RobotsFetch:
    """Fetches a robots.txt, and puts the outcome into the cache.

    An origin has ``LONGEST_FETCH`` seconds on the wire until it has answered (decision 28).
    """

    def __init__(
        self,
        settings: BaseSettings,
        stats: StatsCollector,
        context: Context,
        queues: HostQueues,
        cache: RobotsCache,
    ) -> None:
        self._stats = stats
        self._context = context
        self._queues = queues
        self._timeout = settings.getfloat("DOWNLOAD_TIMEOUT")
        self._cache = cache
        self._sent: WeakKeyDictionary[Request, float] = WeakKeyDictionary()
        # By origin: the seconds on the wire since its last answer.
        self._spent: defaultdict[str, float] = defaultdict(float)

    def limit(self, request: Request) -> None:
        """Give a try the seconds that are left; raise IgnoreRequest if there are none."""
        origin = origin_of(first_url(request))
        left = LONGEST_FETCH - self._spent[origin]
        if left < SHORTEST_TRY:
            raise IgnoreRequest(f"{origin}/robots.txt did not come within {LONGEST_FETCH:g} s")
        request.meta["download_timeout"] = min(left, self._timeout)

    def sent(self, request: Request) -> None:
        """Note that a try goes to the wire now."""
        self._sent[request] = self._context.clock.monotonic()

    def ended(self, request: Request) -> None:
        """Count the seconds of a try."""
        if (began := self._sent.pop(request, None)) is not None:
            seconds = self._context.clock.monotonic() - began
            self._spent[origin_of(first_url(request))] += seconds

    def steps(
        self, origin: str, url: str, *, public_only: bool = False, for_blocklist: bool = False
    ) -> Steps:
        """Yield the requests for an origin's file at ``url``, and keep the outcome.

        See ``prerequisites`` for how they are made. With ``public_only`` the file is needed for a
        host that may not be private (decision 16); with ``for_blocklist`` no host makes it wait for
        longer than a day (decision 14).
        """
        hops: tuple[Hop, ...] = ()
        known, status = self._cache.known(origin), None
        while True:
            request = _request(url)
            mark(
                request,
                hops=hops,
                public_only=public_only,
                for_blocklist=for_blocklist,
                validators=_validators(known),
            )
            answer = yield request
            if isinstance(answer, FetchedMeanwhile):
                return
            if isinstance(answer, NotModified):
                renewed = Validators.of(answer.response)
                outcome = RobotsOutcome(
                    result="unchanged", status=304, validators=renewed, asked_with=known
                )
                self._settle(origin, outcome, url)
                return
            if isinstance(answer, BaseException):
                self._failed(origin, status, answer, url)
                return
            status = answer.status
            location = answer.headers.get("Location")
            result = access_result(answer.status, len(hops), has_location=location is not None)
            if result != "redirect" or location is None:
                break
            target = resolve_reference(answer.url, location)
            if target is None:
                result = "meaningless"
                break
            url, hops = target, (*hops, Hop(request_of(answer).url, answer.status))
        is_whole = result == "good" and not _CUT_OFF.intersection(answer.flags)
        given = Validators.of(answer) if is_whole else None
        outcome = RobotsOutcome(result=result, status=status, body=answer.body, validators=given)
        self._settle(origin, outcome, url)

    def _failed(self, origin: str, status: int | None, error: BaseException, url: str) -> None:
        """Keep what an error means; ``status`` is that of the redirect before it, if any."""
        if isinstance(error, RequestDeferred):
            self._cache.defer(origin, error)
        elif isinstance(error, Denied):  # a gate denied the target of a redirect
            logger.info("%s/robots.txt redirects to a denied URL: %s", origin, error)
            self._settle(origin, RobotsOutcome(result="meaningless", status=status), url)
        else:
            is_dead = isinstance(error, Unreachable)
            self._settle(origin, RobotsOutcome(result="unreachable", is_dead=is_dead), url)

    def _settle(self, origin: str, answer: RobotsOutcome, url: str) -> None:
        """Keep the outcome, and give the host the spacing that its file asks for.

        ``url`` is that of the last request.
        """
        self._stats.inc_value(f"walsh/robots/{answer.result}")
        if answer.result != "unreachable":
            self._spent.pop(origin, None)
        try:
            file = self._cache.settle(origin, answer, self._context.host(url))
        except RequestDeferred as error:  # the state failed
            self._cache.defer(origin, error)
            return
        interval = file.interval(self._context.clock.now())
        if interval > self._context.options.min_interval:
            host = self._context.host(origin)
            snapshot = self._context.state.ledger.widen(host, interval)
            self._queues.scheduler.delay(host, snapshot.wait, snapshot.times.spacing_with())


def _validators(known: RobotsCopy | None) -> Validators | None:
    """Return the validators of a copy, for the URL that answered (R7)."""
    if known is None or known.body is None or known.validator_url is None:
        return None
    return Validators(known.validator_url, known.etag, known.last_modified)


def _request(url: str) -> Request:
    return Request(
        url,
        headers={"Accept": "text/plain, */*;q=0.5"},
        meta={
            # For robots.txt, redirects and errors have their own meaning (RFC 9309 2.3.1).
            "dont_redirect": True,
            "dont_retry": True,
            "handle_httpstatus_all": True,
            "download_maxsize": 0,
        },
    )
