"""When a host may be asked again (R4, R5; decisions 2, 3, 7, 15, 28 and 31).

A host has two clocks: its spacing, which counts from the end of the last exchange, and its hold
(Retry-After, backoff, Visit-time, silences). A request goes out when both have ended. All times are
epoch seconds of one clock, all durations seconds; both are arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from walsh_scrapy.policy.backoff import is_refusal, parse_retry_after
from walsh_scrapy.policy.readyhosts import Rank

if TYPE_CHECKING:
    from collections.abc import Collection

    from walsh_scrapy.policy.backoff import Backoff
    from walsh_scrapy.policy.hosttimes import HoldBy, HostTimes

_DAY = 86_400.0
#: The longest hold after silences: 30 days, as for a source that fails (decision 20).
LONGEST_SILENCE_HOLD = 30 * _DAY
#: Seconds for which spacing or hold of the blocklist's own host keep back a request for the list.
#: A host that works asks for less. A longer wait must not suspend opt-outs (R3).
LONGEST_FOR_BLOCKLIST = _DAY


def spacing(
    min_interval: float, robots_interval: float | None = None, latency: float = 0.0
) -> float:
    """Return the seconds between two requests to a host (R4, decision 3).

    ``robots_interval`` is the larger of the host's Crawl-delay and Request-rate, ``latency`` how
    long its last exchange took: a host that answers slowly is asked less often.
    """
    return max(min_interval, robots_interval or 0.0, latency)


def longest_wait(
    host: str, rank: Rank, list_hosts: Collection[str], *, for_blocklist: bool
) -> float:
    """Return the seconds for which spacing and hold of a host count at most for a request.

    A request for the blocklist, or for the robots.txt that it needs, is made once a day at least,
    also at the hosts that it redirects to. Otherwise one answer of one of them could suspend all
    opt-outs for ever (R3). ``list_hosts`` are those of the list and its schema, whose robots.txt
    counts whichever request it is made for; ``for_blocklist`` is True for any other that it needs.
    """
    is_needed = for_blocklist or (rank is Rank.ROBOTS and host in list_hosts)
    return LONGEST_FOR_BLOCKLIST if rank is Rank.OPERATOR or is_needed else math.inf


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
    without_tls: bool = False  #: no TLS was possible, which counts for nothing (decision 28)

    @property
    def is_calm(self) -> bool:
        """Whether the host answered, and neither refuses nor asks for anything."""
        is_refused = is_refusal(self.status, for_robots=self.for_robots)
        return 0 < self.status < 500 and not is_refused and self.retry_after is None


@dataclass(frozen=True, slots=True)
class Lease:
    """A process asks to lease a host for one request; it is leased only if it is ready."""

    spacing: float
    timeout: float
    holder: str
    most: float = math.inf  #: seconds for which spacing and hold count at most
    #: The end of the claim that the holder has, unless it was lost; 0 for none.
    claimed_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Release:
    """The exchange that a process had leased a host for has ended."""

    exchange: Exchange
    backoff: Backoff
    holder: str
    claimed_until: float = 0.0  #: the end of the claim that goes on; 0 for none
    put_off: bool = False  #: the claim ends, and some of its work was put off to a later run


@dataclass(frozen=True, slots=True)
class GiveBack:
    """A process gives a host back: its request was never sent, or it has no more work there."""

    holder: str
    claimed_until: float = 0.0  #: the end of the claim that goes on; 0 for none
    put_off: bool = False  #: the claim ends, and some of its work was put off to a later run


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker claims a host for all that is due there (decision 41).

    It gets a host that no other process has leased, and whose work no other worker has put off
    since this one began. What it has already, it has for longer.
    """

    holder: str
    until: float
    began: float = math.inf  #: when the worker began


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


Event: TypeAlias = Lease | Release | GiveBack | Claim | Hold | Widen | Lift | OperatorPause


def after(times: HostTimes, event: Event, now: float) -> HostTimes:
    """Return the times of a host after an event at ``now``; no other function decides this."""
    match event:
        case Lease(spacing, timeout, holder, most, claimed_until):
            kept = claimed_until if times.holder == holder else 0.0
            # A claim is no reason for its holder to wait.
            free = times.without_lease(holder) if kept else times
            is_ready = free.with_limit(most).ready_at(min(spacing, most)) <= now
            return free.with_lease(now, timeout, holder, kept) if is_ready else times
        case Release(exchange, backoff, holder):
            known = times.with_status(exchange.status)
            interval = slowed(exchange.interval, known.server_errors, backoff.cap)
            ended = _with_claim_of(times, event, known.with_end(now, interval, holder), now)
            return after_answer(ended, exchange, backoff, now)
        case GiveBack(holder):
            return _with_claim_of(times, event, times.without_lease(holder), now)
        case Claim(holder, until, began):
            is_free = times.lease_until <= now and times.put_off_at < began
            is_ours = times.holder == holder
            return times.with_claim(now, until, holder) if is_ours or is_free else times
        case Hold(seconds, by):
            return times.with_hold(now, seconds, by)
        case Widen(interval):
            return replace(times, interval=max(times.interval, interval))
        case Lift():
            return times.without_hold() if times.hold_until > now else times
        case OperatorPause(seconds):
            return replace(times, pause=seconds)


def _with_claim_of(
    before: HostTimes, event: Release | GiveBack, free: HostTimes, now: float
) -> HostTimes:
    """Return ``free`` with what an event leaves of the claim that its holder had ``before``."""
    if before.holder != event.holder:
        return free
    kept = free.with_claim(now, event.claimed_until, event.holder)
    return replace(kept, put_off_at=now) if event.put_off else kept


def after_answer(times: HostTimes, exchange: Exchange, backoff: Backoff, now: float) -> HostTimes:
    """Return the times of a host after the strike and the hold of an answer (R5, decision 15).

    A Retry-After with any error is a hold for the whole host. Only refusals and server errors
    count as strikes; a silence is none (decision 28). Any answer ends a row of silences.
    """
    if exchange.without_tls:
        return times
    if exchange.unreachable:
        times = replace(times, silences=times.silences + 1, silent_at=now)
        hold = silence_hold(times.silences)
        return times.with_hold(now, hold, "silence") if hold else times
    status, retry_after = exchange.status, exchange.retry_after
    if status and times.silences:
        times = replace(times, silences=0)
    is_refused = is_refusal(status, for_robots=exchange.for_robots)
    if not is_refused and not (status >= 400 and retry_after is not None):
        return times
    is_strike = is_refused or status >= 500
    if is_strike:
        times = times.with_strike(now, now - exchange.latency)
    at = datetime.fromtimestamp(now, UTC)
    is_asked = retry_after is not None and parse_retry_after(retry_after, at)
    seconds = backoff.hold(status, retry_after, at, times.strikes - 1)
    return times.with_hold(now, seconds, "retry-after" if is_asked else "backoff", status)
