"""The robots.txt of each origin: which copy is obeyed, and how it is fetched (R2, decision 12)."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from scrapy import Request, signals
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    IgnoreRequest,
)

from walsh_scrapy.crawl.documents.robotparser import RobotsSignal
from walsh_scrapy.crawl.hosts.ownedhosts import Hosts
from walsh_scrapy.crawl.hosts.queue import RequestPreparer
from walsh_scrapy.crawl.scrapyinternals import has_listeners
from walsh_scrapy.crawl.startup import Kind
from walsh_scrapy.crawl.ticket import (
    DATA_LOSS,
    Hop,
    Validators,
    check_visit_time,
    limit_to_visit,
    note,
    rank_of,
    request_of,
    subject_of,
    ticket_after,
    ticket_of,
)
from walsh_scrapy.exceptions import (
    Denied,
    HasCome,
    NotDelivered,
    NotModified,
    RequestDeferred,
    RobotsUnavailable,
    StillDue,
    TooSlow,
    Unreachable,
    VisitTimeout,
)
from walsh_scrapy.policy.backoff import RETRIED_STATUSES
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import MIN_TRY_SECONDS, RECHECK_SECONDS
from walsh_scrapy.policy.robots.copy import (
    MAX_UNUSED_IN_RUN_SECONDS,
    MAX_UNUSED_SECONDS,
    AccessResult,
    RobotsCopy,
    RobotsFile,
    access_result,
    copy_after,
)
from walsh_scrapy.policy.urls import SCHEMES, host_of, origin_of, resolve_reference, robots_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.http import Response
    from sqlalchemy import Connection

    from walsh_scrapy.crawl.context import Context
    from walsh_scrapy.crawl.parts import Crawl

logger = logging.getLogger(__name__)

#: Seconds on the wire for one robots.txt in a run, with its redirects and retries, because a server
#: that sends it slowly delays all hosts. Waits between the attempts do not count.
MAX_FETCH_SECONDS = 30.0
#: The same if it did not come in the last run, because the target may be as slow, and may take 20 s
#: more.
MAX_REFETCH_SECONDS = 7.0
#: Flags of an incomplete response. Its validators are not stored, or a 304 would confirm a part.
_CUT_OFF = {DATA_LOSS, "download_stopped"}


class RobotsOutcome(NamedTuple):
    """The outcome of a request for robots.txt."""

    url: str  #: that was requested last
    result: AccessResult
    response: Response | None = None  #: the last one; None if the host did not answer
    is_dead: bool = False  #: the targets of its origin cannot be reached either
    is_slow: bool = False  #: too few bytes came in a second


class RobotsCache:
    """The robots.txt of each origin (scheme, host and port): in memory, and in the state.

    Methods raise StateUnavailable if the state fails.
    """

    def __init__(self, context: Context, hosts: Hosts | None = None) -> None:
        self._context = context
        self._hosts = hosts or Hosts(context)
        self._store = context.state.robots
        self._files = context.robots_files

    def find(self, origin: str, url: str) -> RobotsFile | None:
        """Return the file of an origin for the request of a URL, or None if it must be fetched.

        An expired copy is used only if its host got no other request since: in the run that fetched
        it, and for a request that waits longer than ``WALSH_MAX_WAIT``, by the copy or by the delay
        of the host. Otherwise a host with a very long delay would get requests for robots.txt only.
        """
        file = self._files.get(origin)
        if file is None or not self._is_fresh(file):
            file = self._newest(origin)
        if file is None or self._is_fresh(file):
            return file
        copy = file.copy
        times = self._hosts.times(self._context.host(origin))
        wait = max(file.own_wait(copy.requested_at), times.delay_with())
        longest = 0.0
        if wait > self._context.options.max_wait and file.allows(url):
            longest = MAX_UNUSED_SECONDS
        elif copy.requested_at >= self._context.started_at:
            longest = MAX_UNUSED_IN_RUN_SECONDS
        is_valid = copy.is_valid_unused(self._context.clock.now(), longest, times.last_end)
        return file if is_valid else None

    def _is_fresh(self, file: RobotsFile) -> bool:
        if file.is_deferred:
            now = self._context.clock.now()
            return file.copy.keeps_deferring(self._context.started_at, now)
        return self._is_usable(file.copy)

    def _is_usable(self, copy: RobotsCopy) -> bool:
        return copy.is_usable(self._context.clock.now(), self._context.options.robots_ttl)

    def _newest(self, origin: str) -> RobotsFile | None:
        """Return the newest file, however old: from the state, or from memory if it is pending."""
        copies = self._hosts.copies(self._context.host(origin))
        file = self._files.get(origin)
        if origin not in copies:
            copies[origin] = self._store.find(origin)
        copy = copies[origin]
        if copy is None or (file is not None and file.copy.requested_at >= copy.requested_at):
            return file
        return self._parse_copy(origin, copy)

    def delay(self, origin: str) -> float:
        """Return the delay in the last known file, in seconds, however old it is."""
        file = self._files.get(origin) or self._newest(origin)
        return file.interval(self._context.clock.now()) if file else 0.0

    def _parse_copy(self, origin: str, copy: RobotsCopy) -> RobotsFile:
        options = self._context.options
        now = self._context.clock.now()
        file = RobotsFile.from_copy(copy, options.ua_token, options.robots_unreachable, now)
        if file.is_unusable:
            logger.info("%s/robots.txt has no line that can be used", origin)
        for line, warning in file.rules.warnings:
            logger.info("%s/robots.txt line %d: %s", origin, line, warning)
        self._files[origin] = file
        return file


class Robots(RobotsCache, RequestPreparer):
    """Fetches each robots.txt once, before the first request that needs it.

    An origin has ``MAX_FETCH_SECONDS`` on the wire to answer.
    """

    def __init__(self, crawl: Crawl) -> None:
        super().__init__(crawl.context, crawl.hosts)
        self._is_own = crawl.kind is Kind.OWN
        self._crawler = crawl.crawler
        self._signal = RobotsSignal(crawl)
        self._stats = crawl.stats
        self._queue = crawl.queue
        self._access = crawl.access
        self._fetcher = crawl.fetcher
        self._deferred_hosts = crawl.context.deferred_hosts
        self._timeout = crawl.settings.getfloat("DOWNLOAD_TIMEOUT")
        # By origin: the seconds on the wire since its last answer.
        self._spent: defaultdict[str, float] = defaultdict(float)
        # By origin: why its file is not fetched, and until when.
        self._fetch_errors: dict[str, tuple[Denied | RequestDeferred, float]] = {}
        #: Why a request of an own crawl has no file: it fails with the same error.
        self._connection_errors: WeakKeyDictionary[Request, Exception] = WeakKeyDictionary()
        self._reported: set[str] = set()  # origins with an unreachable file, and their hosts

    def is_ready(self, request: Request) -> bool:
        """Return True if the file of a request is known, or cannot be fetched."""
        origin = origin_for(request)
        return (
            is_robots(request)
            or self._deferred_hosts.has(request.url)
            or self.find(origin, request.url) is not None
            or self._fetch_error(origin) is not None
            or request in self._connection_errors
        )

    def will_pass(self, request: Request) -> bool:
        """Return False if a request would be denied or deferred, by what is in memory."""
        if is_robots(request):
            return True
        origin = origin_for(request)
        file = self._files.get(origin)
        if file is None or not self._is_fresh(file):
            return self._fetch_error(origin) is None
        max_wait = self._context.options.max_wait
        return file.allows(request.url) and self.visit_time_wait(origin, file) <= max_wait

    def visit_time_wait(self, origin: str, file: RobotsFile) -> float:
        """Return the seconds until the Visit-time of a file allows the next request of its host.

        0 if it allows that request as soon as the delay and the hold of the host are over, or if
        these alone last longer than ``WALSH_MAX_WAIT``.
        """
        now = self._context.clock.now()
        wait = max(0.0, self._hosts.wait(self._context.host(origin), file.interval(now)))
        if wait > self._context.options.max_wait:
            return 0.0  # it may end after the year 9999
        closed_for = file.closed_for(now + wait)
        return wait + closed_for if closed_for > 0.0 else 0.0

    async def prepare(self, request: Request) -> None:
        """Fetch the file of a request, unless it is known or cannot be fetched."""
        origin = origin_for(request)
        if not self.is_ready(request):
            await self._fetcher.fetch_once(origin, lambda: self._fetch(origin, request))

    async def file_for(self, request: Request) -> RobotsFile:
        """Return the file that decides about a request, which is fetched if it is not known.

        Raises RequestDeferred or Denied for a file that cannot be requested, HostDeferred if
        nothing may be requested without it, VisitTimeout if the visit has no time left for it, and
        DownloadFailedError if the proxy of the project failed.
        """
        origin = origin_for(request)
        self._check_end(request)
        while (file := self.find(origin, request.url)) is None:
            if (failure := self._connection_errors.pop(request, None)) is not None:
                raise failure
            if (error := self._fetch_error(origin)) is not None:
                raise error
            with self._fetcher.gate_waits():
                await self.prepare(request)
            self._queue.recheck(self._context.host(origin))
            self._check_end(request)  # the fetch has shown whether its host can be reached
        if file.is_deferred:
            raise self._deferral(origin, file)
        self._send_signal(origin, file, request)
        return file

    def _send_signal(self, origin: str, file: RobotsFile, request: Request) -> None:
        """Send ``robots_parsed`` if anybody listens: its parser reads the file once more."""
        if has_listeners(self._crawler, signals.robots_parsed):
            self._signal.send(origin, file, request)

    def _check_end(self, request: Request) -> None:
        """Raise the exception of a request that must not be sent in this run any more."""
        check_visit_time(request)
        self._deferred_hosts.check(request.url)
        self._queue.check(request)

    def _deferral(self, origin: str, file: RobotsFile) -> RobotsUnavailable:
        """Return the deferral of the requests of an origin whose file is unreachable."""
        if origin not in self._reported:  # another run requested it less than an hour ago
            self._report(origin, file)
        copy = file.copy
        refused = copy.status if copy.status in RETRIED_STATUSES else None
        reason = f"{origin}/robots.txt is unreachable ({copy.problem})"
        return RobotsUnavailable(copy.retried_from, reason, refused)

    def _report(self, origin: str, file: RobotsFile, *, is_dead: bool = False) -> None:
        """Log that a file is unreachable: one WARNING for each host.

        The first target of a host that cannot be reached fails with its own warning.
        """
        host = host_of(origin)
        level = logging.INFO if is_dead or host in self._reported else logging.WARNING
        self._reported.add(origin)
        if not is_dead:
            self._reported.add(host)
        problem = file.copy.problem
        logger.log(level, "%s/robots.txt is unreachable (%s); %s", origin, problem, file.decision)

    def _fetch_error(self, origin: str) -> Denied | RequestDeferred | None:
        """Return why an origin's file is not fetched, or None.

        A deferral may end during the run. Then the file may be fetched.
        """
        error, until = self._fetch_errors.get(origin, (None, 0.0))
        return error if self._context.clock.now() < until else None

    async def _fetch(self, origin: str, needed_by: Request) -> None:
        """Fetch an origin's file, unless another worker has fetched it, and keep the outcome."""
        url = robots_url(needed_by.url)
        if url.partition(":")[0] not in SCHEMES:
            self._fetch_errors[origin] = Denied("robots", "no request can go to its URL"), math.inf
            return
        try:
            async with self._access.owning(url):
                if self.find(origin, needed_by.url) is None:
                    newest = self._newest(origin)
                    copy = newest.copy if newest else None
                    outcome = await self._request_file(origin, url, needed_by, copy)
                    self._keep(origin, outcome, copy)
                    self._defer_failed(origin, outcome, copy)
            if file := self.find(origin, needed_by.url):
                self._send_signal(origin, file, needed_by)
        except (HasCome, VisitTimeout, _NotConnected):
            pass  # each request that needs it looks again
        except RequestDeferred as error:
            if subject_of(needed_by) and not isinstance(error, StillDue):
                self._hosts.give_up(self._context.host(origin))
            # If the state failed, the deferral is over already; the next attempt waits anyway.
            until = max(error.until, self._context.clock.now() + RECHECK_SECONDS)
            self._fetch_errors[origin] = error, until
        except Denied as error:  # by a gate that the target would not pass either
            self._fetch_errors[origin] = error, math.inf
        except NotDelivered as error:
            denial = Denied("robots", str(error))
            denial.__cause__ = error
            self._fetch_errors[origin] = denial, math.inf
            logger.warning(
                "%s. The requests that need it are denied. %s",
                error,
                error.remedy,
                exc_info=error.__cause__,
            )

    def _connection_error(
        self, request: Request, error: Exception, hops: tuple[Hop, ...]
    ) -> Exception | None:
        """Return the error with which a page of an own crawl fails, which the project may retry.

        None if there may have been a server that sent no robots.txt.
        """
        if not self._is_own:
            return None
        if request.meta.get("proxy"):
            reason = f"{request.url} did not come through its proxy: {error}"
            return DownloadFailedError(reason)
        is_absent = isinstance(error, CannotResolveHostError | DownloadConnectionRefusedError)
        return error if is_absent and not hops else None

    async def _request_file(
        self, origin: str, url: str, needed_by: Request, earlier: RobotsCopy | None
    ) -> RobotsOutcome:
        """Request an origin's file, and follow its redirects.

        Its time counts for the visit of ``needed_by``, even if other visits wait for it too. Raises
        Denied, RequestDeferred, NotDelivered and VisitTimeout, which do not come from the host.
        """
        hops: tuple[Hop, ...] = ()
        answer = None
        not_before = 0.0
        public_only = ticket_of(needed_by).public_only
        while True:
            request = _request(url)
            _use_proxy_of(needed_by, request, is_own=self._is_own)
            note(
                request,
                hops=hops,
                not_before=not_before,
                public_only=public_only,
                for_blocklist=rank_of(needed_by) is Rank.OPERATOR,
                visit_time=ticket_of(needed_by).visit_time,
                validators=Validators.from_record(earlier)
                if earlier and earlier.body is not None
                else None,
            )
            is_first = earlier is None or earlier.failing_since is None
            max_seconds = MAX_FETCH_SECONDS if is_first else MAX_REFETCH_SECONDS
            check = partial(self._check_time, origin, max_seconds)
            limited = partial(self._limited, origin, max_seconds)
            try:
                answer = await self._fetcher.send(request, Rank.ROBOTS, limited, check)
            except NotModified as error:
                return RobotsOutcome(url, "unchanged", error.response)
            except Exception as error:
                if isinstance(error, Denied) and hops:
                    logger.info("%s/robots.txt redirects to a denied URL: %s", origin, error)
                    return RobotsOutcome(url, "meaningless", answer)
                if isinstance(
                    error, Denied | RequestDeferred | NotDelivered | HasCome | VisitTimeout
                ):
                    raise
                if failure := self._connection_error(request, error, hops):
                    self._connection_errors[needed_by] = failure
                    self._spent.pop(origin, None)  # the host has not taken that time
                    raise _NotConnected from error
                if not isinstance(error, IgnoreRequest):
                    self._stats.inc_value(f"robotstxt/exception_count/{type(error)}")
                is_dead = isinstance(error, Unreachable) and _is_of_targets(error, url, origin)
                is_slow = isinstance(error, TooSlow)
                return RobotsOutcome(url, "unreachable", is_dead=is_dead, is_slow=is_slow)
            location = answer.headers.get("Location")
            result = access_result(answer.status, len(hops), has_location=location is not None)
            target = resolve_reference(answer.url, location or b"")
            if result != "redirect":
                return RobotsOutcome(url, result, answer)
            if target is None:  # its Location is not a URL
                return RobotsOutcome(url, "meaningless", answer)
            url = target
            hops = (*hops, Hop(request_of(answer).url, answer.status))
            ticket = ticket_of(request_of(answer))
            not_before = ticket.not_before
            public_only = ticket.public_only

    def _check_time(self, origin: str, max_seconds: float, request: Request) -> None:
        """Raise an exception if no attempt can be made, because too few seconds remain for it."""
        if max_seconds - self._spent[origin] < MIN_TRY_SECONDS:
            raise _TooLong
        check_visit_time(request)

    @contextmanager
    def _limited(self, origin: str, max_seconds: float, request: Request) -> Iterator[None]:
        """Limit an attempt to the remaining seconds, and count the seconds that it takes.

        Raises HasCome if another crawl on the state has fetched the file since. That can happen if
        the crawl has another scheduler, and so keeps no host between requests. Raises VisitTimeout
        if the visit that needs the file has no time left.
        """
        if not self._hosts.is_beating:
            copy = self._store.find(origin)
            if copy is not None and copy.failing_since is None and self._is_usable(copy):
                self._hosts.copies(self._context.host(origin))[origin] = copy
                raise HasCome
        self._check_time(origin, max_seconds, request)
        timeout = min(max_seconds - self._spent[origin], self._timeout)
        request.meta["download_timeout"] = limit_to_visit(request, timeout)
        try:
            yield
        finally:
            self._spent[origin] += ticket_of(request).seconds

    def _defer_failed(
        self, origin: str, outcome: RobotsOutcome, earlier: RobotsCopy | None
    ) -> None:
        """Defer a host whose file did not come in time, or may be the proxy's, for this run only.

        In later runs ``WALSH_ROBOTS_UNREACHABLE`` decides, as for any file that is unreachable.
        """
        if _is_from_gateway(outcome):
            self._defer_gateway(origin, outcome, earlier)
            return
        if earlier is not None and earlier.failing_since is not None:
            return
        if outcome.is_slow or self._spent.get(origin, 0.0) > MAX_FETCH_SECONDS - MIN_TRY_SECONDS:
            seconds = f"did not come in {MAX_FETCH_SECONDS:g} s"
            reason = f"its robots.txt {'came too slowly' if outcome.is_slow else seconds}"
            self._defer(origin, reason)

    def _defer_gateway(
        self, origin: str, outcome: RobotsOutcome, earlier: RobotsCopy | None
    ) -> None:
        """Defer a host whose file a proxy may have refused: that opens nothing in this run."""
        status = outcome.response.status if outcome.response else None
        undo: Callable[[Connection], None] = partial(self._store.forget, origin=origin)
        if earlier is not None:
            host = self._context.host(origin)
            undo = self._copy_writer(origin, earlier, host)
        self._hosts.undo_with_answers(self._context.host(outcome.url), undo)
        reason = f"its robots.txt is unreachable (it answered {status})"
        is_doubtful = self._context.connectivity.is_doubtful(host_of(outcome.url))
        is_refusal = status in RETRIED_STATUSES and not is_doubtful
        self._defer(origin, reason, status if is_refusal else None)

    def _defer(self, origin: str, reason: str, refused: int | None = None) -> None:
        """Defer a host for this run, in all workers."""
        host = self._context.host(origin)
        until = self._context.clock.now() + max(0.0, self._hosts.wait(host))
        self._deferred_hosts.add(host_of(origin), reason, until, refused)
        self._hosts.give_up(host)

    def _copy_writer(
        self, origin: str, copy: RobotsCopy, host: str
    ) -> Callable[[Connection], None]:
        """Return the function that writes a copy within a transaction."""
        run = self._context.run
        return partial(self._store.write, origin=origin, copy=copy, host=host, run=run)

    def _put(
        self, origin: str, copy: RobotsCopy, requested: str, *, has_delay: bool = True
    ) -> RobotsFile:
        """Obey a copy from now on, and its Crawl-delay unless ``has_delay`` is False.

        The copy is written with the next transaction of its own host, so that the requests and
        denials that it decides can name it; at once if another host answered, whose transactions
        come sooner. ``requested`` is the host that answered; it has the Crawl-delay too.
        """
        host = self._context.host(origin)
        self._hosts.copies(host)[origin] = copy
        file = self._parse_copy(origin, copy)
        delay = file.interval(self._context.clock.now())
        write = self._copy_writer(origin, copy, host)
        if not self._hosts.is_beating:  # the host may be another worker's before that transaction
            self._context.state.write(write)
        self._hosts.write_with(host, write, at_once=requested != host)
        if has_delay and delay > 0.0:
            self._hosts.lengthen_delay(requested, delay)
        delay = max(delay, self._hosts.delay(host))
        if delay > self._context.min_delay:
            self._queue.delay(host, self._hosts.wait(host, delay), delay)
        return file

    def _keep(self, origin: str, answer: RobotsOutcome, earlier: RobotsCopy | None) -> None:
        """Keep an outcome, and give the host the delay in its file."""
        self._stats.inc_value(f"walsh/robots/{answer.result}")
        self._stats.inc_value("robotstxt/request_count")
        now = self._context.clock.now()
        host = self._context.host(origin)
        response = answer.response
        requested = self._context.host(answer.url)
        status, body = (None, b"") if response is None else (response.status, response.body)
        if status is not None:
            self._stats.inc_value("robotstxt/response_count")
            self._stats.inc_value(f"robotstxt/response_status_count/{status}")
        copy = copy_after(earlier, now, status, answer.result, body)
        is_read = answer.result in ("good", "unchanged")
        if is_read and response is not None and not _CUT_OFF.intersection(response.flags):
            validators = Validators.from_response(response)
            copy = copy.with_validators(validators.url, validators.etag, validators.last_modified)
        # A redirect to another host's robots.txt has read that host's delay.
        has_delay = requested == host or answer.url == robots_url(answer.url)
        file = self._put(origin, copy, requested, has_delay=has_delay)
        if answer.result != "unreachable":
            self._spent.pop(origin, None)
        if answer.result == "unreachable" and not _is_from_gateway(answer):
            self._report(origin, file, is_dead=answer.is_dead)
        elif answer.result == "meaningless" and file.copy.body:
            logger.warning(
                "%s/robots.txt gave no meaningful answer (%s); the last good copy is still obeyed",
                origin,
                file.copy.status,
            )


class _TooLong(IgnoreRequest):
    """A robots.txt did not come within ``MAX_FETCH_SECONDS``."""


def _is_from_gateway(outcome: RobotsOutcome) -> bool:
    """Return True for a 502, 503 or 504 that a proxy may have made."""
    response = outcome.response
    return response is not None and ticket_after(request_of(response)).from_gateway


def _is_of_targets(error: Unreachable, url: str, origin: str) -> bool:
    """Return True if the targets of an origin cannot be reached because ``url`` could not be.

    After a redirect ``url`` may be on another host, or over https.
    """
    return origin_of(url) == origin if error.is_of_origin else host_of(url) == host_of(origin)


def is_robots(request: Request) -> bool:
    """Return True for a request for a robots.txt, which needs none (RFC 9309 2.2.2)."""
    return rank_of(request) is Rank.ROBOTS or request.url == robots_url(request.url)


def origin_for(request: Request) -> str:
    """Return the origin whose robots.txt decides about a request: scheme, host and port."""
    return origin_of(request.url)


class _NotConnected(Exception):
    """A robots.txt of an own crawl did not come: no server, or no proxy, was there."""


def _use_proxy_of(needed_by: Request, request: Request, *, is_own: bool) -> None:
    """Send a request through the proxy that the request which needs it names, with its credentials.

    Only in a project's own crawl, where there may be no other way to the host. Scrapy's
    HttpProxyMiddleware marks a proxy of the environment, and chooses one for each request again.
    """
    meta = needed_by.meta
    if not is_own or "proxy" not in meta or "_scheme_proxy" in meta:
        return
    request.meta.update({name: meta[name] for name in ("proxy", "_auth_proxy") if name in meta})
    if "Proxy-Authorization" in needed_by.headers:
        request.headers["Proxy-Authorization"] = needed_by.headers["Proxy-Authorization"]


def _request(url: str) -> Request:
    return Request(
        url,
        headers={"Accept": "text/plain, */*;q=0.5"},
        meta={
            # For robots.txt, redirects and errors have another meaning (RFC 9309 2.3.1).
            "dont_redirect": True,
            "dont_retry": True,
            "handle_httpstatus_all": True,
            "download_maxsize": 0,
        },
    )
