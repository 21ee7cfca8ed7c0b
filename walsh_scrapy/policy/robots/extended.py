"""The additions of the extended standard 2.0 to a group, and Crawl-delay (R4; decisions 10 and 13).

Crawl-delay, Visit-time and Request-rate are other records of a group (RFC 9309 2.2.4). Times of day
are UTC, in minutes since midnight.

In a group of Robot-version 2.x rules have an order and shell patterns, and the first that matches
decides. This reading is in addition to that of RFC 9309: it can deny more URLs, and cannot allow
more.

Where that standard contradicts itself or leaves something open, a comment that begins with
"Choice:" explains the reading here.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from walsh_scrapy.policy.robots.matching import (
    IN_QUERY,
    UNDECIDED,
    Target,
    matches,
    patterns_of,
    percent_encode,
    unescape,
)

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


# The most characters that one verdict may compare: about 2 ms.
_WORK: Final = 12_000
# A group with more rules than this is not read in order: it denies every URL.
_MAX_RULES: Final = 2_000
_VERSION_2: Final = re.compile(r"2(?![0-9])")
# Choice: a "[" that is not closed within 64 octets is the character itself.
_TOKEN: Final = re.compile(r"%[0-9A-F]{2}|\*|\[[!^]?\]?[^\]]{0,64}\]|.", re.DOTALL)
_OCTET: Final = re.compile(r"%[0-9A-F]{2}|.", re.DOTALL)
_RANGE: Final = re.compile(r"(.)-(.)|(.)", re.DOTALL)


class _TooCostlyError(Exception):
    """The verdict on a URL would cost more than `_WORK`."""


def is_version_2(value: str) -> bool:
    """Return True if a Robot-version value is 2.x.

    Choice: odd (experimental) minor numbers and a third number count as well, and so does a record
    that does not directly follow its User-agent line: this can only make a group stricter.
    """
    return bool(_VERSION_2.match(value))


@dataclass(slots=True)
class _Work:
    left: int = _WORK

    def spend(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise _TooCostlyError


@dataclass(frozen=True, slots=True)
class GlobRule:
    """One rule of a 2.x group.

    Choice: "*" and "?" match "/" too, as in a shell's `case`: the standard's examples mean pages in
    folders. Choice: "$" has no meaning. A rule without "*", "?" or "[" matches only the path and
    query that equal it.
    """

    index: int  #: among the rules of the group
    allow: bool
    path: str
    anchored: str  #: the path as an RFC 9309 pattern that ends in "$"

    @property
    def is_explicit(self) -> bool:
        """Return True if the rule has no wildcard."""
        return not any(wild in self.path for wild in "*?[")

    @property
    def denies_all(self) -> bool:
        """Return True for `Disallow: *`: rules after it are never reached."""
        return not self.allow and self.path in ("*", "/*")

    def matches(self, target: Target, work: _Work) -> bool:
        """Return True if the rule matches a URL; raises `_TooCostlyError`."""
        if "?" in self.path or "[" in self.path:
            return _glob_matches(self.path, target.path, work)
        longest = len(target.escaped)
        work.spend(1 + self.anchored.count("*") + longest // 128)
        return len(self.anchored) <= 2 * longest + 3 and matches(
            (self.anchored, self.allow), target
        )


@dataclass(frozen=True, slots=True)
class OrderedRules:
    """The rules of a 2.x group in order, split after the first that denies everything.

    A URL is denied if the first match in either part is a Disallow rule.
    """

    first: tuple[GlobRule, ...] = ()
    rest: tuple[GlobRule, ...] = ()
    too_many: bool = False  #: more than `_MAX_RULES`: they were not read

    @classmethod
    def of(cls, rules: Sequence[tuple[str, str]]) -> "OrderedRules":
        """Read (key, path) records; the key is "" for Disallow, an empty path matches nothing."""
        if len(rules) > _MAX_RULES:
            return cls(too_many=True)
        paths = [(key, path.rstrip(" \t\v\f")) for key, path in rules]
        patterns = patterns_of([(key, path.replace("$", "%24") + "$") for key, path in paths])
        globs = [
            GlobRule(index, bool(key), path, anchored)
            for index, ((key, path), (anchored, _)) in enumerate(zip(paths, patterns, strict=True))
            if path
        ]
        lengths = (length for length, glob in enumerate(globs, 1) if glob.denies_all)
        split = next(lengths, len(globs))
        first, rest = tuple(globs[:split]), tuple(globs[split:])
        if rest:
            # Choice: a rule after "Disallow: *" is never reached in order, but in the standard's
            # own example it counts. Here it comes after the explicit Allow rules and before those
            # with a wildcard.
            rest = (*(glob for glob in first if glob.allow and glob.is_explicit), *rest)
        return cls(first, rest)

    def denying_rule(self, target: Target) -> int | None:
        """Return the index of the rule that denies a URL; None if the URL is allowed.

        `UNDECIDED` denies as well: the verdict would cost too much.

        Choice: the first match decides, as in the newest text; in an older text explicit rules go
        before those with a wildcard. Choice: a path that no rule matches is allowed, even if all
        rules are Allow rules.
        """
        work = _Work()
        if self.too_many:
            return UNDECIDED
        try:
            found = (_first_match(rules, target, work) for rules in (self.first, self.rest))
            return next((glob.index for glob in found if glob and not glob.allow), None)
        except _TooCostlyError:
            return UNDECIDED


def _first_match(rules: Iterable[GlobRule], target: Target, work: _Work) -> GlobRule | None:
    return next((glob for glob in rules if glob.matches(target, work)), None)


def _glob_matches(glob: str, path: str, work: _Work) -> bool:
    """Match a shell pattern. After a mismatch only the last "*" must take one more octet."""
    work.spend(len(glob))
    tokens = [_octets(token) for token in _TOKEN.findall(_encode_glob(glob))]
    octets = _OCTET.findall(path)
    at = octet = star_end = 0
    star = -1
    while octet < len(octets):
        work.spend(1)
        if at < len(tokens) and not tokens[at]:
            star, star_end = at, octet
            at += 1
        elif at < len(tokens) and octets[octet] in tokens[at]:
            at, octet = at + 1, octet + 1
        elif star >= 0:
            star_end += 1
            at, octet = star + 1, star_end
        else:
            return False
    return not any(tokens[at:])


def _encode_glob(glob: str) -> str:
    return percent_encode(unescape(glob), frozenset(map(chr, range(128))))


@lru_cache(maxsize=1024)
def _octets(piece: str) -> frozenset[str]:
    """Return the octets that one token of a pattern matches, in every form; none for "*"."""
    if piece == "*":
        return frozenset()
    if piece == "?":
        return _forms(range(256))
    if len(piece) > 1 and piece.startswith("["):
        return _forms(_bracket(piece[1:-1]))
    return frozenset({piece if len(piece) > 1 else percent_encode(piece, IN_QUERY)})


def _bracket(text: str) -> Iterable[int]:
    """Return the octets that a bracket expression names; after "!" or "^" it names all others."""
    negated = text.startswith(("!", "^"))
    named = {
        octet
        for low, high, single in _RANGE.findall(text[negated:])
        for octet in range(ord(low or single), ord(high or single) + 1)
    }
    return set(range(256)) - named if negated else named


def _forms(octets: Iterable[int]) -> frozenset[str]:
    return frozenset(
        form for octet in octets for form in (f"%{octet:02X}", percent_encode(chr(octet), IN_QUERY))
    )
