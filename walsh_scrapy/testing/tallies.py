"""R4 and R5 over requests as they come: each rule keeps a few numbers of one host, URL or bot.

`timing` gives them the hits of a crawl, `judgelog` the lines of a log. What was read may leave open
when a request began: less than `resolution` seconds later than it says, or up to `slack` seconds
earlier. Times and durations are seconds of one clock. In doubt the crawler is right.
"""

import math
from typing import Final

#: Seconds by which a pause may look shorter than it was: networks and timers are not exact.
TOLERANCE: Final = 0.1
#: Requests a second, for `PERIOD` seconds on end: who asks more often is too fast for any host.
MOST_A_SECOND: Final = 10
PERIOD: Final = 10
#: Where Retry-After is not known, which asks for a second at least: seconds after a refusal in
#: which the same URL again is hasty.
HASTY: Final = 1
#: Where it is not known: retries in a row, each within `SOON` seconds of the last refusal.
MOST_RETRIES: Final = 10
SOON: Final = 5


def certainly_before(started: float, moment: float, resolution: float = 0.0) -> bool:
    """Return True if a request began before a moment, whatever its log leaves open.

    It began at `started` or less than `resolution` seconds later.
    """
    return started + resolution <= moment if resolution else started < moment


class Spacing:
    """R4: a pause before each request, from the end or from the start of the one before."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = -math.inf  # from when the next pause counts, at the earliest

    def add(
        self,
        started: float,
        pause: float,
        resolution: float = 0.0,
        slack: float = 0.0,
        ended: float | None = None,
    ) -> bool:
        """Return True if a request certainly began too early.

        The next pause counts from its end, or without one from its start. A pause that may have
        been kept was, but for `TOLERANCE`: the next one counts from there. So many in a row are
        found that are each too short by less than the resolution.
        """
        soonest = self._since + pause
        is_short = certainly_before(started, soonest, resolution)
        kept = self._since if is_short else soonest - min(TOLERANCE, resolution)
        self._since = max((started if ended is None else ended) - slack, kept)
        return is_short


class Rate:
    """R4 where no pause is asked for: at most `MOST_A_SECOND` requests a second."""

    __slots__ = ("_count", "_period")

    def __init__(self) -> None:
        self._period = self._count = 0

    def add(self, started: float, resolution: float = 0.0, slack: float = 0.0) -> bool:
        """Return True if a request is one too many for its period of `PERIOD` seconds.

        What the log leaves open makes a period longer. A request of an earlier period that comes
        late is not counted.
        """
        length = PERIOD + slack
        period = int(started // length)
        if period != self._period:
            if period < self._period:
                return False
            self._period, self._count = period, 0
        self._count += 1
        return self._count > MOST_A_SECOND * (length + slack + resolution)


class Hold:
    """R5: after a refusal no request comes until the time that it asked for is over."""

    __slots__ = ("_ended", "until")

    def __init__(self) -> None:
        self._ended = self.until = -math.inf

    def begin(self, ended: float, until: float) -> bool:
        """Begin at the end of a refusal; return False if a longer hold goes on."""
        if until <= self.until:
            return False
        self._ended, self.until = ended, until
        return True

    def is_broken(self, started: float, resolution: float = 0.0, slack: float = 0.0) -> bool:
        """Return True if a request certainly began after the refusal, and within the hold."""
        is_after = self._ended <= started - slack
        return is_after and certainly_before(started, self.until, resolution)


class Retries:
    """R5: refusals in a row, and the requests after them."""

    __slots__ = ("_count", "_first", "_last")

    def __init__(self) -> None:
        self._count = 0
        self._first, self._last = math.inf, -math.inf  # the ends of the first and last refusal

    def add(
        self,
        started: float,
        resolution: float = 0.0,
        slack: float = 0.0,
        within: float = math.inf,
    ) -> int:
        """Return the number in a row of this request, 0 if it is certain of none.

        It counts if it began after the first refusal. It begins a new row if it may have come
        `within` seconds after the last refusal or later.
        """
        if started + resolution - self._last > within:
            self._end()
        elif started - slack >= self._first:
            self._count += 1
            return self._count
        return 0

    def answered(self, ended: float, *, is_refusal: bool) -> None:
        """Note the answer to the last request. One that is no refusal ends the row."""
        if is_refusal:
            self._first, self._last = min(self._first, ended), max(self._last, ended)
        else:
            self._end()

    def _end(self) -> None:
        self._count, self._first, self._last = 0, math.inf, -math.inf
