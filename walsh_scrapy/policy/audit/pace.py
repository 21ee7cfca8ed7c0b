"""Rows 4, 5 and 8: delays, holds, one at a time, and revisits (R4, R5, R8; decisions 2, 3, 5, 31).

`walsh_scrapy.checks` decides which gaps are too short, as for the log of a server. Here it gets the
rows of the request log: the delay and the hold that counted for each, and why they are not known.
`GapCheck` answers for every command; `walsh attest` counts, `walsh report` and `walsh why` show
it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.checks import RECORD, AtOnce, Delay, Exchange, Hold
from walsh_scrapy.policy.audit.clocks import CLOCK_SET, TOLERANCE
from walsh_scrapy.policy.audit.record import (
    AFTER_UNKNOWN,
    LoggedRequest,
)
from walsh_scrapy.policy.pacing import LONGEST_FOR_BLOCKLIST

if TYPE_CHECKING:
    from walsh_scrapy.checks import Gap
    from walsh_scrapy.policy.audit.record import Basis

#: R4: one request per second.
_LEAST: Final = 1.0
#: The doubt about a refusal whose answer did not come as a whole.
_UNFINISHED: Final = "was refused by an answer that did not end"


class RequestGap(NamedTuple):
    """The time between the end of an exchange with a host and the next request to it.

    All are seconds from that end. ``kept`` is None if ``doubt`` has the reason, and for the first
    request that is known.
    """

    kept: float | None  #: negative if the exchange was not over
    delay: float  #: the one in force; at least one second
    hold: float = -math.inf  #: the rest of the host's hold, if it had one
    is_overlap: bool = False  #: whether the exchange before was not over
    is_short: bool = False  #: whether it was over, and the gap was shorter than the delay
    in_hold: Gap | None = None  #: the gap since the hold began, if the request came during it
    #: When the operator ended the hold that went on, in epoch seconds: it counts no more.
    released_at: float | None = None
    doubt: str = ""

    @property
    def least(self) -> float:
        """The least gap: the delay, or the hold if that is longer."""
        return max(self.delay, self.hold)

    @property
    def is_broken(self) -> bool:
        """Whether the request came too soon, for any of these reasons."""
        return self.is_overlap or self.is_short or self.in_hold is not None


class CheckedRequest(NamedTuple):
    """One request, and the gap before it."""

    record: LoggedRequest
    gap: RequestGap


def exchange_of(sent: LoggedRequest) -> Exchange:
    """Return a row as an exchange; one whose end is not known ends when it begins."""
    return Exchange(sent.requested_at, sent.ended, sent.host, sent.url, sent.status or 0)


class _Host:
    """One host, as far as its requests were seen."""

    def __init__(self) -> None:
        self.at_once = AtOnce(RECORD)
        self.delay = Delay(RECORD)
        self.hold = Hold(RECORD)
        self.last: LoggedRequest | None = None  #: the request that ended last


class GapCheck:
    """Finds the gap before each request.

    Requests come host by host, of all runs, and for each host in the order of their times.
    """

    def __init__(self, basis: Basis) -> None:
        self._basis = basis
        self._overrides: dict[tuple[str, str], list[float]] = {}
        for each in basis.overrides:
            self._overrides.setdefault((each.override, each.host), []).append(each.made_at)
        self._name: str | None = None
        self._host = _Host()

    def check(self, sent: LoggedRequest) -> RequestGap:
        """Return the gap before a request."""
        if sent.host != self._name:
            self._name, self._host = sent.host, _Host()
        host, exchange = self._host, exchange_of(sent)
        last, delay = host.last, self._delay(sent, host.last)
        before, spaced = host.at_once.see(exchange), host.delay.see(exchange, delay)
        released_at = self._release(sent, host.hold)
        is_for_list = self._basis.is_for_list(sent)
        held = host.hold.see(exchange, LONGEST_FOR_BLOCKLIST if is_for_list else math.inf)
        gap = RequestGap(None, delay)
        if last is not None and before is not None and spaced is not None:
            left = -math.inf
            if released_at is not None and released_at < last.ended:
                released_at = None  # before the exchange before
            elif held and released_at is None:
                left = held.before.end + held.least - last.ended
            gap = RequestGap(
                before.seconds,
                delay,
                left,
                is_overlap=before.is_early,
                is_short=spaced.is_early and not before.is_early,
                in_hold=held if held and held.is_early else None,
                released_at=released_at,
            )
            gap = self._certain(gap, sent, last)
        if last is None or sent.ended >= last.ended:
            host.last = sent
        if sent.hold and sent.ended + sent.hold > host.hold.until + TOLERANCE:
            host.hold.begin(exchange, sent.ended + sent.hold)
        return gap

    def _certain(self, gap: RequestGap, sent: LoggedRequest, last: LoggedRequest) -> RequestGap:
        """Return a gap without its uncertain parts: a clock was set, or an end is not known."""
        since = gap.in_hold.before.end if gap.in_hold else last.ended
        if gap.is_broken and not self._basis.clocks.are_certain(since, sent.requested_at):
            return RequestGap(None, gap.delay, gap.hold, doubt=CLOCK_SET)
        if last.is_open:
            return gap._replace(kept=None, is_overlap=False, is_short=False, doubt=AFTER_UNKNOWN)
        return gap

    def _delay(self, sent: LoggedRequest, last: LoggedRequest | None) -> float:
        recorded = sent.delay
        # One that the operator set during the exchange did not count yet.
        if self._overrides_between("delay", sent.host, sent.requested_at, sent.ended):
            recorded = 0.0
        by_robots = 0.0 if sent.purpose == "robots" else self._basis.robots_delay(sent)
        slow = 0.0 if last is None else last.duration or 0.0
        delay = max(_LEAST, recorded, by_robots, slow)
        return min(delay, LONGEST_FOR_BLOCKLIST) if self._basis.is_for_list(sent) else delay

    def _release(self, sent: LoggedRequest, hold: Hold) -> float | None:
        """End the hold at which a request was sent, if the operator did; return when."""
        if hold.cause is None:
            return None
        since = hold.cause.end
        released_at = min(
            self._overrides_between("release", sent.host, since, sent.requested_at), default=None
        )
        if released_at is not None:
            hold.release(released_at)
        return released_at

    def _overrides_between(
        self, override: str, host: str, since: float, until: float
    ) -> list[float]:
        times = self._overrides.get((override, host), ())
        return [at for at in times if since - TOLERANCE <= at <= until + TOLERANCE]
