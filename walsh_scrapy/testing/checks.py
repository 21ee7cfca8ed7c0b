"""Checks of delays, holds, retries and revisits, over the requests that a server logged.

`assert_polite` and the conformance test use the same checks, each with the precision of its clock.
Nothing here imports another part of the package: if a check shared code with the crawler, a bug in
that code would hide itself (decision 35).

Each object checks one host, one crawler or one URL: the caller decides how to group the exchanges.
Pass it the exchanges in the order of their starts. All times and durations are in seconds. R4 is
about delays and one request at a time, R5 about holds and retries, R8 about revisits.
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
#: Some servers send a Unix timestamp as Retry-After, in seconds or in milliseconds. The keys are
#: the numbers of digits that a timestamp of today has, the values its units per second. A number is
#: treated as a timestamp only if it is within 366 days of the response.
_MOMENTS: Final = {10: 1, 13: 1000}
_MOMENT_SECONDS: Final = 366 * 86_400.0
#: The three forms of RFC 9110 5.6.7.
_DATE: Final = re.compile(
    "[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT"
    "|[A-Z][a-z]{5,8}, [0-9]{2}-[A-Z][a-z]{2}-[0-9]{2} [0-9:]{8} GMT"
    "|[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} [0-9]{4}"
)


class Precision(NamedTuple):
    """How precisely times are known, in seconds. In doubt a request was in time."""

    evidence: str  #: which log the times come from, in words
    tolerance: float  #: a request that seems early by less than this may have been in time
    #: The part of the tolerance that applies to every delay. Whatever is missing beyond it adds up,
    #: so a crawler that is a little early each time is found.
    slack: float

    def is_before(self, start: float, moment: float) -> bool:
        """Return True if a request certainly began before a moment."""
        return start < moment - self.tolerance


#: No tolerance is needed here: a server logs a request after it was sent, and logs the end of a
#: response before the crawler can have read it. So a gap never looks shorter than it was.
SERVER: Final = Precision("the log of a server: `assert_polite`, `violations`", 0.0, 0.0)
#: Needed here because delays are measured from start to start: if the server is late to read one
#: request, the next one looks early.
TRIAL: Final = Precision("a trial: `conformance`", 0.1, 0.02)
PRECISIONS: Final = (SERVER, TRIAL)


class Exchange(NamedTuple):
    """One request and its response. Times are seconds on one clock."""

    start: float
    end: float  #: infinite while the response is not complete
    host: str  #: the host name or registrable domain that delays apply to
    url: str
    status: int = 0  #: 0 without a response
    headers: tuple[tuple[str, str], ...] = ()  #: the headers of the response
    row: int = 0  #: the place of the request in the caller's log

    @property
    def is_busy(self) -> bool:
        """Whether the host asked the crawler to come back later (429 or 503)."""
        return self.status in BUSY

    def held_until(self, offset: float = 0.0) -> float | None:
        """Return when the Retry-After of a 429 or 503 ends; None if there is no valid one.

        Add `offset` to a time of this exchange to get seconds since the epoch. Of several headers
        the longest wait is used. The crawler parses the header with other code, on purpose.
        """
        if not self.is_busy:
            return None
        values = [value for name, value in self.headers if name.lower() == "retry-after"]
        ends = (self._end_of(value.strip(" \t"), offset) for value in values)
        return max((moment for moment in ends if moment is not None), default=None)

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


#: A first request to a host was held back if it came so many seconds or more after the request
#: before it. Any other request was sent at once if it came less than `LET_GO` seconds after that.
HELD_BACK: Final = 1.0
LET_GO: Final = 0.5


class Gap(NamedTuple):
    """The time between an exchange and a later request that had to wait for it."""

    before: Exchange
    seconds: float  #: from the end (or the start) of `before`; negative if it had not ended
    required: float  #: the seconds that had to pass
    is_early: bool  #: True if the request certainly came too early

    @property
    def missing(self) -> float:
        """How many seconds too early the request came."""
        return self.required - self.seconds


class AtOnce:
    """R4: no request begins before the previous one has ended."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self._last: Exchange | None = None  # the exchange so far that ends last

    def see(self, exchange: Exchange) -> Gap | None:
        """Add a request, and return the gap before it; None for the first one."""
        last = self._last
        if last is None or exchange.end >= last.end:
            self._last = exchange
        if last is None:
            return None
        is_early = self._precision.is_before(exchange.start, last.end)
        return Gap(last, exchange.start - last.end, 0.0, is_early)


class Delay:
    """R4: a delay passes between two requests, from the end or the start of the earlier one."""

    def __init__(self, precision: Precision, *, from_start: bool = False) -> None:
        self._precision = precision
        self._from_start = from_start
        self._last: Exchange | None = None
        self._counts_from = -math.inf

    def see(self, exchange: Exchange, delay: float) -> Gap | None:
        """Add a request that had to wait for `delay`, and return the gap before it.

        The first request has no gap: None.
        """
        last = self._last
        soonest = self._counts_from + delay
        is_early = self._precision.is_before(exchange.start, soonest)
        # A request within the tolerance counts as in time. Only the slack is forgiven: the rest of
        # the missing time is carried over to the next delay.
        earliest = self._counts_from if is_early else soonest - self._precision.slack
        edge = self._edge(exchange)
        self._counts_from = max(edge, earliest)
        if last is None or edge >= self._edge(last):
            self._last = exchange
        if last is None:
            return None
        return Gap(last, exchange.start - self._edge(last), delay, is_early)

    def _edge(self, exchange: Exchange) -> float:
        return exchange.start if self._from_start else exchange.end


class FirstRequests:
    """R4: the first request to a host is not held back.

    Add the requests of one run. A crawler may be slow in general, so it breaks the rule only if it
    waited before each of at least `min_number` first requests, and sent another request at once.
    """

    def __init__(self, min_number: int) -> None:
        self._min_number = min_number
        self._last: Exchange | None = None
        self._number = 0
        self._shortest = math.inf
        self._shortest_of_others = math.inf

    def see(self, exchange: Exchange, *, is_first: bool, counts: bool = True) -> None:
        """Add a request; `counts` is False if its gap may have another reason."""
        last = self._last
        if last is None or exchange.end >= last.end:
            self._last = exchange
        if last is None or not counts:
            return
        silent = exchange.start - last.end
        if is_first:
            self._number += 1
            self._shortest = min(self._shortest, silent)
        else:
            self._shortest_of_others = min(self._shortest_of_others, silent)

    @property
    def shortest_wait(self) -> float | None:
        """The shortest wait before a first request; None if there are too few to judge."""
        is_certain = self._number >= self._min_number and self._shortest_of_others < LET_GO
        return self._shortest if is_certain else None

    @property
    def are_held_back(self) -> bool:
        """Whether every first request was held back, although other requests were not."""
        return self.shortest_wait is not None and self.shortest_wait >= HELD_BACK


class Hold:
    """R5: after a refusal no request is sent until its Retry-After ends."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self._cause: Exchange | None = None  # the refusal that began the hold
        self._until = -math.inf

    def begin(self, refusal: Exchange, until: float) -> None:
        """Begin a hold at the end of a refusal, unless a longer hold is active."""
        if until > self._until:
            self._cause = refusal
            self._until = until

    def see(self, exchange: Exchange) -> Gap | None:
        """Return the gap between the refusal and a later request; None without a refusal."""
        cause = self._cause
        if cause is None or exchange.start < cause.end:
            return None
        is_early = self._precision.is_before(exchange.start, self._until)
        return Gap(cause, exchange.start - cause.end, self._until - cause.end, is_early)


class Retries:
    """R5: counts refusals in a row. Refusals of simultaneous requests count as one."""

    def __init__(self) -> None:
        self._number = 0
        self._last: Exchange | None = None

    def before(self, exchange: Exchange) -> int:
        """Return the number of refusals in a row before a request.

        It is 0 if the request was already in flight when the last refusal came.
        """
        last = self._last
        return self._number if last is not None and exchange.start >= last.end else 0

    def see(self, exchange: Exchange, *, is_refused: bool) -> int:
        """Add a response, and return how many refusals in a row there are with it.

        It is 0 for a response that is no refusal, which also ends the row, and for a refusal that
        belongs to the same moment as the last one.
        """
        if not is_refused:
            self._number = 0
            self._last = None
            return 0
        if self._last is not None and exchange.start < self._last.end:
            return 0
        self._number += 1
        self._last = exchange
        return self._number

    @staticmethod
    def min_wait(number: int, base: float, max_wait: float) -> float:
        """Return the minimum wait after so many refusals in a row: doubled up to `max_wait`."""
        return min(base * 2.0 ** max(0, min(number, 60) - 1), max_wait)


class Revisit:
    """R2, R3, R8: a URL that was answered is not requested again too soon. One object per URL."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self._answered: Exchange | None = None

    def see(self, exchange: Exchange, ttl: float, *, is_answered: bool) -> Gap | None:
        """Add a request, and return the gap since the response that was good for `ttl` seconds.

        None if there was no such response. `is_answered` tells whether this response is good.
        """
        answered = self._answered
        self._answered = exchange if is_answered else None
        if answered is None:
            return None
        is_early = self._precision.is_before(exchange.start, answered.end + ttl)
        return Gap(answered, exchange.start - answered.end, ttl, is_early)
