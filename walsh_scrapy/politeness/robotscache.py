"""The robots.txt files of a crawl: read from the state once, kept in memory, settled when new."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from scrapy.utils.datatypes import LocalCache

from walsh_scrapy.policy.robots import RobotsTxt, Rules, Verdict
from walsh_scrapy.policy.robots.access import AccessResult, RobotsCopy, copy_after

if TYPE_CHECKING:
    from walsh_scrapy.runtime.context import Crawl

logger = logging.getLogger(__name__)

#: Parsed files kept in memory at once; the state has the others.
KEPT_RULES = 2000


@dataclass(frozen=True, slots=True)
class RobotsFile:
    """A copy of a robots.txt with the rules it has for us."""

    copy: RobotsCopy
    rules: Rules
    stand_in: bool = False  #: for want of a file, these are the rules of WALSH_ROBOTS_UNREACHABLE

    def why(self, verdict: Verdict) -> str:
        """Say in one sentence what decided."""
        if self.stand_in:
            answer = f"answered {self.copy.status}" if self.copy.status else "gave no answer"
            return f"robots.txt {answer}, and WALSH_ROBOTS_UNREACHABLE decides"
        if verdict.undecided:
            return "the rules of robots.txt cost too much to read for this URL"
        if verdict.rule is None:
            return "no rule of robots.txt is about this URL"
        return f"line {verdict.line} of robots.txt says {verdict.rule!r}"

    def interval(self, now: float) -> float:
        """Return the seconds that Crawl-delay and Request-rate ask for at an epoch second."""
        return max(self.rules.crawl_delay or 0.0, self.rate(now) or 0.0)

    def rate(self, now: float) -> float | None:
        """Return the seconds a request that Request-rate asks for at an epoch second."""
        return self.rules.interval(datetime.fromtimestamp(now, UTC))

    def closed_for(self, now: float) -> float:
        """Return the seconds until Visit-time lets us in; 0 while it does."""
        at = datetime.fromtimestamp(now, UTC)
        return (self.rules.opens(at) - at).total_seconds()


class RobotsFiles:
    """Answers by origin (scheme, host and port), as ``WALSH_ROBOTS_UNREACHABLE`` says."""

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._store = crawl.state.robots
        self._files: LocalCache[str, RobotsFile] = LocalCache(KEPT_RULES)
        self._waited_for: set[str] = set()  # fetched in this run, for a request not sent yet

    def at_hand(self, origin: str) -> RobotsFile | None:
        """Return the file of an origin if it still decides, None if it has to be fetched."""
        now, ttl = self._crawl.now(), self._crawl.options.robots_ttl
        file = self._files.get(origin)
        copy = self._store.find(origin) if file is None else file.copy
        if copy is None or not (origin in self._waited_for or copy.is_usable(now, ttl)):
            return None
        return file or self.read(origin, copy, now)

    def known_interval(self, origin: str) -> float:
        """Return the spacing that an origin's file asks for, in force or out of date."""
        now = self._crawl.now()
        if (file := self._files.get(origin)) is None:
            copy = self._store.find(origin)  # another crawl may have read it by now
            if copy is None:
                return 0.0
            file = self.read(origin, copy, now)
        return file.interval(now)

    def settle(
        self, origin: str, status: int | None, meaning: AccessResult, body: bytes
    ) -> RobotsFile:
        """Keep what came of a request for robots.txt, and return what decides from now on."""
        now = self._crawl.now()
        copy = copy_after(self._store.find(origin), now, status, meaning, body)
        self._store.keep(origin, copy)
        self._waited_for.add(origin)
        if meaning == "unreachable":
            logger.warning(
                "%s/robots.txt could not be read (%s); going by %s",
                origin,
                status or "no answer",
                "the last good copy" if copy.body is not None else "WALSH_ROBOTS_UNREACHABLE",
            )
        return self.read(origin, copy, now)

    def mark_used(self, origin: str) -> None:
        """Let a copy grow old, now that the request which it made wait was sent (decision 7)."""
        self._waited_for.discard(origin)
        self._set_unused(origin, unused=False)

    def keep_for_later(self, origin: str) -> None:
        """Let the request that a copy makes wait go by it in a later run (decision 7)."""
        self._set_unused(origin, unused=True)

    def _set_unused(self, origin: str, *, unused: bool) -> None:
        file = self._files.get(origin)
        copy = self._store.find(origin) if file is None else file.copy
        if copy is None or copy.unused is unused:
            return
        self._store.set_unused(origin, unused=unused)
        if file is not None:
            self._files[origin] = replace(file, copy=replace(copy, unused=unused))

    def read(self, origin: str, copy: RobotsCopy, now: float) -> RobotsFile:
        """Parse a copy, and go by it from now on."""
        options = self._crawl.options
        policy = options.robots_unreachable
        body = copy.effective_body(policy, now)
        rules = RobotsTxt.parse(body).rules_for(options.ua_token)
        for line, warning in rules.warnings:
            logger.info("%s/robots.txt line %d: %s", origin, line, warning)
        self._files[origin] = file = RobotsFile(
            copy, rules, copy.is_replaced_by_policy(policy, now)
        )
        return file
