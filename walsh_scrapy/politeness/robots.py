"""robots.txt in a crawl: how it is fetched, and what is known of it (R2; decisions 12 and 25)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.utils.datatypes import LocalCache

from walsh_scrapy.exceptions import Denied, RequestDeferred
from walsh_scrapy.policy.pacing import RECHECK_SECONDS
from walsh_scrapy.policy.references import resolve_reference
from walsh_scrapy.policy.robots.access import AccessResult, RobotsFile, access_result, copy_after
from walsh_scrapy.politeness.hostqueue import HostQueues
from walsh_scrapy.runtime.context import Context
from walsh_scrapy.runtime.requestmeta import request_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from walsh_scrapy.policy.robots.access import RobotsCopy
    from walsh_scrapy.politeness.prerequisites import Steps

logger = logging.getLogger(__name__)

#: Parsed files kept in memory at once; the state has the others.
PARSED_FILES = 2000


class RobotsCache:
    """The robots.txt of each origin (scheme, host and port): in memory, and in the state.

    Its methods raise StateUnavailable if the state fails.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.state.robots
        self._files: LocalCache[str, RobotsFile] = LocalCache(PARSED_FILES)
        self._fetched: set[str] = set()  # in this run, for a request that is not sent yet
        self._deferred: dict[str, tuple[RequestDeferred, float]] = {}

    def find(self, origin: str) -> RobotsFile | None:
        """Return the file of an origin, or None if it has to be fetched."""
        now, ttl = self._context.clock.now(), self._context.options.robots_ttl
        file = self._files.get(origin)
        copy = self._store.find(origin) if file is None else file.copy
        if copy is None or not (origin in self._fetched or copy.is_usable(now, ttl)):
            return None
        return file or self._read(origin, copy)

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

    def settle(
        self, origin: str, status: int | None, result: AccessResult, body: bytes
    ) -> RobotsFile:
        """Keep the outcome of a request for robots.txt, and return the file that decides now."""
        now = self._context.clock.now()
        copy = copy_after(self._store.find(origin), now, status, result, body)
        self._store.keep(origin, copy)
        self._fetched.add(origin)
        if result == "unreachable":
            logger.warning(
                "%s/robots.txt could not be read (%s); %s decides",
                origin,
                status or "no answer",
                "the last good copy" if copy.body is not None else "WALSH_ROBOTS_UNREACHABLE",
            )
        return self._read(origin, copy)

    def defer(self, origin: str, error: RequestDeferred) -> None:
        """Do not fetch an origin's file before the end of a deferral."""
        # If the state failed, the deferral ends now; even so the file is not fetched again at once.
        until = max(error.until, self._context.clock.now() + RECHECK_SECONDS)
        self._deferred[origin] = error, until

    def mark_used(self, origin: str) -> None:
        """Let a copy expire as usual: the request that was deferred by it was sent (decision 7)."""
        self._fetched.discard(origin)
        self._set_unused(origin, unused=False)

    def keep_for_later(self, origin: str) -> None:
        """Keep a copy usable in a later run, for a request that it deferred (decision 7)."""
        self._set_unused(origin, unused=True)

    def _set_unused(self, origin: str, *, unused: bool) -> None:
        file = self._files.get(origin)
        copy = self._store.find(origin) if file is None else file.copy
        if copy is None or copy.unused is unused:
            return
        self._store.set_unused(origin, unused=unused)
        if file is not None:
            self._files[origin] = replace(file, copy=replace(copy, unused=unused))

    def _read(self, origin: str, copy: RobotsCopy) -> RobotsFile:
        options, now = self._context.options, self._context.clock.now()
        file = RobotsFile.read(copy, options.ua_token, options.robots_unreachable, now)
        for line, warning in file.rules.warnings:
            logger.info("%s/robots.txt line %d: %s", origin, line, warning)
        self._files[origin] = file
        return file


class RobotsFetch:
    """Fetches a robots.txt, and puts the outcome into the cache."""

    def __init__(self, crawler: Crawler, cache: RobotsCache) -> None:
        self._stats = crawler.stats
        self._context = Context.of(crawler)
        self._queues = HostQueues.of(crawler)
        self._cache = cache

    def steps(self, origin: str, url: str) -> Steps:
        """Yield the requests for an origin's file at ``url``, and keep the outcome.

        See ``prerequisites`` for how they are made.
        """
        hops: tuple[str, ...] = ()
        while True:
            answer = yield _request(url, hops)
            if isinstance(answer, BaseException):
                self._failed(origin, answer)
                return
            location = answer.headers.get("Location")
            result = access_result(answer.status, len(hops), has_location=location is not None)
            if result != "redirect" or location is None:
                break
            target = resolve_reference(answer.url, location)
            if target is None:
                result = "unavailable"
                break
            url, hops = target, (*hops, request_of(answer).url)
        self._settle(origin, answer.status, result, answer.body)

    def _failed(self, origin: str, error: BaseException) -> None:
        if isinstance(error, RequestDeferred):
            self._cache.defer(origin, error)
        elif isinstance(error, Denied):  # a gate denied the target of a redirect
            logger.info("%s/robots.txt redirects to a denied URL: %s", origin, error)
            self._settle(origin, None, "unavailable", b"")
        else:
            self._settle(origin, None, "unreachable", b"")

    def _settle(self, origin: str, status: int | None, result: AccessResult, body: bytes) -> None:
        """Keep the outcome, and give the host the spacing that its file asks for."""
        self._stats.inc_value(f"walsh/robots/{result}")
        try:
            file = self._cache.settle(origin, status, result, body)
        except RequestDeferred as error:  # the state failed
            self._cache.defer(origin, error)
            return
        interval = file.interval(self._context.clock.now())
        if interval > self._context.options.min_interval:
            host = self._context.host(origin)
            snapshot = self._context.state.ledger.widen(host, interval)
            self._queues.delay(host, snapshot.wait, snapshot.times.interval)


def _request(url: str, hops: tuple[str, ...]) -> Request:
    return Request(
        url,
        headers={"Accept": "text/plain, */*;q=0.5"},
        meta={
            # For robots.txt, redirects and errors have their own meaning (RFC 9309 2.3.1).
            "redirect_urls": list(hops),
            "dont_redirect": True,
            "dont_retry": True,
            "handle_httpstatus_all": True,
            "download_maxsize": 0,
        },
    )
