"""When a host may be asked: R4 (delays, one at a time), R5 (holds, retries), R8 (revisits).

Each check is for one host, one bot or one URL, as its caller groups exchanges, and keeps a few
numbers. Exchanges come in the order of their starts. Times and durations are seconds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from walsh_scrapy.checks.exchange import Exchange, Precision

#: Seconds without a request after which a first request was held back, and after which others were
#: let go at once.
HELD_BACK: Final = 1.0
LET_GO: Final = 0.5


class Gap(NamedTuple):
    """What lies between an exchange and a request that had to wait for it."""

    before: Exchange
    seconds: float  #: from the end of `before` (or its start); negative if that was not over
    asked: float  #: that had to pass
    is_early: bool  #: whether the request certainly came too early

    @property
    def missing(self) -> float:
        """The seconds that were left."""
        return self.asked - self.seconds


class AtOnce:
    """R4: no request begins before the one before it has ended."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self._last: Exchange | None = None  # of those so far, the one that ends last

    def see(self, exchange: Exchange) -> Gap | None:
        """Return the gap before a request; None before the first one."""
        last = self._last
        if last is None or exchange.end >= last.end:
            self._last = exchange
        if last is None:
            return None
        is_early = self._precision.is_before(exchange.start, last.end)
        return Gap(last, exchange.start - last.end, 0.0, is_early)


class Spacing:
    """R4: a delay passes before each request, from the end or from the start of the one before."""

    def __init__(self, precision: Precision, *, from_start: bool = False) -> None:
        self._precision = precision
        self._from_start = from_start
        self._last: Exchange | None = None
        self._counts_from = -math.inf

    def see(self, exchange: Exchange, delay: float) -> Gap | None:
        """Return the gap before a request, for which `delay` was asked; None before the first."""
        last, soonest = self._last, self._counts_from + delay
        is_early = self._precision.is_before(exchange.start, soonest)
        # A delay that may have been kept was, except for the slack.
        kept = self._counts_from if is_early else soonest - self._precision.slack
        edge = self._edge(exchange)
        self._counts_from = max(edge, kept)
        if last is None or edge >= self._edge(last):
            self._last = exchange
        if last is None:
            return None
        return Gap(last, exchange.start - self._edge(last), delay, is_early)

    def _edge(self, exchange: Exchange) -> float:
        return exchange.start if self._from_start else exchange.end


class FirstRequests:
    """R4: the first request to a host is not held back.

    A bot may be slow by itself. So it is accused only if it was silent before each of `enough`
    first requests, and let one of the others go at once. It sees the requests of one run.
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._last: Exchange | None = None
        self._number = 0
        self._least = math.inf
        self._others = math.inf

    def see(self, exchange: Exchange, *, is_first: bool, counts: bool = True) -> None:
        """Take note of a request; `counts` is False if another reason may explain its gap."""
        last = self._last
        if last is None or exchange.end >= last.end:
            self._last = exchange
        if last is None or not counts:
            return
        silent = exchange.start - last.end
        if is_first:
            self._number += 1
            self._least = min(self._least, silent)
        else:
            self._others = min(self._others, silent)

    @property
    def least(self) -> float | None:
        """The shortest silence before a first request; None if there is too little to tell."""
        is_told = self._number >= self._enough and self._others < LET_GO
        return self._least if is_told else None

    @property
    def are_held_back(self) -> bool:
        """Whether all were held back, and others not."""
        return self.least is not None and self.least >= HELD_BACK


class Hold:
    """R5: after a refusal no request comes until the time that it asked for is over."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self.cause: Exchange | None = None  #: the refusal that began it
        self.until = -math.inf

    def begin(self, refusal: Exchange, until: float) -> None:
        """Begin at the end of a refusal, unless a longer hold goes on."""
        if until > self.until:
            self.cause, self.until = refusal, until

    def release(self, at: float) -> None:
        """End it at a moment, if it goes on for longer."""
        self.until = min(self.until, at)

    def see(self, exchange: Exchange, most: float = math.inf) -> Gap | None:
        """Return the gap between the refusal and a request after it; None if there is none.

        For this request the hold counts for `most` seconds.
        """
        cause = self.cause
        if cause is None or exchange.start < cause.end:
            return None
        until = min(self.until, cause.end + most)
        is_early = self._precision.is_before(exchange.start, until)
        return Gap(cause, exchange.start - cause.end, until - cause.end, is_early)


class Retries:
    """R5: refusals in a row. Those of requests that were under way at once count as one."""

    def __init__(self) -> None:
        self._number = 0
        self._last: Exchange | None = None

    def before(self, exchange: Exchange) -> int:
        """Return how many refusals in a row a request comes after; 0 if it was under way then."""
        last = self._last
        return self._number if last is not None and exchange.start >= last.end else 0

    def see(self, exchange: Exchange, *, is_refused: bool) -> int:
        """Note the answer, and return the number in a row of its refusal; 0 if it has none.

        What is not refused ends the row.
        """
        if not is_refused:
            self._number, self._last = 0, None
            return 0
        if self._last is not None and exchange.start < self._last.end:
            return 0
        self._number, self._last = self._number + 1, exchange
        return self._number

    @staticmethod
    def least_wait(number: int, base: float, longest: float) -> float:
        """Return the least wait after so many refusals in a row: it doubles, and then stays."""
        return min(base * 2.0 ** max(0, min(number, 60) - 1), longest)


class Revisit:
    """R2, R3, R8: what was answered is not requested again too soon; one check for each URL."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self._answered: Exchange | None = None

    def see(self, exchange: Exchange, ttl: float, *, is_answered: bool) -> Gap | None:
        """Return the gap since the answer that is good for `ttl` seconds; None without one."""
        known = self._answered
        self._answered = exchange if is_answered else None
        if known is None:
            return None
        is_early = self._precision.is_before(exchange.start, known.end + ttl)
        return Gap(known, exchange.start - known.end, ttl, is_early)
