"""Crawl-delay, Visit-time, Request-rate, Comment: other records of a group (RFC 9309 2.2.4).

Crawl-delay is R4 and decision 10; the others are of the extended standard 2.0 (decision 13).
Times of day are UTC, in minutes since midnight. Where that standard leaves something open, a
comment that begins with "Choice:" says how it is read here.
"""

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from walsh_scrapy.policy.robots.records import readable
from walsh_scrapy.policy.wording import and_more, cut, for_others, printable

#: Comment lines of one bot's groups that are shown to the operator; the others are counted.
MOST_COMMENTS: Final = 5
#: Characters of a Comment that are shown.
LONGEST_COMMENT: Final = 200
_DAY: Final = 24 * 60
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}

# Choice: ".5" and "5." are decimals too, since they can only mean a number of seconds.
_DECIMAL: Final = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
# Choice: the colon of a time is optional, and so is the zero in front ("900", "9:00").
_TIME: Final = r"([0-9]{1,2}):?([0-9]{2})"
_WINDOW: Final = rf"{_TIME}(?:[ \t]*-[ \t]*|[ \t]+){_TIME}(?:[ \t]*(?:utc|gmt|ut|z))?"
_VISIT_TIME: Final = re.compile(_WINDOW, re.IGNORECASE)
# Choice: a rate without a number of units means one unit ("1/m"). A number has at most 18 digits.
_RATE: Final = re.compile(
    rf"([0-9]{{1,18}})[ \t]*/[ \t]*(?=[0-9smhd])([0-9]{{0,18}})([smhd]?)(?:[ \t]+{_WINDOW})?",
    re.IGNORECASE,
)


class Window(NamedTuple):
    """A part of every day, from its first to its last minute; it may cross midnight.

    Choice: the last minute is included to its end. Otherwise the standard's example 1300-1659,
    1700-0459, 0500-1259 would leave gaps.
    """

    first: int
    last: int

    def includes(self, minute: int) -> bool:
        """Return True if a minute of the day (0 to 1439) is in the window."""
        if self.first <= self.last:
            return self.first <= minute <= self.last
        return minute >= self.first or minute <= self.last


class RequestRate(NamedTuple):
    """A Request-rate: seconds per document, and the window in which it is in force."""

    seconds: float
    window: Window | None  #: None: all day


def parse_crawl_delay(value: str) -> float | None:
    """Return a Crawl-delay in seconds; None if it is not an ASCII decimal (decision 10)."""
    if not _DECIMAL.fullmatch(value):
        return None
    seconds = float(value)
    return seconds if math.isfinite(seconds) else None


def parse_visit_time(value: str) -> Window | None:
    """Return a Visit-time window, `0600-0845`, `06:00-08:45` or `0600 0845`; None if malformed."""
    found = _VISIT_TIME.fullmatch(value)
    return _window(*found.groups()) if found else None


def parse_request_rate(value: str) -> RequestRate | None:
    """Return a Request-rate, such as `1/10m` or `1/10m 1300-1659`; None if malformed."""
    found = _RATE.fullmatch(value)
    if not found:
        return None
    documents, units, unit, *times = found.groups()
    seconds = int(units or 1) * _UNITS[unit.lower()]
    window = _window(*times) if times[0] else None
    if not int(documents) or not seconds or (times[0] and not window):
        return None
    return RequestRate(seconds / int(documents), window)


def _window(hour: str, minute: str, last_hour: str, last_minute: str) -> Window | None:
    first = int(hour) * 60 + int(minute)
    last = int(last_hour) * 60 + int(last_minute)
    # Choice: the standard has no 24:00, but as the end of a window it can only mean midnight.
    last = _DAY - 1 if last == _DAY else last
    sound = max(first, last) < _DAY and max(int(minute), int(last_minute)) < 60
    return Window(first, last) if sound else None


_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "crawldelay": parse_crawl_delay,
    "requestrate": parse_request_rate,
    "visittime": parse_visit_time,
}


def is_malformed(key: str, value: str) -> bool:
    """Return True if a record with this key is ignored because of its value."""
    parse = _PARSERS.get(key)
    return parse is not None and parse(value) is None


def printable_comments(values: Sequence[str]) -> tuple[str, ...]:
    """Return the Comment values as they are shown, and last how many more there are, if any."""
    texts = (for_others(printable(readable(value))) for value in values[:MOST_COMMENTS])
    shown = [cut(text, LONGEST_COMMENT) for text in texts]
    left = len(values) - len(shown)
    return (*shown, and_more(left)) if left else tuple(shown)


def slowest(rates: Sequence[RequestRate], at: datetime) -> float | None:
    """Return the seconds per document of the slowest rate in force at the aware time `at`.

    None if no rate is in force. Choice: a rate without a window is in force all day, even if
    another has a window; the slower of the two counts (decision 13).
    """
    if not rates:
        return None
    minute = _minute(at)
    return max(
        (rate.seconds for rate in rates if not rate.window or rate.window.includes(minute)),
        default=None,
    )


def next_opening(windows: Sequence[Window], at: datetime) -> datetime:
    """Return the first moment, from the aware time `at` on, that is in a window.

    Without windows it is `at` itself. Choice: several windows are alternatives. A window whose two
    times are the same is one minute long.
    """
    if not windows:
        return at
    minute, starts = _minute(at), set()
    for window in windows:
        if window.includes(minute):
            return at
        starts.add(window.first)
    wait = min((start - minute) % _DAY for start in starts)
    opening = at.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=wait)
    return opening.astimezone(at.tzinfo)


def _minute(at: datetime) -> int:
    utc = at.astimezone(UTC)
    return utc.hour * 60 + utc.minute
