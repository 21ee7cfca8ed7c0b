"""When a host may be asked again (R4; decisions 2, 3 and 7): two clocks, spacing and hold.

All times are epoch seconds of one clock, handed in; all durations are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

#: A lease outlasts the longest request it can have been taken for by this much.
LEASE_MARGIN = 5.0
#: How often a host that another process holds is looked at again: it may be given back early.
LOOK_AGAIN = 1.0
#: After so long without a 429 or 503, the backoff of a host starts small again.
QUIET_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class HostTimes:
    """A host's line in the ledger. ``None`` for ``ended``: never asked."""

    ended: float | None = None  #: when the last exchange with the host was over
    interval: float = 0.0  #: the spacing that was in force at its end
    hold_since: float = 0.0  #: when the hold (Retry-After, backoff, Visit-time) was laid on
    hold_until: float = 0.0
    lease_since: float = 0.0  #: when a process took the host for one request
    lease_until: float = 0.0
    holder: str = ""  #: the process that took it
    strikes: int = 0  #: bursts of 429 and 503 in a row (R5)
    struck_at: float = 0.0

    def ready_at(self, spacing: float) -> float:
        """Return the first moment at which a request that wants ``spacing`` may go out.

        A host never seen is ready at once (R4: the first request MUST NOT be delayed). A lease
        that nobody gave back counts as an exchange that lasted as long as it could.
        """
        room = max(self.interval, spacing)
        ends = (self.ended, self.lease_until - LEASE_MARGIN if self.lease_since else None)
        spaced = max((end + room for end in ends if end is not None), default=0.0)
        return max(spaced, self.hold_until, self.lease_until)

    def look_again_at(self, now: float, spacing: float) -> float:
        """Return when to ask for the host again: when it is ready, or may have been given back."""
        ready_at = self.ready_at(spacing)
        return min(ready_at, now + LOOK_AGAIN) if self.lease_until > now else ready_at

    def rebased(self, now: float) -> HostTimes:
        """Return this line as a clock that jumped back reads it.

        What lies in the future cannot have happened: it counts as having begun now, so the wait
        is as long as was asked, and no longer.
        """
        if max(self.ended or 0.0, self.hold_since, self.lease_since) <= now:
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
        )

    def leased(self, now: float, timeout: float, holder: str = "") -> HostTimes:
        """Return this line with the host taken for one request of at most ``timeout`` seconds."""
        until = now + timeout + LEASE_MARGIN
        return replace(self, lease_since=now, lease_until=until, holder=holder)

    def released(self, ended: float, interval: float, holder: str = "") -> HostTimes:
        """Return this line after the exchange: spacing counts from its end (decision 2).

        A process that was stopped for longer than its lease may come back while another has the
        host: it notes its end, and leaves the other's lease alone.
        """
        if self.holder != holder:
            last = ended if self.ended is None else max(self.ended, ended)
            return replace(self, ended=last, interval=max(self.interval, interval))
        return replace(
            self, ended=ended, interval=interval, lease_since=0.0, lease_until=0.0, holder=""
        )

    def widened(self, interval: float) -> HostTimes:
        """Return this line with a spacing of at least ``interval``."""
        return replace(self, interval=max(self.interval, interval))

    def struck(self, now: float, sent_at: float) -> HostTimes:
        """Return this line after one more 429 or 503 to a request sent at ``sent_at`` (R5).

        Answers to requests that were out before the hold began belong to the burst that caused
        it, and count once (decision 15).
        """
        if self.strikes and sent_at < self.hold_since <= now:
            return self
        quiet = now - max(self.struck_at, self.hold_until) > QUIET_SECONDS
        return replace(self, strikes=1 if quiet else self.strikes + 1, struck_at=now)

    def held(self, now: float, seconds: float) -> HostTimes:
        """Return this line with a hold of ``seconds`` from ``now``; a longer one stays."""
        if now + seconds <= self.hold_until:
            return self
        return replace(self, hold_since=now, hold_until=now + seconds)


def spacing(
    min_interval: float,
    robots_interval: float | None = None,
    latency_factor: float = 0.0,
    latency: float = 0.0,
) -> float:
    """Return the seconds between two requests to a host (R4, decision 3).

    ``robots_interval`` is the larger of the host's Crawl-delay and Request-rate, ``latency`` how
    long its last exchange took: a host that answers slowly is asked less often.
    """
    return max(min_interval, robots_interval or 0.0, latency_factor * latency)
