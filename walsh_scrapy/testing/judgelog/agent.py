"""What one bot did in a log, by the rules of `walsh_scrapy.testing.tallies`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from walsh_scrapy.testing.judgelog.robots import Verdict
from walsh_scrapy.testing.manners import BUSY
from walsh_scrapy.testing.tallies import (
    HASTY,
    MOST_RETRIES,
    SOON,
    Hold,
    Rate,
    Retries,
    Spacing,
)

if TYPE_CHECKING:
    from walsh_scrapy.testing.judgelog.lines import Line
    from walsh_scrapy.testing.judgelog.robots import Robots

_ROBOTS: Final = b"/robots.txt"
_ANSWERED: Final = frozenset({b"200", b"304"})
#: There is no robots.txt, so everything is allowed (RFC 9309 2.3.1.3).
_UNAVAILABLE: Final = frozenset({b"401", b"403", b"404", b"410"})
_REFUSED: Final = frozenset(str(status).encode() for status in BUSY)
#: Seconds until a bot that asks for several pages at once knows of a refusal.
_NOTICE: Final = 1
#: Seconds. Lines are written at the end of a request, so a few may be out of order. A line that is
#: earlier than that begins an older log.
_OUT_OF_ORDER: Final = 60
#: A copy of robots.txt counts for a day (RFC 9309 2.4).
_ROBOTS_SECONDS: Final = 86_400
#: Addresses of one bot that are told apart.
MOST_ADDRESSES: Final = 100
#: What is found: the keys of `Agent.found`. A bot is accused of all but the last.
DENIED: Final = "denied"
SHORT: Final = "short_pauses"
FAST: Final = "too_fast"
HASTY_RETRY: Final = "hasty_retries"
STUBBORN: Final = "stubborn_retries"
CLOSED: Final = "outside_visit_time"
DIFFERS: Final = "readers_differ"
ACCUSATIONS: Final = (DENIED, SHORT, FAST, HASTY_RETRY, STUBBORN, CLOSED)


class LogLine(NamedTuple):
    """A line of a log."""

    file: str
    line: int  #: from 1
    target: bytes


_Place = tuple[str, int, bytes]


class Finding(NamedTuple):
    """How many requests did one thing, and the first of them."""

    number: int
    first: LogLine


class Answered:
    """The targets that a server answers 304, and who had them already: a few thousand of each."""

    _MOST = 10_000

    def __init__(self) -> None:
        self._revalidated: set[bytes] = set()
        self._had: set[tuple[int, bytes]] = set()

    def is_again(self, number: int, line: Line) -> bool:
        """Return True if a bot of this number surely had a target, which is answered 200 or 304."""
        target = line.target
        if line.status == b"304":
            if len(self._revalidated) < self._MOST:
                self._revalidated.add(target[:1000])
            return True
        if target not in self._revalidated:
            return False
        had = (number, target)
        if had in self._had:
            return True
        if len(self._had) < 10 * self._MOST:
            self._had.add(had)
        return False


class Agent:
    """The counts of one bot: of one User-Agent over all its addresses, or at one of them.

    A pause is the time from the beginning of one request to that of the next. It counts as too
    short only if it certainly was, whatever the log does not have: fractions of seconds, or when a
    request began of which it has the end. Pauses before and after a request for robots.txt do not
    count. Who was last answered that there is no robots.txt, or got none in a day, is not bound.
    """

    __slots__ = (
        "_hold", "_rate", "_refused_target", "_retries", "_robots", "_spacing", "address",
        "addresses", "after_refusal", "again", "copy_read", "earliest", "found", "fresh",
        "is_bound", "last", "more_addresses", "name", "number", "pause", "refused", "requests",
        "robots", "robots_read", "stale", "terms", "unchanged", "was_robots",
    )  # fmt: skip

    def __init__(self, name: str, address: str, token: str, robots: Robots, number: int) -> None:
        self.name, self.number = name, number
        self.address = address  #: "" if it is judged over all its addresses
        self._robots, self.terms = robots, robots.terms_of(token)
        self.requests = self.robots = self.unchanged = self.fresh = self.again = 0
        self.refused = self.stale = 0
        self.found: dict[str, Finding] = {}
        self.addresses: dict[bytes, None] = {}
        self.more_addresses = False  #: than `addresses` has
        #: Seconds: the shortest pause, and the shortest one after a refusal; None for none.
        self.pause: float | None = None
        self.after_refusal: float | None = None
        self.is_bound = True
        self._begin()

    def _begin(self) -> None:
        """Begin a log."""
        self.last: float | None = None  # when the last one in order began, at the latest
        self.earliest = 0.0
        self.robots_read: float | None = None
        self.copy_read = -math.inf
        self.was_robots = False
        self._spacing, self._rate = Spacing(), Rate()
        self._hold: Hold | None = None  # of a refusal that nothing followed yet
        self._retries: Retries | None = None  # while each answer is a refusal
        self._refused_target = b""

    def add(self, line: Line, file: str, number: int, answered: Answered) -> None:
        """Count one request, which is a line of a file."""
        moment, target, status = line.moment, line.target, line.status
        place = (file, number, target)
        self.requests += 1
        if self.last is not None and self.last - moment > _OUT_OF_ORDER:
            self._begin()
        is_robots = target == _ROBOTS
        asked, is_closed = self.terms.at(moment, line.slack)
        if self._rate.add(moment, line.blur, line.slack):
            self._find(FAST, place)
        earliest = moment - line.slack
        # Another one may have begun before the last one, whatever the order of the lines.
        if self.last is None or (moment >= self.last and earliest >= self.earliest):
            self._add_in_order(line, asked, place, is_robots=is_robots)
            self.last, self.earliest, self.was_robots = moment, earliest, is_robots
        if status in _REFUSED:
            self._add_refusal(line)
        else:
            self._retries = None
            if status in _ANSWERED:
                self.fresh += status == b"200"
                self.unchanged += status == b"304"
                self.again += answered.is_again(self.number, line)
        if is_robots:
            self.robots += 1
            self.robots_read = moment
            self._bind(moment, status)
        else:
            self._add_target(moment, place, is_closed=is_closed)

    def _bind(self, moment: float, status: bytes) -> None:
        """Note an answer to robots.txt. An error frees who has no copy of less than a day."""
        if status in _ANSWERED:
            self.is_bound, self.copy_read = True, moment
        elif status in _UNAVAILABLE or moment - self.copy_read > _ROBOTS_SECONDS:
            self.is_bound = False

    def _add_target(self, moment: float, place: _Place, *, is_closed: bool) -> None:
        if self.robots_read is None or moment - self.robots_read > _ROBOTS_SECONDS:
            self.stale += 1
        if not self.is_bound:
            return
        verdict = self._robots.verdict(self.terms, place[2])
        if verdict is not Verdict.ALLOWED:
            self._find(DENIED if verdict is Verdict.DENIED else DIFFERS, place)
        if is_closed:
            self._find(CLOSED, place)

    def _add_in_order(self, line: Line, asked: float, place: _Place, *, is_robots: bool) -> None:
        moment, blur, slack = line.moment, line.blur, line.slack
        counts = not is_robots and not self.was_robots
        if counts and self.last is not None:
            pause = moment - self.last
            if self.pause is None or pause < self.pause:
                self.pause = pause
        is_asked = counts and self.is_bound
        if self._spacing.add(moment, asked if is_asked else 0.0, blur, slack):
            self._find(SHORT, place)
        if self._hold is not None and moment >= self._hold.until - HASTY:
            self._add_retry(line, place)
        if self._retries is not None:
            count = self._retries.add(moment, blur, slack + _NOTICE, SOON)
            if count > MOST_RETRIES:
                self._find(STUBBORN, place)

    def _add_retry(self, line: Line, place: _Place) -> None:
        """Judge the first request that began after a refusal; others were under way before."""
        hold = cast("Hold", self._hold)
        self._hold = None
        pause = line.moment - hold.until + HASTY
        if self.after_refusal is None or pause < self.after_refusal:
            self.after_refusal = pause
        is_same = line.target == self._refused_target
        if is_same and hold.is_broken(line.moment, line.blur, line.slack):
            self._find(HASTY_RETRY, place)

    def _add_refusal(self, line: Line) -> None:
        ended = line.moment + line.duration
        self.refused += 1
        self._refused_target = line.target
        self._hold = self._hold or Hold()
        self._hold.begin(ended, ended + HASTY)
        self._retries = self._retries or Retries()
        self._retries.answered(ended, is_refusal=True)

    def _find(self, kind: str, place: _Place) -> None:
        known = self.found.get(kind) or Finding(0, LogLine._make(place))
        self.found[kind] = Finding(known.number + 1, known.first)

    def count(self, kind: str) -> int:
        """Return how many requests did one thing."""
        return self.found[kind].number if kind in self.found else 0

    def why(self, kind: str) -> str:
        """Return what the crawler's reader of robots.txt says of the first of these requests."""
        return self.terms.why(self.found[kind].first.target)

    @property
    def conditional(self) -> float | None:
        """The share of 304 among 200 and 304; None without either."""
        answers = self.fresh + self.unchanged
        return self.unchanged / answers if answers else None

    @property
    def is_polite(self) -> bool:
        """Whether it is accused of nothing."""
        return not any(kind in self.found for kind in ACCUSATIONS)
