"""The rules of a bot towards a host, checked over exchanges alone (R4, R5, R8; decision 35).

`assert_polite` and the conformance test bring their rows to the same checks, with the precision of
their times. Nothing here imports another part of the package, so a fault of the crawler cannot hide
in its check.

R4 has delays and one request at a time, R5 holds and retries, R8 revisits. Each check is for one
host, one bot or one URL, as its caller groups exchanges, and keeps a few numbers. Exchanges come in
the order of their starts. Times and durations are seconds.
"""

from __future__ import annotations

import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

#: Statuses that tell a bot to come back later (R5).
BUSY: Final = frozenset({429, 503})
_SECONDS: Final = re.compile("[0-9]+")
#: Numbers of so many digits may be moments: the digits of now in units since 1970, and the units of
#: a second. A moment is within 366 days of now.
_MOMENTS: Final = {10: 1, 13: 1000}
_MOMENT_SECONDS: Final = 366 * 86_400.0
#: The three forms of RFC 9110 5.6.7.
_DATE: Final = re.compile(
    "[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT"
    "|[A-Z][a-z]{5,8}, [0-9]{2}-[A-Z][a-z]{2}-[0-9]{2} [0-9:]{8} GMT"
    "|[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4}"
)


class Precision(NamedTuple):
    """The precision of times; all are seconds. In doubt the bot is right."""

    evidence: str  #: where the times come from
    tolerance: float  #: that a request may seem too early and was in time
    #: The part of the tolerance that counts anew for each delay. The missing time beyond it adds
    #: up, so a bot that is a little early each time is found.
    slack: float

    def is_before(self, start: float, moment: float) -> bool:
        """Return True if a request certainly began before a moment."""
        return start < moment - self.tolerance


#: A server reads a request after it was sent, and begins its last write before its end was read.
SERVER: Final = Precision("the log of a server: `assert_polite`, `violations`", 0.0, 0.0)
#: Delays count from start to start here: one request that is read late makes the next one early.
TRIAL: Final = Precision("a trial: `conformance`", 0.1, 0.02)
PRECISIONS: Final = (SERVER, TRIAL)


class Exchange(NamedTuple):
    """One request with its answer. Times are seconds of one clock."""

    start: float
    end: float  #: infinite while the answer is not complete
    host: str  #: the name, or the registrable domain, that delays are counted by
    url: str
    status: int = 0  #: 0 without an answer
    headers: tuple[tuple[str, str], ...] = ()  #: of the answer
    row: int = 0  #: its number in the caller's log

    @property
    def is_busy(self) -> bool:
        """Whether the host is busy, and wants no requests for a while."""
        return self.status in BUSY

    def held_until(self, offset: float = 0.0) -> float | None:
        """Return the end of the Retry-After of a 429 or 503; None without a valid one.

        `offset` must be added to the times of this exchange to get epoch seconds. The longest of
        several headers counts. The crawler reads this header with other code.
        """
        if not self.is_busy:
            return None
        values = [value for name, value in self.headers if name.lower() == "retry-after"]
        ends = (self._end_of(value.strip(" \t"), offset) for value in values)
        return max((end for end in ends if end is not None), default=None)

    def _end_of(self, value: str, offset: float) -> float | None:
        if _SECONDS.fullmatch(value):
            units = _MOMENTS.get(len(value))
            ahead = math.inf if units is None else float(value) / units - offset - self.end
            return self.end + (ahead if abs(ahead) <= _MOMENT_SECONDS else float(value))
        if not _DATE.fullmatch(value):
            return None
        try:
            moment = parsedate_to_datetime(value)
        except ValueError:  # such as 31 February
            return None
        return moment.replace(tzinfo=UTC).timestamp() - offset


#: Seconds without a request after which a first request was held back, and after which others were
#: let go at once.
HELD_BACK: Final = 1.0
LET_GO: Final = 0.5


class Gap(NamedTuple):
    """The time between an exchange and a request that must wait for it."""

    before: Exchange
    seconds: float  #: from the end of `before` (or its start); negative if that was not over
    least: float  #: the least ones
    is_early: bool  #: whether the request certainly came too early

    @property
    def missing(self) -> float:
        """The missing seconds."""
        return self.least - self.seconds


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


class Delay:
    """R4: a delay passes before each request, from the end or from the start of the one before."""

    def __init__(self, precision: Precision, *, from_start: bool = False) -> None:
        self._precision = precision
        self._from_start = from_start
        self._last: Exchange | None = None
        self._counts_from = -math.inf

    def see(self, exchange: Exchange, delay: float) -> Gap | None:
        """Return the gap before a request, with `delay` in force; None before the first."""
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

    A bot may be slow by itself. So it breaks the rule only if it waited before each of `enough`
    first requests, and let one of the others go at once. It sees the requests of one run.
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._last: Exchange | None = None
        self._number = 0
        self._least = math.inf
        self._others = math.inf

    def see(self, exchange: Exchange, *, is_first: bool, counts: bool = True) -> None:
        """Note a request; `counts` is False if another reason may explain its gap."""
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
        """The shortest wait before a first request; None if there are too few to know."""
        is_told = self._number >= self._enough and self._others < LET_GO
        return self._least if is_told else None

    @property
    def are_held_back(self) -> bool:
        """Whether all were held back, and others not."""
        return self.least is not None and self.least >= HELD_BACK


class Hold:
    """R5: after a refusal no request comes until the end of its Retry-After."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self._cause: Exchange | None = None  # the refusal that began it
        self._until = -math.inf

    def begin(self, refusal: Exchange, until: float) -> None:
        """Begin at the end of a refusal, unless a longer hold goes on."""
        if until > self._until:
            self._cause = refusal
            self._until = until

    def see(self, exchange: Exchange) -> Gap | None:
        """Return the gap between the refusal and a request after it; None if there is none."""
        cause = self._cause
        if cause is None or exchange.start < cause.end:
            return None
        is_early = self._precision.is_before(exchange.start, self._until)
        return Gap(cause, exchange.start - cause.end, self._until - cause.end, is_early)


class Retries:
    """R5: refusals in a row. Those of requests that were under way at once count as one."""

    def __init__(self) -> None:
        self._number = 0
        self._last: Exchange | None = None

    def before(self, exchange: Exchange) -> int:
        """Return the number of refusals in a row before a request; 0 if it was in flight then."""
        last = self._last
        return self._number if last is not None and exchange.start >= last.end else 0

    def see(self, exchange: Exchange, *, is_refused: bool) -> int:
        """Note the answer, and return the number in a row of its refusal; 0 if it has none.

        Another answer ends the row.
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
    """R2, R3, R8: an answered URL is not requested again too soon; one check per URL."""

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
