"""When a host may be asked again (R4, R5; decisions 2, 3, 7, 15, 28 and 31).

A host has two clocks: its spacing, which counts from the end of the last exchange, and its hold
(Retry-After, backoff, Visit-time, silences). A request goes out when both have ended. All times are
epoch seconds of one clock, all durations seconds; both are arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from walsh_scrapy.policy.backoff import (
    RETRIED_STATUSES,
    TROUBLED_STATUSES,
    is_good,
    is_refusal,
    parse_retry_after,
)

if TYPE_CHECKING:
    from walsh_scrapy.policy.backoff import Backoff

#: Seconds by which a lease outlasts the timeout of its request.
LEASE_MARGIN = 5.0
#: Seconds between two looks at a host that another process has leased: it may be released early.
RECHECK_SECONDS = 1.0
#: Seconds without a 429 or 503 after which the backoff of a host starts again at its base.
QUIET_SECONDS = 1800.0
_DAY = 86_400.0
#: The longest hold after silences: 30 days, as for a source that fails (decision 20).
LONGEST_SILENCE_HOLD = 30 * _DAY
#: Seconds for which spacing or hold of the blocklist's own host keep back a request for the list.
#: All that a host in order asks for is shorter. A longer one must not suspend opt-outs (R3).
LONGEST_FOR_BLOCKLIST = _DAY
#: What began a hold: the host asked for it (Retry-After, Visit-time), our backoff, or silences.
HoldBy: TypeAlias = Literal["", "retry-after", "visit-time", "backoff", "silence"]


@dataclass(frozen=True, slots=True)
class HostTimes:
    """What the ledger knows of a host. ``ended`` is None if it was never asked."""

    ended: float | None = None  #: when the last exchange with the host was over
    interval: float = 0.0  #: the spacing in force at that end
    hold_since: float = 0.0  #: when the hold (Retry-After, backoff, Visit-time, silences) began
    hold_until: float = 0.0
    hold_by: HoldBy = ""  #: what began it
    hold_status: int = 0  #: of the answer that began it; 0 if none did
    lease_since: float = 0.0  #: when a process leased the host for one request
    lease_until: float = 0.0
    holder: str = ""  #: the process that has the lease
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

    def bounded(self, most: float) -> HostTimes:
        """Return the times in which spacing and hold last at most ``most`` seconds.

        The hold counts from its beginning. An operator's pause and a lease stay as they are.
        """
        hold_until = min(self.hold_until, self.hold_since + most)
        return replace(self, interval=min(self.interval, most), hold_until=hold_until)

    def is_spaced_by(self, interval: float) -> bool:
        """Return True if a spacing of ``interval`` alone explains until when the host waits."""
        return self.ended is not None and self.ended + interval >= self.ready_at(0.0)

    def recheck_at(self, now: float, spacing: float) -> float:
        """Return when to try again: when the host is ready, or may have been released."""
        ready_at = self.ready_at(spacing)
        return min(ready_at, now + RECHECK_SECONDS) if self.lease_until > now else ready_at

    def rebased(self, now: float) -> HostTimes:
        """Return these times after the clock was set back to ``now``.

        Nothing can have begun in the future. What seems to have begun after ``now`` counts as begun
        at ``now``, so a wait is as long as was asked for, and no longer.
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
        """Return the times after a lease for one request of at most ``timeout`` seconds."""
        until = now + timeout + LEASE_MARGIN
        return replace(self, lease_since=now, lease_until=until, holder=holder)

    def released(self, ended: float, interval: float, holder: str = "") -> HostTimes:
        """Return the times after an exchange: spacing counts from its end (decision 2).

        A process that was stopped for longer than its lease may come back while another has the
        lease. Then the end of the exchange counts, and the lease of the other process stays.
        """
        if self.holder != holder:
            last = ended if self.ended is None else max(self.ended, ended)
            return replace(self, ended=last, interval=max(self.interval, interval))
        return replace(
            self, ended=ended, interval=interval, lease_since=0.0, lease_until=0.0, holder=""
        )

    def given_back(self, holder: str) -> HostTimes:
        """Return the times without the lease of a request that was never sent (decision 29)."""
        if self.holder != holder:
            return self
        return replace(self, lease_since=0.0, lease_until=0.0, holder="")

    def widened(self, interval: float) -> HostTimes:
        """Return the times with a spacing of at least ``interval``."""
        return replace(self, interval=max(self.interval, interval))

    def struck(self, now: float, sent_at: float) -> HostTimes:
        """Return the times after one more refusal of a request sent at ``sent_at`` (R5).

        Refusals of requests that were sent before the hold began belong to the burst that caused
        the hold, and count as one strike (decision 15).
        """
        if self.strikes and sent_at < self.hold_since <= now:
            return self
        quiet = now - max(self.struck_at, self.hold_until) > QUIET_SECONDS
        return replace(self, strikes=1 if quiet else self.strikes + 1, struck_at=now)

    def silenced(self, now: float) -> HostTimes:
        """Return the times after one more attempt to reach a host that is unreachable."""
        return replace(self, silences=self.silences + 1, silent_at=now)

    def with_status(self, status: int) -> HostTimes:
        """Return the times after one more answer; ``status`` is 0 if none came (decision 28)."""
        if status in TROUBLED_STATUSES:
            return replace(self, server_errors=self.server_errors + 1)
        return replace(self, server_errors=0) if is_good(status) else self

    def held(self, now: float, seconds: float, by: HoldBy = "", status: int = 0) -> HostTimes:
        """Return the times with a hold of ``seconds`` from ``now``; a longer hold stays.

        ``by`` is what began it, ``status`` that of the answer that did.
        """
        if now + seconds <= self.hold_until:
            return self
        return replace(
            self, hold_since=now, hold_until=now + seconds, hold_by=by, hold_status=status
        )

    def lifted(self) -> HostTimes:
        """Return the times without a hold. Its strikes and silences count for the next one."""
        return replace(self, hold_since=0.0, hold_until=0.0, hold_by="", hold_status=0)


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


def slowed(interval: float, server_errors: int, longest: float) -> float:
    """Return the spacing after so many server errors in a row (decision 28).

    Each doubles ``interval``, up to ``longest`` seconds. It is never shortened.
    """
    return max(interval, min(interval * 2.0 ** min(server_errors, 60), longest))


def silence_hold(silences: int) -> float:
    """Return the seconds of the hold after so many silences in a row (decision 28).

    After the first there is none: the host only comes last in the next run. Then it is 2 days,
    doubled by each further silence, at most 30 days.
    """
    if silences < 2:
        return 0.0
    return min(_DAY * 2.0 ** min(silences - 1, 10), LONGEST_SILENCE_HOLD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request to a host and its end, as pacing and backoff see it."""

    interval: float  #: the spacing that counts from its end
    latency: float = 0.0  #: seconds from the request to its end
    status: int = 200  #: 0 if no answer came
    retry_after: str | None = None  #: the header of the answer; a line each if it came twice
    for_robots: bool = False  #: its target was robots.txt
    unreachable: bool = False  #: there was no address, or no connection (decision 28)
    given_up: bool = False  #: it counts for nothing: we ended it, or TLS was not possible

    def of_domain(self) -> Exchange:
        """Return what the exchange means for its domain: only spacing (decision 5)."""
        status = 0 if self.status in RETRIED_STATUSES else self.status
        return replace(self, status=status, retry_after=None, unreachable=False, for_robots=False)


@dataclass(frozen=True, slots=True)
class Lease:
    """A process asks to lease a host for one request; it is leased only if it is ready."""

    spacing: float
    timeout: float
    holder: str
    most: float = math.inf  #: seconds for which spacing and hold count at most


@dataclass(frozen=True, slots=True)
class Release:
    """The exchange that a process had leased a host for has ended."""

    exchange: Exchange
    backoff: Backoff
    holder: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The request that a process had leased a host for was never sent."""

    holder: str


@dataclass(frozen=True, slots=True)
class UnleasedEnd:
    """An exchange without a lease has ended."""

    exchange: Exchange
    backoff: Backoff


@dataclass(frozen=True, slots=True)
class Hold:
    """A host is put on hold for some seconds."""

    seconds: float
    by: HoldBy = ""


@dataclass(frozen=True, slots=True)
class Widen:
    """A host asks for a spacing of at least so many seconds."""

    interval: float


@dataclass(frozen=True, slots=True)
class Lift:
    """The operator lifts the hold of a host (decision 31)."""


@dataclass(frozen=True, slots=True)
class OperatorPause:
    """The operator asks for a spacing of at least so many seconds; 0 ends that (decision 31)."""

    seconds: float


Event: TypeAlias = Lease | Release | GiveBack | UnleasedEnd | Hold | Widen | Lift | OperatorPause


def after(times: HostTimes, event: Event, now: float) -> HostTimes:
    """Return the times of a host after an event at ``now``; no other function decides this."""
    match event:
        case Lease(spacing, timeout, holder, most):
            is_ready = times.bounded(most).ready_at(min(spacing, most)) <= now
            return times.leased(now, timeout, holder) if is_ready else times
        case Release(exchange, backoff, holder):
            times, interval = times.with_status(exchange.status), exchange.interval
            if times.server_errors:
                interval = slowed(interval, times.server_errors, backoff.cap)
            released = times.released(now, interval, holder)
            return after_answer(released, exchange, backoff, now)
        case GiveBack(holder):
            return times.given_back(holder)
        case UnleasedEnd(exchange, backoff):
            return after_answer(times, exchange, backoff, now)
        case Hold(seconds, by):
            return times.held(now, seconds, by)
        case Widen(interval):
            return times.widened(interval)
        case Lift():
            return times.lifted() if times.hold_until > now else times
        case OperatorPause(seconds):
            return replace(times, pause=seconds)


def after_answer(times: HostTimes, exchange: Exchange, backoff: Backoff, now: float) -> HostTimes:
    """Return the times of a host after the strike and the hold of an answer (R5, decision 15).

    A Retry-After with any error is a hold for the whole host. Only refusals and server errors
    count as strikes; a silence is none (decision 28). Any answer ends a row of silences.
    """
    if exchange.given_up:
        return times
    if exchange.unreachable:
        silenced = times.silenced(now)
        hold = silence_hold(silenced.silences)
        return silenced.held(now, hold, "silence") if hold else silenced
    status, retry_after = exchange.status, exchange.retry_after
    if status and times.silences:
        times = replace(times, silences=0)
    is_refused = is_refusal(status, for_robots=exchange.for_robots)
    if not is_refused and not (status >= 400 and retry_after is not None):
        return times
    is_strike = is_refused or status >= 500
    struck = times.struck(now, now - exchange.latency) if is_strike else times
    at = datetime.fromtimestamp(now, UTC)
    is_asked = retry_after is not None and parse_retry_after(retry_after, at)
    seconds = backoff.hold(status, retry_after, at, struck.strikes - 1)
    return struck.held(now, seconds, "retry-after" if is_asked else "backoff", status)
