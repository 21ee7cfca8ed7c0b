"""What a robots.txt that did or did not arrive means (R2; RFC 9309 2.3.1, decision 12).

Times are epoch seconds; a status of ``None`` is a network error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

#: RFC 9309 2.3.1.2: at least five hops are followed; more than that is "unavailable".
MAX_HOPS = 5
#: How soon a robots.txt that could not be had is asked for again.
UNREACHABLE_TTL = 3600.0
#: After so long even a request that waits for its turn asks for robots.txt again.
LONGEST_WAIT = 7 * 86_400.0
#: The three phases: refuse, then the last good copy, then as if there were none.
PHASE_REFUSE = 12 * 3600.0
PHASE_LAST_GOOD = 30 * 86_400.0

ALLOW_ALL = b""
DISALLOW_ALL = b"User-agent: *\nDisallow: /\n"

Policy = Literal["allow", "disallow", "phased"]
Meaning = Literal["good", "redirect", "unavailable", "unreachable"]


@dataclass(frozen=True, slots=True)
class RobotsCopy:
    """What is known of the robots.txt of one scheme, host and port."""

    fetched_at: float  #: when it was last asked for, with whatever outcome
    status: int | None
    body: bytes | None = None  #: the last good copy; empty where there is none to obey
    failing_since: float | None = None  #: the first failure since that copy
    unused: bool = False  #: a request that it made wait was left to a later run (decision 7)

    def is_usable(self, now: float, ttl: float) -> bool:
        """Tell whether this copy still decides, or has to be fetched again.

        A request that was left to a later run goes by the copy that made it wait, so that a
        Crawl-delay of a day still lets one through.
        """
        if self.failing_since is not None:
            lifetime = min(ttl, UNREACHABLE_TTL)
        else:
            lifetime = LONGEST_WAIT if self.unused else ttl
        return 0 <= now - self.fetched_at < lifetime

    def is_stand_in(self, policy: Policy, now: float) -> bool:
        """Tell whether ``rules_body`` is what ``policy`` says, for want of a file to obey."""
        return self.failing_since is not None and self.rules_body(policy, now) is not self.body

    def rules_body(self, policy: Policy, now: float) -> bytes:
        """Return the robots.txt to obey: the copy, the last good one, or what ``policy`` says."""
        if self.failing_since is None:
            return self.body or ALLOW_ALL
        if policy == "phased":
            return self._phased(now - self.failing_since)
        if self.body is not None:
            return self.body
        return ALLOW_ALL if policy == "allow" else DISALLOW_ALL

    def _phased(self, failing_for: float) -> bytes:
        if failing_for < PHASE_REFUSE:
            return DISALLOW_ALL
        if failing_for < PHASE_LAST_GOOD and self.body is not None:
            return self.body
        host_answers = self.status is not None
        return ALLOW_ALL if failing_for >= PHASE_LAST_GOOD and host_answers else DISALLOW_ALL


def meaning_of(status: int | None, hops: int, *, has_location: bool) -> Meaning:
    """Sort a response to a request for robots.txt, after ``hops`` redirects."""
    if status is None or status == 429 or status >= 500:
        return "unreachable"
    if 200 <= status < 300:
        return "good"
    if 300 <= status < 400 and has_location and hops < MAX_HOPS:
        return "redirect"
    return "unavailable"


def updated(
    known: RobotsCopy | None, now: float, status: int | None, meaning: Meaning, body: bytes
) -> RobotsCopy:
    """Return what is known after one more attempt came to its end."""
    if meaning == "unreachable":
        failed = RobotsCopy(now, status, failing_since=now)
        if known is None:
            return failed
        since = now if known.failing_since is None else known.failing_since
        return replace(known, fetched_at=now, status=status, failing_since=since, unused=False)
    return RobotsCopy(now, status, body if meaning == "good" else ALLOW_ALL)
