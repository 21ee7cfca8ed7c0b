"""The stored copy of a robots.txt: how long it is valid, and what applies without one (R2).

The meaning of a response to `/robots.txt`, and its lifetime, are RFC 9309 2.3.1 and 2.4. Moments
are epoch seconds, durations are seconds. A status of ``None`` means that no response came.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.robots.robotstxt import RobotsTxt

if TYPE_CHECKING:
    from walsh_scrapy.policy.robots.robotstxt import Rules, Verdict

#: The maximum number of redirects (RFC 9309 2.3.1.2); after more the file is "unavailable".
MAX_HOPS = 5
#: By how many seconds the clock of another process that shares the state may be ahead.
MAX_CLOCK_SKEW_SECONDS: Final = 1.0
#: Seconds after which an unreachable robots.txt is requested again.
UNREACHABLE_TTL: Final = 3600.0
#: The maximum lifetime of a copy in the run that fetched it, if its host got no request since.
#: Otherwise a `WALSH_ROBOTS_TTL` shorter than the host's delay would end before the first target.
MAX_UNUSED_IN_RUN_SECONDS: Final = 86_400.0
#: The maximum lifetime of a copy that makes the next request wait by its own Crawl-delay,
#: Request-rate or Visit-time, if its host got no request since.
MAX_UNUSED_SECONDS: Final = 31 * 86_400.0
#: By how many seconds a request may be later than its wait ends, because other hosts go first.
MAX_LATENESS_SECONDS = 3600.0
#: The maximum time from a request for robots.txt until the state has the new copy, in seconds.
MAX_SETTLING_SECONDS = 300.0
#: `"phased"`: for this many seconds after the first failure nothing is requested.
PHASE_DEFERRED: Final = 12 * 3600.0
#: `"phased"`: this many seconds after the first failure the last good copy expires.
PHASE_LAST_GOOD: Final = 30 * 86_400.0

ALLOW_ALL = b""
DISALLOW_ALL = b"User-agent: *\nDisallow: /\n"

#: `WALSH_ROBOTS_UNREACHABLE`
Policy = Literal["allow", "disallow", "phased"]
#: "unchanged": 304 to a conditional request. "meaningless": a response that says nothing about the
#: file, such as 304 to an unconditional request.
AccessResult = Literal["good", "unchanged", "redirect", "unavailable", "unreachable", "meaningless"]


def access_result(status: int | None, hops: int, *, has_location: bool) -> AccessResult:
    """Return the meaning of a response after ``hops`` redirects (RFC 9309 2.3.1).

    A redirect after `MAX_HOPS` hops is "unavailable". A redirect without Location is "meaningless",
    and so is a 304; the caller handles a 304 to a conditional request.
    """
    if status is None or status == 429 or status >= 500:
        return "unreachable"
    if 200 <= status < 300:
        return "good"
    if status == 304 or (300 <= status < 400 and not has_location):
        return "meaningless"
    return "redirect" if 300 <= status < 400 and hops < MAX_HOPS else "unavailable"


@dataclass(frozen=True, slots=True)
class RobotsCopy:
    """The robots.txt of one scheme, host and port, as the state stores it."""

    requested_at: float  #: the last request for the file, successful or not
    status: int | None  #: the status of that request
    body: bytes | None = None  #: the last good copy; empty if the file was unavailable
    failing_since: float | None = None  #: the first failure since the last good copy
    validator_url: str | None = None  #: the one URL to which the validators may be sent (R7)
    etag: bytes | None = None
    last_modified: bytes | None = None

    def is_usable(self, now: float, ttl: float) -> bool:
        """Return True if the copy is still valid at ``now``, False if it must be fetched again.

        ``ttl`` is `WALSH_ROBOTS_TTL`. After a failure the lifetime is `UNREACHABLE_TTL` at most.
        """
        lifetime = ttl if self.failing_since is None else min(ttl, UNREACHABLE_TTL)
        return -MAX_CLOCK_SKEW_SECONDS <= now - self.requested_at < lifetime

    def is_valid_unused(self, now: float, max_age: float, last_end: float | None) -> bool:
        """Return True if an expired copy is still valid because its host got no request since.

        ``max_age`` is the maximum age of such a copy in seconds. ``last_end`` is the end of the
        last exchange with the host, or None if there was none.
        """
        # The copy is stored a moment after its exchange; the next exchange is at least 1 s later.
        is_unused = last_end is None or last_end < self.requested_at + MAX_CLOCK_SKEW_SECONDS / 2
        return is_unused and -MAX_CLOCK_SKEW_SECONDS <= now - self.requested_at < max_age

    def with_validators(
        self, url: str, etag: bytes | None, last_modified: bytes | None
    ) -> RobotsCopy:
        """Return the copy with the validators of a response, and the old ones where it has none."""
        return replace(
            self,
            validator_url=url,
            etag=etag or self.etag,
            last_modified=last_modified or self.last_modified,
        )

    def keeps_deferring(self, began: float, now: float) -> bool:
        """Return True if a run that began at ``began`` must not request an unreachable file again.

        The first run that begins an hour or more after the last try requests it again.
        """
        return self.requested_at <= now + MAX_CLOCK_SKEW_SECONDS and began < self.retried_from

    @property
    def retried_from(self) -> float:
        """The first moment at which a run may begin to request an unreachable file again."""
        return self.requested_at + UNREACHABLE_TTL

    @property
    def problem(self) -> str:
        """The result of the last request for an unreachable file, for people."""
        return "no answer" if self.status is None else f"it answered {self.status}"

    def active_body(self, policy: Policy, now: float) -> bytes | None:
        """Return the robots.txt to obey: the copy, or what ``policy`` says for an unreachable file.

        None means that requests are neither allowed nor denied, but deferred until the file can be
        fetched.
        """
        if self.failing_since is None:
            return self.body or ALLOW_ALL
        if policy == "phased":
            return self._body_of_phase(now - self.failing_since)
        if self.body is not None:
            return self.body
        return ALLOW_ALL if policy == "allow" else DISALLOW_ALL

    def _body_of_phase(self, failing_for: float) -> bytes | None:
        if failing_for < PHASE_DEFERRED:
            return None
        if failing_for < PHASE_LAST_GOOD:
            return self.body
        host_answers = self.status is not None
        return ALLOW_ALL if host_answers else None


def copy_after(
    previous: RobotsCopy | None, now: float, status: int | None, result: AccessResult, body: bytes
) -> RobotsCopy:
    """Return the copy of a robots.txt after one more request for it, which ended at ``now``.

    A failure keeps the body and the validators of the previous copy, and the time of the first
    failure. A meaningless response makes the previous copy valid for another day.
    """
    if previous is not None and result == "unchanged":
        return replace(previous, requested_at=now, status=status, failing_since=None)
    if previous is not None and previous.body is not None and result == "meaningless":
        return replace(previous, requested_at=now, status=status)
    if result == "unreachable":
        failed = RobotsCopy(now, status, failing_since=now)
        if previous is None:
            return failed
        since = now if previous.failing_since is None else previous.failing_since
        return replace(previous, requested_at=now, status=status, failing_since=since)
    return RobotsCopy(now, status, body if result == "good" else ALLOW_ALL)


@dataclass(frozen=True, slots=True)
class RobotsFile:
    """The rules for the URLs of one origin, and the copy that they come from.

    If ``is_deferred`` is True, only the delays of the rules apply.
    """

    copy: RobotsCopy
    rules: Rules
    is_replaced: bool  #: there is no file to obey: ``WALSH_ROBOTS_UNREACHABLE`` decides
    is_deferred: bool  #: nothing may be requested until the file can be fetched
    decision: str  #: what happens to requests while the file is unreachable, as a clause
    hash: str | None  #: SHA-256 of the obeyed body; None if there is no file to obey
    is_unusable: bool  #: the file has text, but no line that is a record

    @classmethod
    def from_copy(cls, copy: RobotsCopy, token: str, policy: Policy, now: float) -> RobotsFile:
        """Parse a copy for the bot with a product token."""
        body = copy.active_body(policy, now)
        is_failing = copy.failing_since is not None
        is_replaced = is_failing and (body is None or body is not copy.body)
        parsed_body = body if body is not None else copy.body or ALLOW_ALL
        file = RobotsTxt.parse(parsed_body)
        digest = None if is_replaced else sha256(copy.body or ALLOW_ALL).hexdigest()
        decision = _decision(copy, policy, body) if is_failing else ""
        rules = file.rules_for(token)
        is_unusable = file.is_unusable
        return cls(copy, rules, is_replaced, body is None, decision, digest, is_unusable)

    def allows(self, url: str) -> bool:
        """Return True if a URL may be requested. Delays and Visit-time are not considered."""
        return not self.is_deferred and self.rules.verdict(url).allowed

    def why(self, verdict: Verdict) -> str:
        """Return the reason of a verdict in one sentence."""
        if self.is_replaced:
            return f"robots.txt is unreachable ({self.copy.problem}); {self.decision}"
        if verdict.undecided:
            return "its robots.txt is too complex to evaluate for this URL, so the URL is denied"
        if verdict.rule is None:
            return "no rule of robots.txt matches this URL"
        return f"line {verdict.line} of robots.txt says {verdict.rule!r}"

    def interval(self, now: float) -> float:
        """Return the larger of Crawl-delay and the Request-rate at ``now``, in seconds."""
        return max(self.rules.crawl_delay or 0.0, self.rate(now) or 0.0)

    def own_wait(self, now: float) -> float:
        """Return for how many seconds the file itself makes the next request wait."""
        return self.interval(now) + self.closed_for(now)

    def rate(self, now: float) -> float | None:
        """Return the seconds per document of the Request-rate at ``now``, or None."""
        return self.rules.interval(datetime.fromtimestamp(now, UTC))

    def closed_for(self, now: float) -> float:
        """Return the seconds until Visit-time allows a request; 0 if it allows one now."""
        at = datetime.fromtimestamp(now, UTC)
        return (self.rules.opens(at) - at).total_seconds()


def _decision(copy: RobotsCopy, policy: Policy, body: bytes | None) -> str:
    """Return what happens to requests while a robots.txt is unreachable, as a clause."""
    because = f'because WALSH_ROBOTS_UNREACHABLE = "{policy}"'
    if body is None:
        again = format_moment(copy.retried_from)
        return (
            f"the requests that need it are deferred, {because}; a run that begins after {again} "
            'tries it again; set WALSH_ROBOTS_UNREACHABLE = "allow" to crawl without it'
        )
    if body is copy.body:
        return "its last good copy is obeyed"
    if body == ALLOW_ALL:
        after = " after 30 days" if policy == "phased" else ""
        return f"crawling without it{after}, {because}"
    return f"the requests that need it are denied, {because}"
