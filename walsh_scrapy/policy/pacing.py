"""When a host may be requested again (R4, R5).

A host has two clocks: a delay, from the end of the last exchange, and a hold (Retry-After, backoff,
Visit-time, unreachable), from the moment that began it. A request is sent when both have ended.

Moments are epoch seconds of the database's clock, durations are seconds. Both are arguments.
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
from walsh_scrapy.policy.wording import count_of, format_seconds

if TYPE_CHECKING:
    from collections.abc import Collection

    from walsh_scrapy.policy.backoff import Backoff

_DAY: Final = 86_400.0
#: Seconds from the timeout of a request to its `HostTimes.in_flight_until`.
MARGIN: Final = 5.0
#: The maximum duration of an exchange. A later `in_flight_until` comes from a wrong clock.
MAX_EXCHANGE_SECONDS: Final = 3600.0
#: Seconds between two beats of a worker, which show that it lives.
BEAT_SECONDS: Final = 5.0
#: Seconds until a host that another worker owns is tried again.
RECHECK_SECONDS: Final = 1.0
#: Seconds after its last beat in which a worker is taken to live. Longer than a slow commit: with
#: 20 s, a model of slow databases lost hosts of living workers.
WORKER_SECONDS: Final = 45.0
#: Seconds without a 429 or 503 after which the backoff of a host starts again at its base.
QUIET_SECONDS: Final = 1800.0
#: The maximum hold of an unreachable host: 30 days, as for a source that fails.
MAX_UNREACHABLE_SECONDS: Final = 30 * _DAY
#: The maximum wait for a request for the blocklist, in seconds. A longer delay or hold of its host
#: must not keep new opt-outs from this crawl (R3).
MAX_BLOCKLIST_WAIT_SECONDS: Final = _DAY
#: After this many timeouts in a row the other requests of a host are deferred.
MAX_TIMEOUTS: Final = 2
#: After 403 for this many different URLs in a row the host bans the bot, so the rest is deferred.
MAX_FORBIDDEN_URLS: Final = 3
#: Seconds on the wire for one visit of a source, with its robots.txt, redirects and retries.
MAX_VISIT_SECONDS: Final = 60.0
#: The maximum time limit of one request of a project's own crawl. Its host is busy for that time.
MAX_TIMEOUT_SECONDS: Final = 3500
#: The maximum delay to which server errors double that of a host in a project's own crawl.
MAX_SLOWED_SECONDS: Final = 60.0
#: The maximum of idle connections of a crawl that is not serial, and of the seconds of any of them.
MAX_IDLE_CONNECTIONS: Final = 32
MAX_IDLE_SECONDS: Final = 15.0
#: With Scrapy's handler, which resumes no TLS session: a new connection costs a host more there.
MAX_IDLE_SCRAPY_CONNECTIONS: Final = 256
#: No request is sent if less than these seconds remain for it.
MIN_TRY_SECONDS: Final = 1.0
#: A host is deferred if its exchanges took more than these seconds in a run,
MAX_HOST_SECONDS: Final = 60.0
#: and more than these on average. A host with hundreds of sources may be busy for longer.
MAX_MEAN_SECONDS: Final = 3.0
#: The cause of a hold. "unreachable": there was no connection.
HoldBy: TypeAlias = Literal["", "retry-after", "visit-time", "backoff", "unreachable"]


class PaceBy(StrEnum):
    """``WALSH_PACE_BY``: what shares delay, hold and owner."""

    HOST = "host"
    DOMAIN = "domain"

    def unit_of(self, host: str) -> str:
        """Return the host itself, or its registrable domain."""
        return registrable_domain(host) if self is PaceBy.DOMAIN else host

    def unit(self, url: str) -> str:
        """Return the host or the registrable domain of a URL; empty if the URL has no host."""
        return self.unit_of(host_of(url))


def delay_after(min_delay: float, robots_delay: float | None = None, latency: float = 0.0) -> float:
    """Return the delay from the end of an exchange to the next request, in seconds (R4).

    ``robots_delay`` is the larger of the host's Crawl-delay and Request-rate. ``latency`` is the
    duration of the exchange: a slow host gets fewer requests.
    """
    return max(min_delay, robots_delay or 0.0, latency)


def longest_wait(
    host: str, rank: Rank, list_hosts: Collection[str], *, for_blocklist: bool
) -> float:
    """Return for how many seconds delay and hold of a host may keep back a request.

    For most requests this is infinite. The blocklist, and every robots.txt that it needs, is
    fetched at least once a day, even if it redirects to other hosts. Otherwise a Retry-After of one
    of these hosts could keep opt-outs from this crawl forever (R3).

    ``list_hosts`` are the hosts of the blocklist and its schema. ``for_blocklist`` is True for a
    robots.txt of another host, to which the blocklist redirects.
    """
    is_needed = for_blocklist or (rank is Rank.ROBOTS and host in list_hosts)
    return MAX_BLOCKLIST_WAIT_SECONDS if rank is Rank.OPERATOR or is_needed else math.inf


def slowed(delay: float, server_errors: int, max_delay: float) -> float:
    """Return the delay after a number of server errors in a row.

    Each error doubles ``delay``, up to ``max_delay`` seconds. A longer delay is not shortened.
    """
    return max(delay, min(delay * 2.0 ** min(server_errors, 60), max_delay))


def unreachable_hold(times: int) -> float:
    """Return the hold after a host was unreachable in ``times`` runs in a row, in seconds.

    There is none after the first time: the host only comes last in the next run. After the second
    it is 2 days, then it doubles, up to 30 days.
    """
    return 0.0 if times < 2 else min(_DAY * 2.0 ** min(times - 1, 10), MAX_UNREACHABLE_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request to a host and its outcome, as far as pacing and backoff need it."""

    delay: float  #: seconds from its end to the next request
    latency: float = 0.0  #: seconds from the request to its end
    status: int = 200  #: 0 if no response came
    #: Seconds of its Retry-After; None without one that can be read.
    retry_after: float | None = None
    for_robots: bool = False  #: the request was for robots.txt
    from_gateway: bool = False  #: a 502, 503 or 504 that a proxy may have made: a refusal
    unreachable: bool = False  #: the host has no address, or there was no connection
    is_ignored: bool = False  #: the failure says nothing about the host, only about this machine

    @property
    def is_plain_answer(self) -> bool:
        """Whether the host answered without a refusal, a redirect, an error or a Retry-After."""
        is_refused = is_refusal(self.status, for_robots=self.for_robots)
        is_answer = 0 < self.status < 500 and not is_redirect(self.status)
        return is_answer and not is_refused and self.retry_after is None

    def in_run(self, before: HostTimes, began: float) -> Exchange:
        """Return the exchange for a run that began at the epoch second ``began``.

        An unreachable host counts once per run, although several workers may try it.
        """
        was_counted = before.unreachable and (before.request_ended_at or 0.0) >= began
        if self.unreachable and was_counted:
            return replace(self, unreachable=False, is_ignored=True)
        return self

    def of_domain(self) -> Exchange:
        """Return the exchange for the domain of its host.

        One unreachable name does not make the whole domain unreachable.
        """
        return replace(self, unreachable=False, for_robots=False) if self.unreachable else self


class Hold(NamedTuple):
    """A time in which a host gets no request, with the cause."""

    seconds: float
    by: HoldBy = ""
    status: int = 0  #: of the response that caused it; 0 without a response


NO_HOLD: Final = Hold(0.0)


@dataclass(frozen=True, slots=True)
class HostTimes:
    """The pacing of a host, as the state keeps it."""

    owner: str = ""  #: the id of the worker that owns the host; empty if none does
    in_flight_until: float = 0.0  #: the latest end of the request in flight; 0 for none
    #: When the last exchange with the host ended; None if the host was never requested.
    request_ended_at: float | None = None
    delay: float = 0.0  #: seconds from that end
    hold_since: float = 0.0  #: when the last hold began, which may be over
    hold_until: float = 0.0
    hold_by: HoldBy = ""
    hold_status: int = 0
    refusals: int = 0  #: bursts of 429 and 503 in a row (R5)
    server_errors: int = 0  #: answers of 500, 502 and 504 in a row
    unreachable: int = 0  #: exchanges in a row in which the host was unreachable
    deferred_at: float = 0.0  #: when a worker deferred the host for its run; 0 for never
    operator_delay: float = 0.0  #: the minimum delay that an operator has set

    @property
    def refused(self) -> int | None:
        """429 or 503 if that caused the hold, else None."""
        return self.hold_status if self.hold_status in RETRIED_STATUSES else None

    @property
    def last_end(self) -> float | None:
        """When the last exchange ended, or will end at the latest; None if there was none."""
        return max(self.in_flight_until, self.request_ended_at or 0.0) or self.request_ended_at

    @property
    def last_hold(self) -> Hold:
        """The hold that the last exchange caused; `NO_HOLD` if it caused none."""
        if self.request_ended_at is None or self.hold_since != self.request_ended_at:
            return NO_HOLD
        return Hold(self.hold_until - self.hold_since, self.hold_by, self.hold_status)

    def delay_with(self, min_delay: float = 0.0, max_wait: float = math.inf) -> float:
        """Return the delay before a request that asks for at least ``min_delay`` seconds.

        ``max_wait`` limits every delay but the operator's; see `longest_wait`.
        """
        return max(min(max(self.delay, min_delay), max_wait), self.operator_delay)

    def ready_at(self, min_delay: float = 0.0, max_wait: float = math.inf) -> float:
        """Return when a request that asks for at least ``min_delay`` seconds may be sent.

        A host that was never requested is ready at once (R4: the first request MUST NOT be
        delayed). If a worker died during its exchange, that ended at ``in_flight_until``. Delay
        and hold last at most ``max_wait`` seconds each; see `longest_wait`.
        """
        end = self.last_end
        delay_end = 0.0 if end is None else end + self.delay_with(min_delay, max_wait)
        return max(
            delay_end, self.in_flight_until, min(self.hold_until, self.hold_since + max_wait)
        )

    def after(self, exchange: Exchange, backoff: Backoff, now: float) -> HostTimes:
        """Return the times after an exchange that ended at ``now``.

        A 429 or 503, and a Retry-After with a redirect or an error, put the whole host on hold. So
        does a 502 or 504 that came through a proxy: nobody knows whether it is the host's.
        Server errors with a Retry-After count as refusals too. An unreachable host is on hold from
        its second run on; any response makes it reachable again.
        """
        times = self._with_end(exchange, backoff.max_delay, now)
        if exchange.is_ignored:
            return times
        if exchange.unreachable:
            times = replace(times, unreachable=times.unreachable + 1)
            return times.with_hold(now, Hold(unreachable_hold(times.unreachable), "unreachable"))
        status = exchange.status
        retry_after = exchange.retry_after
        if status:
            times = replace(times, unreachable=0)
        is_retried_always = exchange.for_robots or exchange.from_gateway
        is_refused = is_refusal(status, for_robots=is_retried_always)
        if not is_refused and not (status >= 300 and retry_after is not None):
            return times
        if is_refused or status >= 500:
            times = replace(times, refusals=self._refusals_after(now - exchange.latency, now))
        seconds = backoff.hold(status, retry_after, times.refusals - 1)
        hold = Hold(seconds, "retry-after" if retry_after else "backoff", status)
        return times.with_hold(now, hold)

    def with_hold(self, now: float, hold: Hold) -> HostTimes:
        """Return the times with a hold that begins ``now``, unless the present one ends later."""
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
        """Return by how many seconds the clock was set back since these times; 0 if it was not.

        Nothing can have ended or begun after ``now``, and no exchange may last longer than
        `MAX_EXCHANGE_SECONDS` from now on.
        """
        begun = max(self.request_ended_at or 0.0, self.hold_since, self.deferred_at)
        return max(0.0, begun - now, self.in_flight_until - (now + MAX_EXCHANGE_SECONDS))

    def with_clock_at(self, now: float) -> HostTimes:
        """Return these times after the clock was set back to ``now``.

        A moment after ``now`` becomes ``now``, so that no wait is longer than the host asked for.
        `ahead_of` is 0 if this changes nothing.
        """
        hold_ahead = max(0.0, self.hold_since - now)
        return replace(
            self,
            in_flight_until=min(self.in_flight_until, now + MAX_EXCHANGE_SECONDS),
            request_ended_at=None
            if self.request_ended_at is None
            else min(self.request_ended_at, now),
            hold_since=self.hold_since - hold_ahead,
            hold_until=self.hold_until - hold_ahead if self.hold_until else 0.0,
            deferred_at=min(self.deferred_at, now),
        )

    def _with_end(self, exchange: Exchange, max_delay: float, now: float) -> HostTimes:
        """Return the times with the end of an exchange, and the delay from then on."""
        errors = self.server_errors
        if exchange.status in SERVER_ERRORS:
            errors += 1
        elif is_good(exchange.status):
            errors = 0
        delay = slowed(exchange.delay, errors, max_delay)
        return replace(
            self, in_flight_until=0.0, request_ended_at=now, delay=delay, server_errors=errors
        )

    def _refusals_after(self, requested_at: float, now: float) -> int:
        """Return the number of refusals after that of a request sent at ``requested_at`` (R5).

        A request that was sent before the last hold began belongs to the burst that caused the
        hold, and a burst counts once.
        """
        if self.refusals and requested_at < self.hold_since <= now:
            return self.refusals
        is_quiet = now - max(self.hold_since, self.hold_until) > QUIET_SECONDS
        return 1 if is_quiet else self.refusals + 1


@dataclass(slots=True)
class _Streak:
    """The failures of one host in a row."""

    refusals: Counter[Rank] = field(default_factory=Counter)  #: by the rank of the request
    timeouts: int = 0
    is_slow: bool = False  #: the last body came too slowly
    forbidden: set[str] = field(default_factory=set)  #: the URLs that were answered 403


class Streaks:
    """Counts the failures of each host of a run in a row, by host name.

    The remaining requests of a host are deferred

    - when a request is refused for the last time, whatever the URLs of the refusals;
    - after `MAX_TIMEOUTS` timeouts, the last one of a target;
    - after 403 for `MAX_FORBIDDEN_URLS` different URLs;
    - after one target that was sent too slowly.

    With ``only_refusals``, in a project's own crawl, the other three defer nothing: they are the
    project's. A good response ends the row. A redirect does not, because its target has not
    answered yet.
    """

    def __init__(self, *, only_refusals: bool = False) -> None:
        self._only_refusals = only_refusals
        self._hosts: defaultdict[str, _Streak] = defaultdict(_Streak)

    def record_answer(self, host: str, url: str, status: int, rank: Rank) -> None:
        """Record the response to a request of ``rank``."""
        if is_good(status) and status != 403:
            self._hosts.pop(host, None)
            return
        streak = self._hosts[host]
        streak.timeouts = 0
        streak.is_slow = False
        if is_refusal(status, for_robots=rank is Rank.ROBOTS):
            streak.refusals[rank] += 1
        elif not is_redirect(status):
            streak.refusals.clear()
        if status == 403:
            streak.forbidden.add(url)

    def record_no_response(
        self, host: str, rank: Rank, *, timed_out: bool, is_slow: bool = False
    ) -> None:
        """Record a request without a response. For robots.txt this is a refusal."""
        streak = self._hosts[host]
        streak.is_slow = is_slow
        if timed_out:
            streak.timeouts += 1
        if is_refusal(0, for_robots=rank is Rank.ROBOTS):
            streak.refusals[rank] += 1

    def refusals(self, host: str, rank: Rank | None = None) -> int:
        """Return how many requests a host refused in a row; ``rank`` counts only these requests."""
        counts = self._hosts[host].refusals if host in self._hosts else Counter[Rank]()
        return counts.total() if rank is None else counts[rank]

    def reason(self, host: str, rank: Rank, *, gave_up: bool = False) -> str | None:
        """Return why the other requests of a host are deferred now, or None if they are not.

        ``rank`` is that of the last request. ``gave_up`` means that it was refused, and has no
        retries left. A refused robots.txt defers nothing here: the file is unreachable.
        """
        if host not in self._hosts:
            return None
        streak = self._hosts[host]
        if gave_up and rank is not Rank.ROBOTS:
            return f"it refused {count_of(streak.refusals.total(), 'request')} in a row"
        if self._only_refusals:
            return None
        if streak.is_slow and rank is Rank.TARGET:
            return "it sends too slowly"
        if streak.timeouts >= MAX_TIMEOUTS and rank is Rank.TARGET:
            return f"it timed out {count_of(streak.timeouts, 'time')} in a row"
        if len(streak.forbidden) >= MAX_FORBIDDEN_URLS:
            return f"it answered 403 to {count_of(len(streak.forbidden), 'URL')} in a row"
        return None


@dataclass(eq=False, slots=True)
class VisitTime:
    """The time on the wire that a visit has taken (decision 46).

    That is the time from the beginning of a connection to the end of its exchange, without the time
    in which this process stood still. All requests of the visit share it, robots.txt included.
    """

    seconds: float = 0.0

    @property
    def remaining(self) -> float:
        """The seconds that remain for the next request; 0 if too few remain to send it."""
        remaining = MAX_VISIT_SECONDS - self.seconds
        return remaining if remaining >= MIN_TRY_SECONDS else 0.0

    def limits(self, timeout: float | None) -> bool:
        """Return True if the timeout of a request is the rest of the visit, not all of it."""
        return self.seconds > 0.0 and timeout == self.remaining


@dataclass(eq=False, slots=True)
class _Load:
    seconds: float = 0.0
    exchanges: int = 0


class HostLoads:
    """The time on the wire that the exchanges with each host have taken in a run."""

    def __init__(self) -> None:
        self._loads: defaultdict[str, _Load] = defaultdict(_Load)

    def add(self, host: str, seconds: float) -> str | None:
        """Add an exchange; return why the host is deferred for this run, or None if it is not."""
        load = self._loads[host]
        load.seconds += seconds
        load.exchanges += 1
        if load.seconds <= max(MAX_HOST_SECONDS, MAX_MEAN_SECONDS * load.exchanges):
            return None
        return f"it took {format_seconds(load.seconds)} for {count_of(load.exchanges, 'request')}"


class TakeoverGuard:
    """Decides whether this process may take over hosts from workers that no longer beat.

    It may once it has seen the database's clock for `WORKER_SECONDS` without a gap. A start, an
    outage, a suspended machine and a clock that was set are gaps: directly after a gap every other
    worker seems to be dead, only because this process has not looked.
    """

    _MAX_GAP_SECONDS: Final = 2 * BEAT_SECONDS

    def __init__(self) -> None:
        self._since = self._seen_at = self._now = -math.inf

    def see(self, now: float, moment: float) -> None:
        """Record that the database's clock was ``now`` at ``moment``.

        ``moment`` is in seconds of a local clock that goes on while the machine is suspended.
        """
        passed = moment - self._seen_at
        is_gap = (
            passed > self._MAX_GAP_SECONDS or abs(now - self._now - passed) > self._MAX_GAP_SECONDS
        )
        if is_gap:
            self._since = moment
        self._seen_at = moment
        self._now = now

    @property
    def may_take_over_until(self) -> float:
        """Until when this process may take over hosts, by the database's clock; 0 if it may not.

        It ends before the next gap could begin to matter, because a gap is noticed only afterwards.
        """
        is_long = self._seen_at - self._since >= WORKER_SECONDS
        return self._now + self._MAX_GAP_SECONDS if is_long else 0.0
