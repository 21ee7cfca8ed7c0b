"""The robots.txt of each origin in a crawl; no other part keeps it (R2, decision 25)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy.utils.datatypes import LocalCache

from walsh_scrapy.policy.pacing import LOOK_AGAIN
from walsh_scrapy.policy.robots.access import AccessResult, copy_after
from walsh_scrapy.policy.robots.copies import RobotsFile

if TYPE_CHECKING:
    from walsh_scrapy.exceptions import RequestDeferred
    from walsh_scrapy.policy.robots.access import RobotsCopy
    from walsh_scrapy.runtime.context import Context

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
        until = max(error.until, self._context.clock.now() + LOOK_AGAIN)
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
