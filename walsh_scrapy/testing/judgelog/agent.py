"""What a robots.txt asks of one group of bots, and what one User-Agent did in a log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.testing.manners import BUSY, certainly_before

if TYPE_CHECKING:
    from walsh_scrapy.policy.robots import Rules
    from walsh_scrapy.testing.judgelog.layouts import Line

#: Verdicts that are kept; a log has more paths than that only if somebody makes them up.
_MOST_VERDICTS: Final = 100_000
#: Bytes of a target whose verdict is kept.
_LONGEST_KEPT: Final = 1000


class GroupTerms:
    """The rules of one group, with the verdicts and the pauses that were looked up already."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._denied: dict[bytes, bool] = {}
        self._minutes: dict[int, tuple[float, bool]] = {}

    def denies(self, target: bytes) -> bool:
        """Return True if the group may not ask for a target, as the log has it."""
        known = self._denied.get(target)
        if known is None:
            known = not self._rules.verdict(target.decode("utf-8", "replace")).allowed
            if len(self._denied) >= _MOST_VERDICTS:
                self._denied.clear()
            if len(target) <= _LONGEST_KEPT:
                self._denied[target] = known
        return known

    def why(self, target: bytes) -> str:
        """Return the line that denies a target."""
        verdict = self._rules.verdict(target.decode("utf-8", "replace"))
        return f"line {verdict.line} of robots.txt says {verdict.rule!r}"

    def at(self, second: int) -> tuple[float, bool]:
        """Return the pause asked for at an epoch second, and whether Visit-time is closed then."""
        minute = second // 60 % 1440
        known = self._minutes.get(minute)
        if known is None:
            moment = datetime.fromtimestamp(minute * 60, UTC)
            pause = max(self._rules.crawl_delay or 0.0, self._rules.interval(moment) or 0.0)
            known = self._minutes[minute] = (pause, self._rules.opens(moment) > moment)
        return known

    @property
    def pause(self) -> float:
        """Seconds: the Crawl-delay, or the Request-rate that is in force at midnight."""
        return self.at(0)[0]


_ROBOTS: Final = b"/robots.txt"
_REFUSED: Final = frozenset(str(status).encode() for status in BUSY)
#: Seconds: a retry as early as that after a refusal is hasty.
_HASTY: Final = 1
#: Seconds. Lines are written at the end of a request, so a few may be out of order. A line that is
#: earlier than that begins an older log.
_OUT_OF_ORDER: Final = 60
#: A copy of robots.txt counts for a day (RFC 9309 2.4).
_ROBOTS_SECONDS: Final = 86_400


class LogLine(NamedTuple):
    """A line of a log."""

    file: str
    line: int  #: from 1
    target: bytes


class Agent:
    """The counts of one User-Agent, over all its addresses.

    A pause is the time from the beginning of one request to that of the next. It counts as too
    short only if it certainly was, whatever the log does not have: fractions of seconds, or when a
    request began of which it has the end. Pauses before and after a request for robots.txt do not
    count.
    """

    __slots__ = (
        "after_refusal", "closed", "closed_at", "denied", "denied_at", "earliest", "fresh", "hasty",
        "hasty_at", "last", "pause", "refused", "refused_until", "requests", "robots",
        "robots_read", "short", "short_at", "stale", "terms", "unchanged", "was_robots",
    )  # fmt: skip

    def __init__(self, terms: GroupTerms) -> None:
        self.terms = terms
        self.requests = self.robots = self.unchanged = self.fresh = 0
        self.denied = self.short = self.refused = self.hasty = self.closed = self.stale = 0
        #: Seconds: the shortest pause, and the shortest one after a refusal; None for none.
        self.pause: float | None = None
        self.after_refusal: float | None = None
        self.denied_at: LogLine | None = None
        self.short_at: LogLine | None = None
        self.hasty_at: LogLine | None = None
        self.closed_at: LogLine | None = None
        self.last: float | None = None
        #: When the last request began at the earliest, if all pauses since then were kept.
        self.earliest = 0.0
        self.refused_until: float | None = None  #: the end of a refusal that nothing followed yet
        self.robots_read: float | None = None
        self.was_robots = False

    def add(self, line: Line, file: str, number: int) -> None:
        """Count one request, which is a line of a file."""
        moment, target, status = line.moment, line.target, line.status
        place = (file, number, target)
        self.requests += 1
        is_robots = target == _ROBOTS
        asked, closed = self._terms_at(line)
        last = self.last
        is_jump = last is not None and last - moment > _OUT_OF_ORDER
        if is_jump:
            self.robots_read = self.refused_until = None
        if last is None or moment >= last or is_jump:
            if last is not None and not is_jump:
                counts = not is_robots and not self.was_robots
                self._add_pause(line, moment - last, asked if counts else 0, place, counts=counts)
                self._add_retry(moment, place)
            else:
                self.earliest = moment - line.slack
            self.last, self.was_robots = moment, is_robots
        if status == b"200":
            self.fresh += 1
        elif status == b"304":
            self.unchanged += 1
        elif status in _REFUSED:
            self.refused += 1
            self.refused_until = max(self.refused_until or 0, moment + line.duration)
        if is_robots:
            self.robots += 1
            self.robots_read = moment
        else:
            self._add_target(moment, place, closed=closed)

    def _terms_at(self, line: Line) -> tuple[float, bool]:
        """Return the pause that was asked for at least, and whether Visit-time was closed."""
        asked, closed = self.terms.at(int(line.moment))
        if line.slack:
            earlier, was_closed = self.terms.at(int(line.moment - line.slack))
            return min(asked, earlier), closed and was_closed
        return asked, closed

    def _add_pause(
        self, line: Line, pause: float, asked: float, place: tuple[str, int, bytes], *, counts: bool
    ) -> None:
        if counts and (self.pause is None or pause < self.pause):
            self.pause = pause
        soonest = self.earliest + asked
        self.earliest = line.moment - line.slack
        if asked and certainly_before(line.moment, soonest, line.blur):
            self.short += 1
            self.short_at = self.short_at or LogLine._make(place)
        elif asked:
            self.earliest = max(self.earliest, soonest)

    def _add_retry(self, moment: float, place: tuple[str, int, bytes]) -> None:
        """Judge the first request that began after a refusal; others were under way before."""
        if self.refused_until is None or moment < self.refused_until:
            return
        pause = moment - self.refused_until
        self.refused_until = None
        if self.after_refusal is None or pause < self.after_refusal:
            self.after_refusal = pause
        if pause <= _HASTY:
            self.hasty += 1
            self.hasty_at = self.hasty_at or LogLine._make(place)

    def _add_target(self, moment: float, place: tuple[str, int, bytes], *, closed: bool) -> None:
        if self.robots_read is None or moment - self.robots_read > _ROBOTS_SECONDS:
            self.stale += 1
        if self.terms.denies(place[2]):
            self.denied += 1
            self.denied_at = self.denied_at or LogLine._make(place)
        if closed:
            self.closed += 1
            self.closed_at = self.closed_at or LogLine._make(place)

    @property
    def conditional(self) -> float | None:
        """The share of 304 among 200 and 304; None without either."""
        answers = self.fresh + self.unchanged
        return self.unchanged / answers if answers else None

    @property
    def is_polite(self) -> bool:
        """Whether nothing was found that the robots.txt or a refusal forbids."""
        return not (self.denied or self.short or self.hasty or self.closed)
