"""What one User-Agent did in a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from walsh_scrapy.tools.judgelog.terms import Terms

_ROBOTS: Final = b"/robots.txt"
_REFUSED: Final = (b"429", b"503")
#: A log has whole seconds: two requests in neighbouring ones may be nearly two seconds apart.
_BLUR: Final = 1
#: Seconds. Lines are written at the end of a request, so a few may be out of order. A line that is
#: earlier than that begins an older log.
_OUT_OF_ORDER: Final = 60
#: A copy of robots.txt counts for a day (RFC 9309 2.4).
_ROBOTS_SECONDS: Final = 86_400


class Place(NamedTuple):
    """A line of a log."""

    file: str
    line: int  #: from 1
    target: bytes


class Agent:
    """The counts of one User-Agent, over all its addresses.

    A pause counts as too short only if it certainly was, whatever the fractions of seconds are that
    the log does not have. Pauses before and after a request for robots.txt do not count.
    """

    __slots__ = (
        "after_refusal", "closed", "closed_at", "denied", "denied_at", "fresh", "hasty", "hasty_at",
        "last", "pause", "refused", "requests", "robots", "robots_read", "short", "short_at",
        "stale", "terms", "unchanged", "was_refused", "was_robots",
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.requests = self.robots = self.unchanged = self.fresh = 0
        self.denied = self.short = self.refused = self.hasty = self.closed = self.stale = 0
        #: Seconds: the shortest pause, and the shortest one after a refusal; None for none.
        self.pause: int | None = None
        self.after_refusal: int | None = None
        self.denied_at: Place | None = None
        self.short_at: Place | None = None
        self.hasty_at: Place | None = None
        self.closed_at: Place | None = None
        self.last: int | None = None
        self.robots_read: int | None = None
        self.was_refused = self.was_robots = False

    def add(self, second: int, target: bytes, status: bytes, file: str, line: int) -> None:
        """Count one request; ``second`` is in epoch seconds."""
        self.requests += 1
        is_robots = target == _ROBOTS
        asked, closed = self.terms.at(second)
        last = self.last
        if last is not None and second >= last:
            pause = second - last
            if not is_robots and not self.was_robots:
                self._add_pause(pause, asked, file, line, target)
            if self.was_refused:
                self._add_retry(pause, file, line, target)
        is_jump = last is not None and last - second > _OUT_OF_ORDER
        if is_jump:
            self.robots_read = None
        if last is None or second >= last or is_jump:
            self.last = second
            self.was_robots, self.was_refused = is_robots, status in _REFUSED
        if status == b"200":
            self.fresh += 1
        elif status == b"304":
            self.unchanged += 1
        elif status in _REFUSED:
            self.refused += 1
        if is_robots:
            self.robots += 1
            self.robots_read = second
        else:
            self._add_target(second, closed, file, line, target)

    def _add_pause(self, pause: int, asked: float, file: str, line: int, target: bytes) -> None:
        if self.pause is None or pause < self.pause:
            self.pause = pause
        if pause + _BLUR <= asked:
            self.short += 1
            self.short_at = self.short_at or Place(file, line, target)

    def _add_retry(self, pause: int, file: str, line: int, target: bytes) -> None:
        if self.after_refusal is None or pause < self.after_refusal:
            self.after_refusal = pause
        if pause <= _BLUR:
            self.hasty += 1
            self.hasty_at = self.hasty_at or Place(file, line, target)

    def _add_target(self, second: int, closed: bool, file: str, line: int, target: bytes) -> None:
        if self.robots_read is None or second - self.robots_read > _ROBOTS_SECONDS:
            self.stale += 1
        if self.terms.denies(target):
            self.denied += 1
            self.denied_at = self.denied_at or Place(file, line, target)
        if closed:
            self.closed += 1
            self.closed_at = self.closed_at or Place(file, line, target)

    @property
    def conditional(self) -> float | None:
        """The share of 304 among 200 and 304; None without either."""
        answers = self.fresh + self.unchanged
        return self.unchanged / answers if answers else None

    @property
    def is_polite(self) -> bool:
        """Whether nothing was found that the robots.txt or a refusal forbids."""
        return not (self.denied or self.short or self.hasty or self.closed)
