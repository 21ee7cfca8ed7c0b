"""R4 and R5 over requests as they come: each rule keeps a few numbers of one host or URL.

`timing` gives them the hits of a crawl. A hit may leave open when its request began: less than
`resolution` seconds later than it says. Times and durations are seconds of one clock. In doubt the
crawler is right.
"""

import math
from typing import Final

#: Seconds by which a pause may look shorter than it was: networks and timers are not exact.
TOLERANCE: Final = 0.1


def certainly_before(started: float, moment: float, resolution: float) -> bool:
    """Return True if a request began before a moment, whatever its hit leaves open.

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
        self._since = max(started if ended is None else ended, kept)
        return is_short


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

    def is_broken(self, started: float, resolution: float = 0.0) -> bool:
        """Return True if a request certainly began after the refusal, and within the hold."""
        is_after = self._ended <= started
        return is_after and certainly_before(started, self.until, resolution)


class Retries:
    """R5: refusals in a row, and the requests after them."""

    __slots__ = ("_count", "_first")

    def __init__(self) -> None:
        self._count, self._first = 0, math.inf  # the end of the first refusal

    def add(self, started: float) -> int:
        """Return the number in a row of this request, 0 if it began before the first refusal."""
        if started < self._first:
            return 0
        self._count += 1
        return self._count

    def answered(self, ended: float, *, is_refusal: bool) -> None:
        """Note the answer to the last request. One that is no refusal ends the row."""
        if is_refusal:
            self._first = min(self._first, ended)
        else:
            self._count, self._first = 0, math.inf
