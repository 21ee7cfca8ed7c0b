"""What a crawl knows of each robots.txt (R2; decisions 7, 12 and 25)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from scrapy.utils.datatypes import LocalCache

from walsh_scrapy.policy.hosttimes import RECHECK_SECONDS
from walsh_scrapy.policy.robots.access import (
    LATENESS,
    LONGEST_IN_RUN,
    LONGEST_SETTLING,
    AccessResult,
    RobotsCopy,
    RobotsFile,
    copy_after,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from walsh_scrapy.exceptions import RequestDeferred
    from walsh_scrapy.runtime.context import Context
    from walsh_scrapy.runtime.requests import Validators

logger = logging.getLogger(__name__)

#: Parsed files kept in memory at once; the state has the others.
PARSED_FILES = 2000
#: Copies that were read ahead and are not used yet.
MOST_AHEAD: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RobotsOutcome:
    """The outcome of a request for robots.txt."""

    result: AccessResult
    status: int | None = None  #: of the last response
    body: bytes = b""
    validators: Validators | None = None  #: of a response that came in whole
    asked_with: RobotsCopy | None = None  #: the copy that was revalidated
    is_dead: bool = False  #: the host could not be reached (decision 28)


class _Look(NamedTuple):
    """What the state had of an origin, and when that was looked at, in epoch seconds."""

    copy: RobotsCopy | None
    at: float


class RobotsCache:
    """The robots.txt of each origin (scheme, host and port): in memory, and in the state.

    The state is looked at where a request finds no copy to use, and not again until another crawl
    may have written one. Methods raise StateUnavailable if the state fails.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = context.state.robots
        self._files: LocalCache[str, RobotsFile] = LocalCache(PARSED_FILES)
        self._looks: LocalCache[str, _Look] = LocalCache(PARSED_FILES)
        self._ahead: LocalCache[str, _Look] = LocalCache(MOST_AHEAD)  # each is used once
        # Fetched in this run, and until when they count for a request that is not sent yet.
        self._fetched: dict[str, float] = {}
        self._deferred: dict[str, tuple[RequestDeferred, float]] = {}

    def find(self, origin: str, url: str) -> RobotsFile | None:
        """Return the file of an origin for the request of a URL, or None if it has to be fetched.

        Beyond its day a copy counts only for a request that it made wait (decision 7).
        """
        file = self._files.get(origin)
        if file is not None and self._is_fresh(origin, file.copy):
            return file
        copy = self._look(origin)
        if copy is None:
            return None
        is_awaited = copy.unused and self._store.awaits(origin, url)
        if not (self._is_fresh(origin, copy) or is_awaited):
            return None
        return file if file is not None and file.copy == copy else self._read(origin, copy)

    def has_looked(self, origin: str) -> bool:
        """Return True if the state was looked at for the file of an origin."""
        return any(origin in each for each in (self._files, self._looks, self._ahead))

    def look_ahead(self, origins: Sequence[str]) -> None:
        """Look at the state for the files of origins that are needed soon."""
        now = self._context.clock.now()
        for origin, copy in self._store.find_several(origins).items():
            self._ahead[origin] = _Look(copy, now)

    def came_meanwhile(self, origin: str, ended: float) -> bool:
        """Return True if a copy has come since the last look, by an exchange that ended then.

        Only another crawl on the state can have fetched it.
        """
        look = self._looks.get(origin)
        if look is not None and ended < look.at - LONGEST_SETTLING:
            return False
        copy = self._look(origin)
        return copy is not None and self._is_fresh(origin, copy)

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
            copy = self.known(origin)
            if copy is None:
                return 0.0
            file = self._read(origin, copy)
        return file.interval(self._context.clock.now())

    def known(self, origin: str) -> RobotsCopy | None:
        """Return the last copy of an origin, however old."""
        look = self._looks.get(origin)
        return self._look(origin) if look is None else look.copy

    def settle(self, origin: str, answer: RobotsOutcome, asked: str) -> RobotsFile:
        """Keep the outcome of a request for robots.txt, and return the file that decides now.

        It is written with the release of the host that was ``asked`` last.
        """
        now, status, result = self._context.clock.now(), answer.status, answer.result
        # A 304 is about the copy whose validators were sent.
        known = answer.asked_with
        if result != "unchanged":  # a failure must not hide what another crawl has found since
            known = self.known(origin) if result == "good" else self._look(origin)
        copy = copy_after(known, now, status, result, answer.body)
        if given := answer.validators:
            copy = copy.with_validators(given.url, given.etag, given.last_modified)
        host, run = self._context.host(origin), self._context.run
        self._context.state.ledger.write_end(
            asked, lambda connection: self._store.write(connection, origin, copy, host, run)
        )
        self._looks[origin] = _Look(copy, now)
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
        copy = self._in_use(origin)
        if copy is not None and copy.unused:
            self._note_unused(origin, unused=self._store.end_wait(origin, url))

    def keep_for_later(self, origin: str, url: str) -> None:
        """Keep a copy usable in a later run, for a request that it made wait (decision 7).

        A copy that is out of date makes nobody wait who does not wait already: else it would stay
        in use for ever on a host with many sources.
        """
        copy = self._in_use(origin)
        if copy is not None and self._is_fresh(origin, copy):
            self._store.begin_wait(origin, url)
            self._note_unused(origin, unused=True)

    def _in_use(self, origin: str) -> RobotsCopy | None:
        file = self._files.get(origin)
        return self.known(origin) if file is None else file.copy

    def _look(self, origin: str) -> RobotsCopy | None:
        """Return the copy that the state has, or had when it was read ahead."""
        look = self._ahead.pop(origin, None)
        if look is None:
            now = self._context.clock.now()
            look = _Look(self._store.find(origin), now)
        self._looks[origin] = look
        return look.copy

    def _note_unused(self, origin: str, *, unused: bool) -> None:
        file = self._files.get(origin)
        if file is not None and file.copy.unused is not unused:
            self._files[origin] = replace(file, copy=replace(file.copy, unused=unused))

    def _read(self, origin: str, copy: RobotsCopy) -> RobotsFile:
        options, now = self._context.options, self._context.clock.now()
        file = RobotsFile.read(copy, options.ua_token, options.robots_unreachable, now)
        for line, warning in file.rules.warnings:
            logger.info("%s/robots.txt line %d: %s", origin, line, warning)
        self._files[origin] = file
        return file
