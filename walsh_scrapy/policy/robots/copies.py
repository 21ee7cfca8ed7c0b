"""A copy of a robots.txt with the rules it has for us (R2, decision 12)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from walsh_scrapy.policy.robots.robotstxt import RobotsTxt

if TYPE_CHECKING:
    from walsh_scrapy.policy.robots.access import Policy, RobotsCopy
    from walsh_scrapy.policy.robots.rules import Rules, Verdict


@dataclass(frozen=True, slots=True)
class RobotsFile:
    """The rules that decide about the URLs of one origin, and the copy that they come from."""

    copy: RobotsCopy
    rules: Rules
    is_replaced: bool = False  #: there is no file to obey: ``WALSH_ROBOTS_UNREACHABLE`` decides

    @classmethod
    def read(cls, copy: RobotsCopy, token: str, policy: Policy, now: float) -> RobotsFile:
        """Parse a copy for a product token; ``now`` is in epoch seconds."""
        rules = RobotsTxt.parse(copy.effective_body(policy, now)).rules_for(token)
        return cls(copy, rules, copy.is_replaced_by_policy(policy, now))

    def why(self, verdict: Verdict) -> str:
        """Return the reason of a verdict in one sentence."""
        if self.is_replaced:
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
        """Return the seconds per document of the Request-rate in force at ``now``, or None."""
        return self.rules.interval(datetime.fromtimestamp(now, UTC))

    def closed_for(self, now: float) -> float:
        """Return the seconds until Visit-time allows a request; 0 if it does now."""
        at = datetime.fromtimestamp(now, UTC)
        return (self.rules.opens(at) - at).total_seconds()
