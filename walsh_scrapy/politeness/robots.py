"""robots.txt in a crawl: how it is fetched, and what is known of it (R2; decisions 12 and 25)."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.datatypes import LocalCache

from walsh_scrapy.exceptions import Denied, NotModified, RequestDeferred, Unreachable
from walsh_scrapy.policy.hosttimes import RECHECK_SECONDS
from walsh_scrapy.policy.redirects import resolve_reference
from walsh_scrapy.policy.robots.access import (
    LATENESS,
    LONGEST_IN_RUN,
    AccessResult,
    RobotsCopy,
    RobotsFile,
    access_result,
    copy_after,
)
from walsh_scrapy.policy.urls import origin_of
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

    from walsh_scrapy.politeness.hostqueue import HostQueues
    from walsh_scrapy.politeness.prerequisites import Steps
    from walsh_scrapy.runtime.context import Context

logger = logging.getLogger(__name__)

#: Parsed files kept in memory at once; the state has the others.
PARSED_FILES = 2000
#: Seconds on the wire for one robots.txt in a run, with its redirects and retries: a server that
#: sends it slowly delays all hosts. Pauses between the tries are not counted.
LONGEST_FETCH = 30.0
#: Seconds: for less than that no further try is made.
SHORTEST_TRY = 1.0
#: Flags of a response that did not come in whole: its validators are not kept (decision 17).
_CUT_OFF = {DATA_LOSS, "download_stopped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotsOutcome:
    """The outcome of a request for robots.txt."""

    result: AccessResult
    status: int | None = None  #: of the last response
    body: bytes = b""
    validators: Validators | None = None  #: of a response that came in whole
    asked_with: RobotsCopy | None = None  #: the copy that was revalidated
    is_dead: bool = False  #: the host could not be reached (decision 28)


class RobotsCache:
    """The robots.txt of each origin (scheme, host and port): in memory, and in the state.

    Its methods raise StateUnavailable if the state fails.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.state.robots
        self._files: LocalCache[str, RobotsFile] = LocalCache(PARSED_FILES)
        # Fetched in this run, and until when they count for a request that is not sent yet.
        self._fetched: dict[str, float] = {}
        self._deferred: dict[str, tuple[RequestDeferred, float]] = {}

    def find(self, origin: str, url: str) -> RobotsFile | None:
        """Return the file of an origin for the request of a URL, or None if it has to be fetched.

        Beyond its day a copy counts only for a request that it made wait (decision 7).
        """
        file, copy = self._in_use(origin)
        if copy is None:
            return None
        is_awaited = copy.unused and self._store.awaits(origin, url)
        if not (self._is_fresh(origin, copy) or is_awaited):
            return None
        return file or self._read(origin, copy)

    def _is_fresh(self, origin: str, copy: RobotsCopy) -> bool:
        now = self._context.clock.now()
        is_usable = copy.is_usable(now, self._context.options.robots_ttl)
        return is_usable or now < self._fetched.get(origin, 0.0)

    def deferral(self, origin: str) -> RequestDeferred | None:
        """Return the deferral of an origin's file while it lasts, else None (decision 7).

        It may end during the run; then the file may be fetched.
        """
        error, until = self._deferred.get(origin, (None, 0.0))
        return error if self._context.clock.now() < until else None

    def interval(self, origin: str) -> float:
        """Return the spacing that the last known file asks for, in seconds, however old it is."""
        if (file := self._files.get(origin)) is None:
            copy = self._store.find(origin)  # another crawl may have fetched it by now
            if copy is None:
                return 0.0
            file = self._read(origin, copy)
        return file.interval(self._context.clock.now())

    def known(self, origin: str) -> RobotsCopy | None:
        """Return the last copy of an origin, however old."""
        return self._store.find(origin)

    def settle(self, origin: str, answer: RobotsOutcome) -> RobotsFile:
        """Keep the outcome of a request for robots.txt, and return the file that decides now."""
        now, status, result = self._context.clock.now(), answer.status, answer.result
        # A 304 is about the copy whose validators were sent.
        known = answer.asked_with if result == "unchanged" else self._store.find(origin)
        copy = copy_after(known, now, status, result, answer.body)
        if given := answer.validators:
            copy = copy.with_validators(given.url, given.etag, given.last_modified)
        self._store.keep(origin, copy)
        file = self._read(origin, copy)
        self._fetched[origin] = now + max(LONGEST_IN_RUN, file.own_wait(now) + LATENESS)
        if result == "unreachable":
            # The target of a host that cannot be reached fails with the same reason.
            level = logging.INFO if answer.is_dead else logging.WARNING
            why = status or "no answer"
            logger.log(
                level, "%s/robots.txt could not be read (%s); %s", origin, why, file.decision
            )
        elif result == "meaningless" and copy.body:
            logger.warning(
                "%s/robots.txt gave no meaningful answer (%s); the last good copy stays in force",
                origin,
                status,
            )
        return file

    def defer(self, origin: str, error: RequestDeferred) -> None:
        """Do not fetch an origin's file before the end of a deferral."""
        # If the state failed, the deferral ends now; even so the file is not fetched again at once.
        until = max(error.until, self._context.clock.now() + RECHECK_SECONDS)
        self._deferred[origin] = error, until

    def mark_used(self, origin: str, url: str) -> None:
        """Let a copy expire as usual for a request that was sent or denied (decision 7)."""
        self._fetched.pop(origin, None)
        file, copy = self._in_use(origin)
        if copy is not None and copy.unused:
            self._note_unused(origin, file, unused=self._store.end_wait(origin, url))

    def keep_for_later(self, origin: str, url: str) -> None:
        """Keep a copy usable in a later run, for a request that it made wait (decision 7).

        A copy that is out of date makes nobody wait who does not wait already: else it would stay
        in use for ever on a host with many sources.
        """
        file, copy = self._in_use(origin)
        if copy is not None and self._is_fresh(origin, copy):
            self._store.begin_wait(origin, url)
            self._note_unused(origin, file, unused=True)

    def _in_use(self, origin: str) -> tuple[RobotsFile | None, RobotsCopy | None]:
        file = self._files.get(origin)
        return file, self._store.find(origin) if file is None else file.copy

    def _note_unused(self, origin: str, file: RobotsFile | None, *, unused: bool) -> None:
        if file is not None and file.copy.unused is not unused:
            self._files[origin] = replace(file, copy=replace(file.copy, unused=unused))

    def _read(self, origin: str, copy: RobotsCopy) -> RobotsFile:
        options, now = self._context.options, self._context.clock.now()
        file = RobotsFile.read(copy, options.ua_token, options.robots_unreachable, now)
        for line, warning in file.rules.warnings:
            logger.info("%s/robots.txt line %d: %s", origin, line, warning)
        self._files[origin] = file
        return file


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
            request = _request(url, hops)
            mark(request, public_only=public_only, for_blocklist=for_blocklist)
            mark(request, validators=_validators(known))
            answer = yield request
            if isinstance(answer, NotModified):
                renewed = Validators.of(answer.response)
                self._settle(
                    origin,
                    RobotsOutcome(
                        result="unchanged", status=304, validators=renewed, asked_with=known
                    ),
                )
                return
            if isinstance(answer, BaseException):
                self._failed(origin, status, answer)
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
        body = answer.body
        self._settle(
            origin, RobotsOutcome(result=result, status=status, body=body, validators=given)
        )

    def _failed(self, origin: str, status: int | None, error: BaseException) -> None:
        """Keep what an error means; ``status`` is that of the redirect before it, if any."""
        if isinstance(error, RequestDeferred):
            self._cache.defer(origin, error)
        elif isinstance(error, Denied):  # a gate denied the target of a redirect
            logger.info("%s/robots.txt redirects to a denied URL: %s", origin, error)
            self._settle(origin, RobotsOutcome(result="meaningless", status=status))
        else:
            is_dead = isinstance(error, Unreachable)
            self._settle(origin, RobotsOutcome(result="unreachable", is_dead=is_dead))

    def _settle(self, origin: str, answer: RobotsOutcome) -> None:
        """Keep the outcome, and give the host the spacing that its file asks for."""
        self._stats.inc_value(f"walsh/robots/{answer.result}")
        if answer.result != "unreachable":
            self._spent.pop(origin, None)
        try:
            file = self._cache.settle(origin, answer)
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


def _request(url: str, hops: tuple[Hop, ...]) -> Request:
    request = Request(
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
    mark(request, hops=hops)
    return request
