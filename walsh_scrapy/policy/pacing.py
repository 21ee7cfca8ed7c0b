"""When a host may be requested again (R4, R5; decisions 2, 3, 5, 7, 15, 28, 31 and 41).

A host has two clocks. Its delay counts from the end of the last exchange. Its hold (Retry-After,
backoff, Visit-time, an unreachable host) counts from the moment that began it. A request goes out
when both have ended. All moments are epoch seconds of the database's clock, all durations seconds;
both are arguments.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from walsh_scrapy.policy.backoff import (
    RETRIED_STATUSES,
    SERVER_ERRORS,
    is_good,
    is_redirect,
    is_refusal,
)
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.urls import host_of, registrable_domain
from walsh_scrapy.policy.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from walsh_scrapy.policy.backoff import Backoff

_DAY: Final = 86_400.0
#: Seconds that `HostTimes.in_flight_until` outlasts the timeout of its request.
MARGIN: Final = 5.0
#: An exchange takes no longer, whatever its timeout: a later `in_flight_until` is a wrong clock's.
LONGEST_EXCHANGE: Final = 3600.0
#: Seconds between two beats of a worker.
BEAT_SECONDS: Final = 5.0
#: Seconds between two looks at a host that another worker owns.
RECHECK_SECONDS: Final = 1.0
#: Seconds for which a worker counts as living after a beat. They outlast a slow commit: with 20 s a
#: model of slow databases lost hosts of living workers.
WORKER_SECONDS: Final = 45.0
#: Seconds without a 429 or 503 after which the backoff of a host starts again at its base.
QUIET_SECONDS: Final = 1800.0
#: The longest hold of an unreachable host: 30 days, as for a source that fails (decision 20).
LONGEST_UNREACHABLE: Final = 30 * _DAY
#: Seconds for which delay or hold of the blocklist's host keep back a request for the list. A
#: working host has less. A longer wait must not suspend opt-outs (R3).
LONGEST_FOR_BLOCKLIST: Final = _DAY
#: Requests in a row that a host may leave without an answer.
TIMEOUTS: Final = 2
#: Different URLs in a row to which a host may answer 403: more are a ban, and no answer to a URL.
FORBIDDEN: Final = 3
#: The cause of a hold: the host (Retry-After, Visit-time), our backoff, or that it was unreachable.
HoldBy: TypeAlias = Literal["", "retry-after", "visit-time", "backoff", "unreachable"]


class PaceBy(StrEnum):
    """The unit of pacing, as ``WALSH_PACE_BY`` names it (decision 5)."""

    HOST = "host"
    DOMAIN = "domain"

    def unit_of(self, host: str) -> str:
        """Return the host itself or its registrable domain, whichever is paced."""
        return registrable_domain(host) if self is PaceBy.DOMAIN else host

    def unit(self, url: str) -> str:
        """Return the host or domain that a URL is paced by; empty if it has no host."""
        return self.unit_of(host_of(url))


def delay_after(least: float, robots_delay: float | None = None, latency: float = 0.0) -> float:
    """Return the seconds from the end of an exchange to the next request (R4, decision 3).

    ``robots_delay`` is the larger of the host's Crawl-delay and Request-rate, ``latency`` the
    duration of the exchange: a host that answers slowly gets fewer requests.
    """
    return max(least, robots_delay or 0.0, latency)


def longest_wait(
    host: str, rank: Rank, list_hosts: Collection[str], *, for_blocklist: bool
) -> float:
    """Return the longest time that delay and hold of a host count for a request, in seconds.

    A request for the blocklist, or for the robots.txt that it needs, is made at least once per day.
    This holds even at the hosts that it redirects to. Otherwise one answer of one of them could
    suspend all opt-outs for ever (R3). ``list_hosts`` are those of the list and its schema, whose
    robots.txt counts whichever request it is made for; ``for_blocklist`` is True for any other that
    it needs.
    """
    is_needed = for_blocklist or (rank is Rank.ROBOTS and host in list_hosts)
    return LONGEST_FOR_BLOCKLIST if rank is Rank.OPERATOR or is_needed else math.inf


def slowed(delay: float, server_errors: int, longest: float) -> float:
    """Return the delay after so many server errors in a row (decision 28).

    Each doubles ``delay``, up to ``longest`` seconds. It is never shortened.
    """
    return max(delay, min(delay * 2.0 ** min(server_errors, 60), longest))


def unreachable_hold(times: int) -> float:
    """Return the seconds of the hold after a host was unreachable so many times (decision 28).

    After the first there is none: the host only comes last in the next run. Then it is 2 days,
    doubled each further time, at most 30 days.
    """
    return 0.0 if times < 2 else min(_DAY * 2.0 ** min(times - 1, 10), LONGEST_UNREACHABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request to a host and its end, as pacing and backoff see it."""

    delay: float  #: seconds that count from its end
    latency: float = 0.0  #: seconds from the request to its end
    status: int = 200  #: 0 if no answer came
    #: Seconds that its answer asked for; None without a Retry-After that can be read.
    retry_after: float | None = None
    for_robots: bool = False  #: its target was robots.txt
    unreachable: bool = False  #: there was no address, or no connection (decision 28)
    is_blameless: bool = False  #: it has no meaning for the host (decisions 28 and 29)

    @property
    def is_calm(self) -> bool:
        """Whether the host answered, and neither refuses nor redirects, and wants no wait."""
        is_refused = is_refusal(self.status, for_robots=self.for_robots)
        is_answer = 0 < self.status < 500 and not is_redirect(self.status)
        return is_answer and not is_refused and self.retry_after is None

    def in_run(self, before: HostTimes, began: float) -> Exchange:
        """Return the exchange as it counts in a run that ``began`` at this epoch second.

        An outage counts once per run, although several workers may see it (decision 28).
        """
        is_counted = before.unreachable and (before.request_ended_at or 0.0) >= began
        if self.unreachable and is_counted:
            return replace(self, unreachable=False, is_blameless=True)
        return self

    def of_domain(self) -> Exchange:
        """Return the exchange as it counts for its domain.

        An unreachable name of the domain does not count (decision 5).
        """
        return replace(self, unreachable=False, for_robots=False) if self.unreachable else self


class Hold(NamedTuple):
    """A hold: its seconds, its cause, and the status of its answer; 0 without one."""

    seconds: float
    by: HoldBy = ""
    status: int = 0


NO_HOLD: Final = Hold(0.0)


@dataclass(frozen=True, slots=True)
class HostTimes:
    """The pacing of a host in the state. ``request_ended_at`` is None if it was never requested."""

    owner: str = ""  #: the worker that owns it, by its id; empty if none does
    in_flight_until: float = 0.0  #: the latest end of the request in flight; 0 for none
    #: When the last exchange with the host was over.
    request_ended_at: float | None = None
    delay: float = 0.0  #: in force since that end
    hold_since: float = 0.0  #: when the last hold began, which may be over
    hold_until: float = 0.0
    hold_by: HoldBy = ""
    hold_status: int = 0
    refusals: int = 0  #: bursts of 429 and 503 in a row (R5)
    server_errors: int = 0  #: answers of 500, 502 and 504 in a row (decision 28)
    unreachable: int = 0  #: exchanges in a row in which it was unreachable (decision 28)
    deferred_at: float = 0.0  #: when a worker gave the host up for its run; 0 for never
    operator_delay: float = 0.0  #: the operator's least delay (decision 31)

    @property
    def refused(self) -> int | None:
        """The status with which the hold began if that was a refusal (429, 503), else None."""
        return self.hold_status if self.hold_status in RETRIED_STATUSES else None

    @property
    def last_end(self) -> float | None:
        """When the last exchange ended, or ends at the latest; None if there was none."""
        return max(self.in_flight_until, self.request_ended_at or 0.0) or self.request_ended_at

    @property
    def last_hold(self) -> Hold:
        """The hold that the last exchange began; `NO_HOLD` if it began none."""
        if self.request_ended_at is None or self.hold_since != self.request_ended_at:
            return NO_HOLD
        return Hold(self.hold_until - self.hold_since, self.hold_by, self.hold_status)

    def delay_with(self, asked_delay: float = 0.0, most: float = math.inf) -> float:
        """Return the delay in force for a request with ``asked_delay``.

        Only an operator's delay may exceed ``most`` seconds.
        """
        return max(min(max(self.delay, asked_delay), most), self.operator_delay)

    def ready_at(self, asked_delay: float = 0.0, most: float = math.inf) -> float:
        """Return the first moment at which a request with this delay may go out.

        A host that was never requested is ready at once (R4: the first request MUST NOT be
        delayed). An exchange whose worker died counts as ended at ``in_flight_until``. Delay and
        hold count for at most ``most`` seconds, each from its beginning; see `longest_wait`.
        """
        end = self.last_end
        spaced = 0.0 if end is None else end + self.delay_with(asked_delay, most)
        return max(spaced, self.in_flight_until, min(self.hold_until, self.hold_since + most))

    def after(self, exchange: Exchange, backoff: Backoff, now: float) -> HostTimes:
        """Return the times after an exchange that ended at ``now`` (decisions 2, 15, 28).

        A Retry-After with a redirect or an error is a hold for the whole host. Only 429, 503 and
        server errors count as refusals. An unreachable host counts as such only. Any answer ends
        that row.
        """
        times = self._with_end(exchange, backoff.cap, now)
        if exchange.is_blameless:
            return times
        if exchange.unreachable:
            times = replace(times, unreachable=times.unreachable + 1)
            return times.held(now, Hold(unreachable_hold(times.unreachable), "unreachable"))
        status, retry_after = exchange.status, exchange.retry_after
        if status:
            times = replace(times, unreachable=0)
        is_refused = is_refusal(status, for_robots=exchange.for_robots)
        if not is_refused and not (status >= 300 and retry_after is not None):
            return times
        if is_refused or status >= 500:
            times = replace(times, refusals=self._refusals_after(now - exchange.latency, now))
        seconds = backoff.hold(status, retry_after, times.refusals - 1)
        return times.held(now, Hold(seconds, "retry-after" if retry_after else "backoff", status))

    def held(self, now: float, hold: Hold) -> HostTimes:
        """Return the times with a hold from ``now``. A longer hold stays, with its cause."""
        until = now + hold.seconds
        if hold.seconds <= 0.0 or until <= self.hold_until:
            return self
        return replace(
            self, hold_since=now, hold_until=until, hold_by=hold.by, hold_status=hold.status
        )

    def delayed(self, delay: float) -> HostTimes:
        """Return the times with a delay of at least ``delay`` seconds."""
        return replace(self, delay=max(self.delay, delay))

    def ahead_of(self, now: float) -> float:
        """Return the seconds that these times lie in the future of a clock; 0 if they do not.

        Nothing can have ended or begun after ``now``, and no exchange may last longer than
        `LONGEST_EXCHANGE` from then. Otherwise the clock was set back.
        """
        begun = max(self.request_ended_at or 0.0, self.hold_since, self.deferred_at)
        return max(0.0, begun - now, self.in_flight_until - (now + LONGEST_EXCHANGE))

    def with_clock_at(self, now: float) -> HostTimes:
        """Return these times after the clock was set back to ``now``.

        A moment after ``now`` counts as ``now``: a wait is as long as the host requested, and no
        longer. `ahead_of` is 0 if that changes nothing.
        """
        hold_ahead = max(0.0, self.hold_since - now)
        return replace(
            self,
            in_flight_until=min(self.in_flight_until, now + LONGEST_EXCHANGE),
            request_ended_at=None
            if self.request_ended_at is None
            else min(self.request_ended_at, now),
            hold_since=self.hold_since - hold_ahead,
            hold_until=self.hold_until - hold_ahead if self.hold_until else 0.0,
            deferred_at=min(self.deferred_at, now),
        )

    def _with_end(self, exchange: Exchange, longest: float, now: float) -> HostTimes:
        """Return the times after the end of an exchange, from which its delay counts."""
        errors, status = self.server_errors, exchange.status
        if status in SERVER_ERRORS:
            errors += 1
        elif is_good(status):
            errors = 0
        delay = slowed(exchange.delay, errors, longest)
        return replace(
            self, in_flight_until=0.0, request_ended_at=now, delay=delay, server_errors=errors
        )

    def _refusals_after(self, requested_at: float, now: float) -> int:
        """Return the count after one more refusal, of a request sent at ``requested_at`` (R5).

        Refusals of requests that were sent before the last hold began belong to the burst that
        caused it, and count once (decision 15).
        """
        if self.refusals and requested_at < self.hold_since <= now:
            return self.refusals
        is_quiet = now - max(self.hold_since, self.hold_until) > QUIET_SECONDS
        return 1 if is_quiet else self.refusals + 1


@dataclass(slots=True)
class _Streak:
    """The exchanges of one host in a row."""

    refusals: Counter[Rank] = field(default_factory=Counter)  #: by the rank of the request
    timeouts: int = 0
    is_slow: bool = False
    forbidden: set[str] = field(default_factory=set)  #: URLs


class Streaks:
    """The exchanges of each host of a run in a row, by host names.

    A host may refuse as many requests as it gets tries, whatever their URLs. It may let two
    requests time out, the second one a target, and answer 403 to three URLs. It may send one target
    too slowly. A redirect does not count as an answer: its target has not answered yet.
    """

    def __init__(self) -> None:
        self._hosts: defaultdict[str, _Streak] = defaultdict(_Streak)

    def record_answer(self, host: str, url: str, status: int, rank: Rank) -> None:
        """Record an answer to a request of ``rank``."""
        if is_good(status) and status != 403:
            self._hosts.pop(host, None)
            return
        streak = self._hosts[host]
        streak.timeouts, streak.is_slow = 0, False
        if is_refusal(status, for_robots=rank is Rank.ROBOTS):
            streak.refusals[rank] += 1
        elif not is_redirect(status):
            streak.refusals.clear()
        if status == 403:
            streak.forbidden.add(url)

    def record_silence(
        self, host: str, rank: Rank, *, timed_out: bool, is_slow: bool = False
    ) -> None:
        """Record a request without an answer. For robots.txt that is a refusal (decision 12)."""
        self._hosts[host].timeouts += timed_out
        self._hosts[host].is_slow = is_slow
        self._hosts[host].refusals[rank] += is_refusal(0, for_robots=rank is Rank.ROBOTS)

    def refusals(self, host: str, rank: Rank | None = None) -> int:
        """Return the number of requests that a host refused in a row: of one rank, or of all."""
        found = self._hosts[host].refusals if host in self._hosts else Counter[Rank]()
        return found.total() if rank is None else found[rank]

    def reason(self, host: str, rank: Rank, *, gave_up: bool = False) -> str | None:
        """Return why the other requests of a host are deferred, after one of ``rank``; else None.

        ``gave_up`` means that the request was refused, and has no tries left. A refused robots.txt
        defers nothing: it counts as unreachable.
        """
        if host not in self._hosts:
            return None
        streak = self._hosts[host]
        if gave_up and rank is not Rank.ROBOTS:
            return f"it refused {count_of(streak.refusals.total(), 'request')} in a row"
        if streak.is_slow and rank is Rank.TARGET:
            return "it sends too slowly"
        if streak.timeouts >= TIMEOUTS and rank is Rank.TARGET:
            return f"it timed out {count_of(streak.timeouts, 'time')} in a row"
        if len(streak.forbidden) >= FORBIDDEN:
            return f"it answered 403 to {count_of(len(streak.forbidden), 'URL')} in a row"
        return None


class Watch:
    """Decides whether a process may take hosts from owners that no longer beat (decision 41).

    It may after it has beaten, or has seen the database's clock, for `WORKER_SECONDS` without a
    gap. A start, an outage, a suspended machine and a clock that was set are gaps: directly after
    one every worker seems to be dead. ``moment`` is of a clock that counts suspension.
    """

    _LONGEST_GAP: Final = 2 * BEAT_SECONDS

    def __init__(self) -> None:
        self._since = self._seen_at = self._now = -math.inf

    def see(self, now: float, moment: float) -> None:
        """Note the database's clock, as a beat or another statement read it at a moment."""
        passed = moment - self._seen_at
        is_gap = passed > self._LONGEST_GAP or abs(now - self._now - passed) > self._LONGEST_GAP
        if is_gap:
            self._since = moment
        self._seen_at, self._now = moment, now

    @property
    def decides_until(self) -> float:
        """The end of this permission, by the database's clock; 0 if it may not.

        The next gap counts before it is noticed: so that is less than a living worker's time.
        """
        is_long = self._seen_at - self._since >= WORKER_SECONDS
        return self._now + self._LONGEST_GAP if is_long else 0.0
