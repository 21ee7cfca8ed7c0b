"""A copy of a robots.txt: its lifetime, and the decision without one.

The meaning of a response to `/robots.txt`, and its lifetime, are RFC 9309 2.3.1 and 2.4 (R2;
decisions 7 and 12). Times are epoch seconds, durations seconds; a status of ``None`` means that no
response came (network error).
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

#: Redirects that are followed (RFC 9309 2.3.1.2); after more the file is "unavailable".
MAX_HOPS = 5
#: Seconds that the clock of another process on the state may be ahead.
MOST_SKEW: Final = 1.0
#: Seconds after which an unreachable robots.txt is requested again.
UNREACHABLE_TTL: Final = 3600.0
#: Seconds for which a copy counts in the run that fetched it, while its host got no other request.
#: So a shorter `WALSH_ROBOTS_TTL` cannot end before the delay after robots.txt does.
LONGEST_IN_RUN: Final = 86_400.0
#: Seconds for which a copy counts that makes its requests wait, while its host got no other request
#: (decision 7).
LONGEST_AWAITED: Final = 31 * 86_400.0
#: Seconds that a request may be later than its wait, as other hosts get requests meanwhile.
LATENESS = 3600.0
#: Seconds from a request for robots.txt until the state names at it the copy that counts after it.
LONGEST_SETTLING = 300.0
#: `"phased"`: seconds from the first failure in which nothing is requested.
PHASE_DEFERRED: Final = 12 * 3600.0
#: `"phased"`: seconds from the first failure after which the last good copy no longer counts.
PHASE_LAST_GOOD: Final = 30 * 86_400.0

ALLOW_ALL = b""
DISALLOW_ALL = b"User-agent: *\nDisallow: /\n"

#: `WALSH_ROBOTS_UNREACHABLE`
Policy = Literal["allow", "disallow", "phased"]
#: "unchanged" is a 304 to our validators; "meaningless" an answer without meaning for the file.
AccessResult = Literal["good", "unchanged", "redirect", "unavailable", "unreachable", "meaningless"]


def access_result(status: int | None, hops: int, *, has_location: bool) -> AccessResult:
    """Return the meaning of a response after ``hops`` redirects (RFC 9309 2.3.1, decision 12).

    One redirect more than `MAX_HOPS` is "unavailable". A redirect without Location, and a 304 that
    our request had no validators for, are "meaningless".
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
    """The robots.txt of one scheme, host and port: a row of the table `robots`."""

    requested_at: float  #: the last request for it, successful or not
    status: int | None  #: of the last response
    body: bytes | None = None  #: the last good copy; empty if the file was unavailable
    failing_since: float | None = None  #: the first failure after that copy
    validator_url: str | None = None  #: the one URL that the validators may be sent to (R7)
    etag: bytes | None = None
    last_modified: bytes | None = None

    def is_usable(self, now: float, ttl: float) -> bool:
        """Return True if the copy still counts at ``now``; False if it must be fetched again.

        ``ttl`` is the usual lifetime (`WALSH_ROBOTS_TTL`).
        """
        lifetime = ttl if self.failing_since is None else min(ttl, UNREACHABLE_TTL)
        return -MOST_SKEW <= now - self.requested_at < lifetime

    def is_awaited(self, now: float, longest: float, last_end: float | None) -> bool:
        """Return True if a copy still counts because no request has followed it.

        It does so for ``longest`` seconds. ``last_end`` is the end of the last request to
        its host, in epoch seconds; None if there was none.
        """
        # The copy is kept a moment after its exchange has ended; the next one is one second later.
        is_untouched = last_end is None or last_end < self.requested_at + MOST_SKEW / 2
        return is_untouched and -MOST_SKEW <= now - self.requested_at < longest

    def with_validators(
        self, url: str, etag: bytes | None, last_modified: bytes | None
    ) -> RobotsCopy:
        """Return the copy with the validators of its response; those it does not give stay."""
        return replace(
            self,
            validator_url=url,
            etag=etag or self.etag,
            last_modified=last_modified or self.last_modified,
        )

    def keeps_deferring(self, began: float, now: float) -> bool:
        """Return True if a run that began at ``began`` must not request the file again.

        A file that defers its requests is requested again by the first run that begins an hour or
        more after the last try.
        """
        return self.requested_at <= now + MOST_SKEW and began < self.retried_from

    @property
    def retried_from(self) -> float:
        """The first moment at which a run may begin that requests an unreachable file again."""
        return self.requested_at + UNREACHABLE_TTL

    @property
    def problem(self) -> str:
        """The result of the last request for an unreachable file, in words."""
        return "no answer" if self.status is None else f"it answered {self.status}"

    def body_in_force(self, policy: Policy, now: float) -> bytes | None:
        """Return the robots.txt that counts: the copy, the last good one, or the policy's.

        None means that nothing may be requested, and that nothing is denied either: the requests
        are deferred until the file can be read.
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
    known: RobotsCopy | None, now: float, status: int | None, result: AccessResult, body: bytes
) -> RobotsCopy:
    """Return the copy of a robots.txt after one more request for it ended at ``now``.

    A failure keeps the body of the known copy, and the time of the first failure. A meaningless
    answer keeps the known copy for another day. A kept body keeps its validators.
    """
    if known is not None and result == "unchanged":
        return replace(known, requested_at=now, status=status, failing_since=None)
    if known is not None and known.body is not None and result == "meaningless":
        return replace(known, requested_at=now, status=status)
    if result == "unreachable":
        failed = RobotsCopy(now, status, failing_since=now)
        if known is None:
            return failed
        since = now if known.failing_since is None else known.failing_since
        return replace(known, requested_at=now, status=status, failing_since=since)
    return RobotsCopy(now, status, body if result == "good" else ALLOW_ALL)


@dataclass(frozen=True, slots=True)
class RobotsFile:
    """The rules that decide about the URLs of one origin, and the copy that they come from.

    If ``is_deferred`` they decide nothing, and only their delays count.
    """

    copy: RobotsCopy
    rules: Rules
    is_replaced: bool  #: there is no file to obey: ``WALSH_ROBOTS_UNREACHABLE`` decides
    is_deferred: bool  #: nothing may be requested until the file can be read
    decision: str  #: what happens meanwhile, as a clause, if the file could not be read
    hash: str | None  #: SHA-256 of the body that decides; None if it is replaced
    is_unusable: bool  #: no line of the file means anything

    @classmethod
    def read(cls, copy: RobotsCopy, token: str, policy: Policy, now: float) -> RobotsFile:
        """Parse a copy for a product token; ``now`` is in epoch seconds."""
        body = copy.body_in_force(policy, now)
        is_failing = copy.failing_since is not None
        is_replaced = is_failing and (body is None or body is not copy.body)
        known = body if body is not None else copy.body or ALLOW_ALL
        file = RobotsTxt.parse(known)
        name = None if is_replaced else sha256(copy.body or ALLOW_ALL).hexdigest()
        decision = _decision(copy, policy, body) if is_failing else ""
        rules = file.rules_for(token)
        is_unusable = file.is_unusable
        return cls(copy, rules, is_replaced, body is None, decision, name, is_unusable)

    def allows(self, url: str) -> bool:
        """Return True if a URL may be requested now, apart from Visit-time."""
        return not self.is_deferred and self.rules.verdict(url).allowed

    def why(self, verdict: Verdict) -> str:
        """Return the reason of a verdict in one sentence."""
        if self.is_replaced:
            return f"robots.txt is unreachable ({self.copy.problem}); {self.decision}"
        if verdict.undecided:
            return "the rules of robots.txt cost too much to read for this URL"
        if verdict.rule is None:
            return "no rule of robots.txt is about this URL"
        return f"line {verdict.line} of robots.txt says {verdict.rule!r}"

    def interval(self, now: float) -> float:
        """Return the seconds that Crawl-delay and Request-rate ask for at an epoch second."""
        return max(self.rules.crawl_delay or 0.0, self.rate(now) or 0.0)

    def own_wait(self, now: float) -> float:
        """Return the seconds for which Crawl-delay, Request-rate and Visit-time make one wait."""
        return self.interval(now) + self.closed_for(now)

    def rate(self, now: float) -> float | None:
        """Return the seconds per document of the Request-rate in force at ``now``, or None."""
        return self.rules.interval(datetime.fromtimestamp(now, UTC))

    def closed_for(self, now: float) -> float:
        """Return the seconds until Visit-time allows a request; 0 if it does now."""
        at = datetime.fromtimestamp(now, UTC)
        return (self.rules.opens(at) - at).total_seconds()


def _decision(copy: RobotsCopy, policy: Policy, body: bytes | None) -> str:
    """Return what happens while a file cannot be read, as a clause."""
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
