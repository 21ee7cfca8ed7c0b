"""What the ledger knows of a host: under which name, and when it may be asked (decisions 2 and 5).

A host, or all hosts of a registrable domain, are paced together. By domain everything is the
domain's: spacing, lease and hold.

All times are epoch seconds of one clock, all durations seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias

from walsh_scrapy.policy.backoff import RETRIED_STATUSES, TROUBLED_STATUSES, is_good
from walsh_scrapy.policy.urls import host_of, registrable_domain

#: Seconds by which a lease outlasts the timeout of its request.
LEASE_MARGIN = 5.0
#: Seconds between two looks at a host that another process has leased: it may be released early.
RECHECK_SECONDS = 1.0
#: Seconds without a 429 or 503 after which the backoff of a host starts again at its base.
QUIET_SECONDS = 1800.0
#: What began a hold: the host asked for it (Retry-After, Visit-time), our backoff, or silences.
HoldBy: TypeAlias = Literal["", "retry-after", "visit-time", "backoff", "silence"]


class PaceBy(StrEnum):
    """What is paced together, as ``WALSH_PACE_BY`` names it."""

    HOST = "host"
    DOMAIN = "domain"

    def unit_of(self, host: str) -> str:
        """Return the host itself or its registrable domain, whichever is paced."""
        return registrable_domain(host) if self is PaceBy.DOMAIN else host

    def unit(self, url: str) -> str:
        """Return the host or domain by which a URL is paced; empty if it has no host."""
        return self.unit_of(host_of(url))


@dataclass(frozen=True, slots=True)
class HostTimes:
    """What the ledger knows of a host. ``ended`` is None if it was never asked."""

    ended: float | None = None  #: when the last exchange with the host was over
    interval: float = 0.0  #: the spacing in force at that end
    hold_since: float = 0.0  #: when the hold (Retry-After, backoff, Visit-time, silences) began
    hold_until: float = 0.0
    hold_by: HoldBy = ""  #: what began it
    hold_status: int = 0  #: of the answer that began it; 0 if none did
    lease_since: float = 0.0  #: when a process leased or claimed the host
    lease_until: float = 0.0
    holder: str = ""  #: the process that has the lease
    put_off_at: float = 0.0  #: when a worker put off the rest of its work there (decision 41)
    strikes: int = 0  #: bursts of 429 and 503 in a row (R5)
    struck_at: float = 0.0
    silences: int = 0  #: attempts in a row in which it was unreachable (decision 28)
    silent_at: float = 0.0  #: the last of them
    server_errors: int = 0  #: answers of 500, 502 and 504 in a row (decision 28)
    pause: float = 0.0  #: the least spacing that the operator asks for (decision 31)

    @property
    def refused(self) -> int | None:
        """The status with which the hold began if that was a refusal (429, 503), else None."""
        return self.hold_status if self.hold_status in RETRIED_STATUSES else None

    def spacing_with(self, spacing: float = 0.0) -> float:
        """Return the spacing in force, for a request that asks for ``spacing`` itself."""
        return max(self.interval, spacing, self.pause)

    def ready_at(self, spacing: float) -> float:
        """Return the first moment at which a request with this ``spacing`` may go out.

        A host that was never asked is ready at once (R4: the first request MUST NOT be delayed).
        A lease that was never released counts as an exchange that took its whole timeout.
        """
        least = self.spacing_with(spacing)
        ends = (self.ended, self.lease_until - LEASE_MARGIN if self.lease_since else None)
        spaced = max((end + least for end in ends if end is not None), default=0.0)
        return max(spaced, self.hold_until, self.lease_until)

    @property
    def is_marked(self) -> bool:
        """Whether the host was not well when it was asked last, or has a pause."""
        return bool(self.silences or self.server_errors or self.pause)

    def with_limit(self, most: float) -> HostTimes:
        """Return the times in which spacing and hold last at most ``most`` seconds.

        The hold counts from its beginning. An operator's pause and a lease stay as they are.
        """
        hold_until = min(self.hold_until, self.hold_since + most)
        return replace(self, interval=min(self.interval, most), hold_until=hold_until)

    def is_spaced_by(self, interval: float) -> bool:
        """Return True if a spacing of ``interval`` alone explains until when the host waits."""
        return self.ended is not None and self.ended + interval >= self.ready_at(0.0)

    def is_by_robots(self, delay: float) -> bool:
        """Return True if robots.txt alone explains until when the host waits.

        ``delay`` is what its Crawl-delay and Request-rate ask for.
        """
        if self.hold_by == "visit-time" and self.hold_until >= self.ready_at(0.0):
            return True
        return delay > 0.0 and self.is_spaced_by(delay)

    def recheck_at(self, now: float, spacing: float) -> float:
        """Return when to try again: when the host is ready, or may have been released."""
        ready_at = self.ready_at(spacing)
        return min(ready_at, now + RECHECK_SECONDS) if self.lease_until > now else ready_at

    def with_clock_at(self, now: float) -> HostTimes:
        """Return these times after the clock was set back to ``now``.

        Nothing can have begun in the future. What seems to have begun after ``now`` counts as begun
        at ``now``, so a wait is as long as was asked for, and no longer.
        """
        if max(self.ended or 0.0, self.hold_since, self.lease_since, self.put_off_at) <= now:
            return self
        ended = None if self.ended is None else min(self.ended, now)
        hold_ahead = max(0.0, self.hold_since - now)
        lease_ahead = max(0.0, self.lease_since - now)
        return replace(
            self,
            ended=ended,
            hold_since=self.hold_since - hold_ahead,
            hold_until=self.hold_until - hold_ahead,
            lease_since=self.lease_since - lease_ahead,
            lease_until=self.lease_until - lease_ahead,
            put_off_at=self.put_off_at if self.put_off_at <= now else 0.0,
        )

    def with_lease(
        self, now: float, timeout: float, holder: str = "", claimed_until: float = 0.0
    ) -> HostTimes:
        """Return the times after a lease for one request of at most ``timeout`` seconds.

        A host that its holder has claimed is leased until ``claimed_until`` at least.
        """
        until = max(now + timeout, claimed_until) + LEASE_MARGIN
        return replace(self, lease_since=now, lease_until=until, holder=holder)

    def with_claim(self, now: float, until: float, holder: str) -> HostTimes:
        """Return the times after a claim until a moment; a lease that goes on stays.

        A lease of another process that ran out counts as an exchange that ended then.
        """
        if not until or (self.holder != holder and self.lease_until > now):
            return self
        ended = self.ended
        if self.lease_since and self.holder != holder:
            ended = max(ended or 0.0, self.lease_until - LEASE_MARGIN)
        last = max(until + LEASE_MARGIN, self.lease_until if self.holder == holder else 0.0)
        return replace(self, ended=ended, lease_since=now, lease_until=last, holder=holder)

    def without_lease(self, holder: str) -> HostTimes:
        """Return the times without the lease of ``holder``; that of another process stays."""
        if self.holder != holder:
            return self
        return replace(self, lease_since=0.0, lease_until=0.0, holder="")

    def with_end(self, ended: float, interval: float, holder: str = "") -> HostTimes:
        """Return the times after an exchange: spacing counts from its end (decision 2).

        A process that was stopped for longer than its lease may come back while another has the
        lease. Then the end of the exchange counts, and the lease of the other process stays.
        """
        if self.holder != holder:
            last = ended if self.ended is None else max(self.ended, ended)
            return replace(self, ended=last, interval=max(self.interval, interval))
        return replace(self.without_lease(holder), ended=ended, interval=interval)

    def with_strike(self, now: float, sent_at: float) -> HostTimes:
        """Return the times after one more refusal of a request sent at ``sent_at`` (R5).

        Refusals of requests that were sent before the hold began belong to the burst that caused
        the hold, and count as one strike (decision 15).
        """
        if self.strikes and sent_at < self.hold_since <= now:
            return self
        quiet = now - max(self.struck_at, self.hold_until) > QUIET_SECONDS
        return replace(self, strikes=1 if quiet else self.strikes + 1, struck_at=now)

    def with_status(self, status: int) -> HostTimes:
        """Return the times after one more answer; ``status`` is 0 if none came (decision 28)."""
        if status in TROUBLED_STATUSES:
            return replace(self, server_errors=self.server_errors + 1)
        return replace(self, server_errors=0) if is_good(status) else self

    def with_hold(self, now: float, seconds: float, by: HoldBy = "", status: int = 0) -> HostTimes:
        """Return the times with a hold of ``seconds`` from ``now``; a longer hold stays.

        ``by`` is what began it, ``status`` that of the answer that did.
        """
        if now + seconds <= self.hold_until:
            return self
        return replace(
            self, hold_since=now, hold_until=now + seconds, hold_by=by, hold_status=status
        )

    def without_hold(self) -> HostTimes:
        """Return the times without a hold. Its strikes and silences count for the next one."""
        return replace(self, hold_since=0.0, hold_until=0.0, hold_by="", hold_status=0)
