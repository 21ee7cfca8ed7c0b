"""Finds the most specific Allow or Disallow rule for a URL (RFC 9309 2.2.2 and 2.2.3, R2).

The rule with the most octets decides; if an Allow and a Disallow are equally long, Allow does.
Protego is not used, because it takes up to 0.4 s for a group and 55 ms for a verdict, and counts
and compares octets differently from the RFC.

The paths of rules and URLs are first normalized: unreserved characters of RFC 3986 are decoded, all
other octets are percent-encoded (figure 4). Reserved characters with a meaning stay as they are:
"/" and "?", and in a rule "*" and a "$" at its end. Their escapes %2F, %3F, %2A and %24 are not
equal to them (figure 6).

In a query "/" and "?" are equal to their escapes (figure 4). A rule with a "?" has a query. A rule
without "?" may match in the path or in the query: then a Disallow matches the query in both forms,
and an Allow only as the URL has it, so that neither reading is too permissive.

Crawl-delay, and the records and rules of the extended robots.txt standard 2.0 (R4).

Crawl-delay, Visit-time and Request-rate are other records of a group (RFC 9309 2.2.4). Times of day
are UTC, in minutes since midnight.

The rules of a group with Robot-version 2.x are shell patterns in order, and the first match
decides. They are read in addition to RFC 9309: they can only deny more URLs.

Where the extended standard contradicts itself or leaves something open, a comment that begins with
"Choice:" explains what is done here.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ASCII: Final = frozenset(map(chr, range(128)))
_IN_PATH: Final = _UNRESERVED | frozenset("/%")
#: The characters that stay as they are in a query; all others are percent-encoded.
IN_QUERY: Final = _IN_PATH | {"?"}
_IN_RULES: Final = IN_QUERY | frozenset("*$\n")

_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")
_DECODED: Final = {
    high + low: chr(octet) if chr(octet := int(high + low, 16)) in _UNRESERVED else f"%{octet:02X}"
    for high in "0123456789ABCDEFabcdef"
    for low in "0123456789ABCDEFabcdef"
}
_PLAIN_PATH: Final = re.compile(r"/[A-Za-z0-9._~/-]*+").fullmatch
_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+://[^/?#]*+")
# An Allow that ends inside of an escape must not match every escape that begins like it.
_HALF_ESCAPE: Final = re.compile(r"%(?=[0-9A-F]?(?:[*\n]|\Z))")
_STARS: Final = re.compile(r"\*{2,}")

# Up to this many different octets, it is faster to replace them one after the other.
_MAX_REPLACED: Final = 8


class TooCostlyError(Exception):
    """The verdict on a URL would take too much time, so the URL is denied."""


def unescape(text: str) -> str:
    """Decode the escapes of unreserved characters, and write the other escapes in upper case."""
    if "%" not in text:
        return text
    pieces = _ESCAPE.split(text)
    pieces[1::2] = map(_DECODED.__getitem__, pieces[1::2])
    return "".join(pieces)


def percent_encode(text: str, unchanged: frozenset[str]) -> str:
    """Percent-encode every octet of `text` that is not in `unchanged`."""
    octets = set(text) - unchanged
    if len(octets) > _MAX_REPLACED:
        return text.translate({ord(octet): f"%{ord(octet):02X}" for octet in octets})
    for octet in octets:
        text = text.replace(octet, f"%{ord(octet):02X}")
    return text


class Target(NamedTuple):
    """The path and query of a URL in the three forms that are compared with rules.

    They differ only in the "/" and "?" of the query. Most URLs have three equal forms.
    """

    path: str  #: "/" and "?" in the query are not escaped
    written: str  #: "/" and "?" in the query are as in the URL
    escaped: str  #: "/" and "?" in the query are %2F and %3F


def target_of(url: str) -> Target:
    """Return the path and query of a full URL or a bare path, without its fragment."""
    authority = _AUTHORITY.match(url)
    text = (url[authority.end() :] if authority else url).partition("#")[0]
    if not text.startswith("/"):
        text = f"/{text}"
    if _PLAIN_PATH(text):
        return Target(text, text, text)
    if not text.isascii():
        text = text.encode("utf-8", "surrogatepass").decode("latin-1")
    path, mark, query = text.partition("?")
    path = percent_encode(unescape(path), _IN_PATH) + mark
    written = percent_encode(unescape(query), IN_QUERY)
    escaped = written.replace("/", "%2F").replace("?", "%3F")
    return Target(path + _plain_delimiters(written), path + written, path + escaped)


def _plain_delimiters(query: str) -> str:
    return query.replace("%2F", "/").replace("%3F", "?")


def patterns_of(paths: Sequence[str], *, allow: bool) -> tuple[list[str], list[int]]:
    """Return the normalized form of each path of Allow or Disallow rules, and its octets.

    Octets are counted after octets beyond ASCII are encoded and escapes of unreserved characters
    are decoded. All paths are encoded at once: one by one, half a megabyte of short rules takes too
    long.
    """
    if not paths:
        return [], []
    joined = unescape("\n".join([path.rstrip(" \t\v\f") for path in paths]))
    if not joined.isascii():
        joined = percent_encode(joined, _ASCII)
    normalized = _normalize(joined)
    if allow:
        normalized = _HALF_ESCAPE.sub("%25", normalized)
    texts = normalized.split("\n")
    if "?" in joined and ("%2F" in joined or "%3F" in joined):
        texts = [_plain_rule_query(text) for text in texts]
    return texts, list(map(len, joined.split("\n")))


def _normalize(paths: str) -> str:
    """Encode lines of paths; "$" stays only at the end of a line, "*" only before the end."""
    paths = percent_encode(paths, _IN_RULES) + "\n"
    if "$" in paths:
        # NUL marks the "$" at line ends. The text has no other NUL, because it is encoded.
        paths = paths.replace("$\n", "\0\n").replace("$", "%24").replace("\0\n", "$\n")
    if "*" in paths:
        paths = _STARS.sub("*", paths).replace("*$\n", "*\n").replace("*\n", "\n")
    return paths[:-1]


def _plain_rule_query(pattern: str) -> str:
    path, mark, query = pattern.partition("?")
    return path + mark + _plain_delimiters(query) if mark else pattern


# The maximum number of searches for a part of a rule in one verdict, which take about 2 ms.
_MAX_WORK: Final = 12_000


def matches(pattern: str, target: Target, *, allow: bool) -> bool:
    """Return True if the normalized path of a rule matches a URL."""
    head, star, tail = pattern.partition("*")
    if star:
        return target.path.startswith(head) and _tail_matches(tail, target, len(head), allow=allow)
    if head.endswith("$"):
        return target.path == head[:-1]
    return target.path.startswith(head)


def _tail_matches(tail: str, target: Target, start: int, *, allow: bool) -> bool:
    """Return True if the part of a pattern after its first "*" matches from `start` on."""
    if target.path == target.escaped or "?" in tail or "?" in target.path[:start]:
        return _contains(tail, target.path, start)
    if allow:
        return _contains(tail, target.written, start)
    return any(_contains(tail, path, start) for path in target)


def _contains(tail: str, path: str, start: int) -> bool:
    # The first match of each part is enough: it leaves the most text for the next parts.
    *parts, last = tail.split("*")
    for part in parts:
        position = path.find(part, start)
        if position < 0:
            return False
        start = position + len(part)
    if last.endswith("$"):
        return len(path) - len(last) + 1 >= start and path.endswith(last[:-1])
    return path.find(last, start) >= 0


class WorkLimit:
    """Bounds the time of one verdict."""

    def __init__(self, limit: int) -> None:
        self._remaining = limit

    @classmethod
    def for_target(cls, target: Target) -> WorkLimit:
        """Return the limit for the most specific rule; each form of a URL is searched."""
        return cls(_MAX_WORK // len(set(target)))

    def spend(self, cost: int) -> None:
        """Raise TooCostlyError if more was spent than the limit."""
        self._remaining -= cost
        if self._remaining < 0:
            raise TooCostlyError


class Rule(NamedTuple):
    """The rule that decides about a URL: the longest one, of equal ones the Allow."""

    octets: int
    allow: bool
    number: int  #: of its record in the group, from 0


class Tail(NamedTuple):
    """The part of a pattern after its first "*"."""

    rank: int  #: of the whole rule
    text: str
    part: str  #: the text up to the next "*", which every matching URL contains


@dataclass(frozen=True, slots=True, eq=False)
class RuleIndex:
    """The rules of one group, indexed by their beginnings.

    Each rule has a rank, from 0: the longest rule first, of equally long ones the Allows first, and
    then as in the file. Of all rules that match a URL, the one with the lowest rank decides.
    """

    prefixes: dict[str, int]  #: the ranks of rules without "*" and "$", by path
    exact: dict[str, int]  #: of rules that end in "$" and have no "*", by path without "$"
    wildcards: dict[str, list[Tail]]  #: by the text before the first "*", the lowest rank first
    prefix_lengths: list[int]
    head_lengths: list[int]  #: the lengths of the keys of `wildcards`
    numbers: list[int]  #: of the records in the group, by rank
    octets: list[int]  #: by rank
    allows: Sequence[bool]  #: by number

    @classmethod
    def from_records(cls, allows: Sequence[bool], paths: Sequence[str]) -> RuleIndex:
        """Index the Allow and Disallow records of a group. An empty path matches nothing."""
        numbers: list[int] = []
        texts: list[str] = []
        octets: list[int] = []
        for allow in (True, False):
            chosen = [n for n, path in enumerate(paths) if path and allows[n] is allow]
            patterns, lengths = patterns_of([paths[n] for n in chosen], allow=allow)
            numbers += chosen
            texts += patterns
            octets += lengths
        # Sorting keeps the order of equally long rules.
        order = sorted(range(len(numbers)), key=octets.__getitem__, reverse=True)
        texts = [texts[place] for place in order]
        prefixes = dict(zip(reversed(texts), range(len(texts) - 1, -1, -1), strict=True))
        wildcards: dict[str, list[Tail]] = defaultdict(list)
        for text in [text for text in texts if "*" in text]:
            rank = prefixes.pop(text, None)
            if rank is not None:
                head, _, tail = text.partition("*")
                part = tail.partition("*")[0].rstrip("$")
                wildcards[head].append(Tail(rank, tail, part))
        exact = {text[:-1]: prefixes.pop(text) for text in list(prefixes) if text[-1:] == "$"}
        return cls(
            prefixes,
            exact,
            wildcards,
            prefix_lengths=sorted(set(map(len, prefixes))),
            head_lengths=sorted(set(map(len, wildcards))),
            numbers=[numbers[place] for place in order],
            octets=[octets[place] for place in order],
            allows=allows,
        )

    @property
    def denies_all(self) -> bool:
        """Whether one Disallow record matches each path; an Allow may still allow some of them."""
        paths = ("", "/")  # of `*` and `/`
        ranks = [self.prefixes[path] for path in paths if path in self.prefixes]
        return any(not self.allows[self.numbers[rank]] for rank in ranks)

    def deciding_rule(self, target: Target, limit: WorkLimit) -> Rule | None:
        """Return the rule that decides about a URL; None if no rule matches.

        Raises TooCostlyError.
        """
        path = target.path
        size = len(path)
        none = len(self.numbers)
        lowest = self.exact.get(path, none)
        for length in self.prefix_lengths:
            if length > size:
                break
            lowest = min(lowest, self.prefixes.get(path[:length], none))
        if self.wildcards:
            lowest = self._lowest_wildcard(target, limit, lowest)
        if lowest == none:
            return None
        number = self.numbers[lowest]
        return Rule(self.octets[lowest], self.allows[number], number)

    def _lowest_wildcard(self, target: Target, limit: WorkLimit, lowest: int) -> int:
        size = len(target.escaped)
        forms = "\n".join(set(target))
        for start in self.head_lengths:
            for rank, tail, part in self.wildcards.get(target.path[:start], ()):
                if rank >= lowest:
                    break
                limit.spend(1 + size // 128)
                if part in forms and len(tail) <= 2 * size + 2:
                    limit.spend(tail.count("*"))
                    allow = self.allows[self.numbers[rank]]
                    if _tail_matches(tail, target, start, allow=allow):
                        lowest = rank
                        break
        return lowest


# ---- the extended standard 2.0 ----

_DAY: Final = 24 * 60
#: All minutes of a day, as bits.
ALL_DAY: Final = (1 << _DAY) - 1
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}

# Choice: ".5" and "5." are decimals too, because they can only mean a number of seconds.
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
    """A Request-rate, and the window in which it applies."""

    seconds: float  #: per document
    window: Window | None  #: None: all day


def parse_crawl_delay(value: str) -> float | None:
    """Return a Crawl-delay in seconds; None if it is not an ASCII decimal."""
    if not _DECIMAL.fullmatch(value):
        return None
    seconds = float(value)
    return seconds if math.isfinite(seconds) else None


def parse_visit_time(value: str) -> Window | None:
    """Return a Visit-time window, `0600-0845`, `06:00-08:45` or `0600 0845`; None if malformed."""
    match = _VISIT_TIME.fullmatch(value)
    return _window(*match.groups()) if match else None


def parse_request_rate(value: str) -> RequestRate | None:
    """Return a Request-rate, such as `1/10m` or `1/10m 1300-1659`; None if malformed."""
    match = _RATE.fullmatch(value)
    if not match:
        return None
    documents, units, unit, *times = match.groups()
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
    is_valid = max(first, last) < _DAY and max(int(minute), int(last_minute)) < 60
    return Window(first, last) if is_valid else None


_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "crawldelay": parse_crawl_delay,
    "requestrate": parse_request_rate,
    "visittime": parse_visit_time,
}


def is_malformed(key: str, value: str) -> bool:
    """Return True if the value of a record with this key cannot be read."""
    parse = _PARSERS.get(key)
    return parse is not None and parse(value) is None


def minute_of(at: datetime) -> int:
    """Return the minute of the day in UTC, from 0, of an aware time."""
    utc = at.astimezone(UTC)
    return utc.hour * 60 + utc.minute


def slowest(rates: Sequence[RequestRate], minute: int) -> float | None:
    """Return the seconds per document of the slowest rate that applies in a minute of the day.

    None if no rate applies. Choice: a rate without a window applies all day, even if another rate
    has a window.
    """
    return max(
        (rate.seconds for rate in rates if not rate.window or rate.window.includes(minute)),
        default=None,
    )


def open_minutes(windows: Iterable[Window]) -> int:
    """Return the minutes of the day that are in a window, as bits.

    Choice: several windows are alternatives. A window whose two times are the same is one minute
    long.
    """
    minutes = 0
    for first, last in windows:
        upto = (2 << last) - 1
        before = (1 << first) - 1
        minutes |= upto & ~before if first <= last else upto | (ALL_DAY & ~before)
    return minutes


def minutes_closed(minutes: int, minute: int) -> int:
    """Return how many minutes after a minute of the day the next one of `open_minutes` is."""
    later = (minutes >> minute) | (minutes << (_DAY - minute))
    return (later & -later).bit_length() - 1


def minutes_open(minutes: int, minute: int) -> int:
    """Return how many minutes before a minute of the day are `open_minutes` without a gap.

    0 if this minute itself is closed, or if no minute is.
    """
    closed = ALL_DAY & ~minutes
    # The minute is the highest bit, and the minutes before it follow.
    earlier = ((closed << (_DAY - 1 - minute)) | (closed >> (minute + 1))) & ALL_DAY
    return max(0, _DAY - 1 - earlier.bit_length()) if closed else 0


def opening_after(at: datetime, minutes: int) -> datetime:
    """Return the aware time `at`, or the beginning of a later minute."""
    if not minutes:
        return at
    opening = at.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=minutes)
    return opening.astimezone(at.tzinfo)


#: The maximum number of characters that one verdict compares, which takes about 2 ms.
MAX_WORK: Final = 12_000
# A group with more rules is not read in order, but denies every URL.
_MAX_RULES: Final = 2_000
_VERSION_2: Final = re.compile(r"2(?![0-9])")
# Choice: a "[" that is not closed within 64 octets is the character itself.
_TOKEN: Final = re.compile(r"%[0-9A-F]{2}|\*|\[[!^]?\]?[^\]]{0,64}\]|.", re.DOTALL)
_OCTET: Final = re.compile(r"%[0-9A-F]{2}|.", re.DOTALL)
_RANGE: Final = re.compile(r"(.)-(.)|(.)", re.DOTALL)


def is_version_2(value: str) -> bool:
    """Return True if a Robot-version value is 2.x.

    Choice: odd (experimental) minor numbers and a third number are accepted too, and so is a record
    that does not directly follow its User-agent line, because this can only make a group stricter.
    """
    return bool(_VERSION_2.match(value))


@dataclass(frozen=True, slots=True)
class GlobRule:
    """One rule of a 2.x group.

    A rule without "*", "?" or "[" matches only the path and query that equal it. Choice: "*" and
    "?" match "/" too, as in a shell's `case`, because the standard's examples mean pages in
    folders. Choice: "$" is an ordinary character.
    """

    index: int  #: its place among the rules of the group, from 0
    allow: bool
    path: str
    anchored: str  #: the path as an RFC 9309 pattern that ends in "$"

    @property
    def is_explicit(self) -> bool:
        """Whether the rule has no wildcard."""
        return not any(wild in self.path for wild in "*?[")

    @property
    def denies_all(self) -> bool:
        """Whether this is `Disallow: *`, after which no rule is reached."""
        return not self.allow and self.path in ("*", "/*")

    def matches(self, target: Target, work: WorkLimit) -> bool:
        """Return True if the rule matches a URL. Raises `TooCostlyError`."""
        if "?" in self.path or "[" in self.path:
            return _glob_matches(self.path, target.path, work)
        length = len(target.escaped)
        work.spend(1 + self.anchored.count("*") + length // 128)
        if len(self.anchored) > 2 * length + 3:
            return False
        return matches(self.anchored, target, allow=self.allow)


@dataclass(frozen=True, slots=True)
class OrderedRules:
    """The rules of a 2.x group in order, in two parts.

    The first part ends with the first rule that denies everything. A URL is denied if the first
    match in either part is a Disallow rule.
    """

    first: tuple[GlobRule, ...] = ()
    rest: tuple[GlobRule, ...] = ()
    too_many: bool = False  #: there are more than `_MAX_RULES`, which were not read

    @classmethod
    def from_records(cls, allows: Sequence[bool], paths: Sequence[str]) -> OrderedRules:
        """Read the Allow and Disallow records of a group; an empty path matches nothing."""
        if len(paths) > _MAX_RULES:
            return cls(too_many=True)
        stripped = [path.rstrip(" \t\v\f") for path in paths]
        # Another "$" than the one at the end is an ordinary character.
        anchored = [path.replace("$", "%24") + "$" for path in stripped]
        if_allow, _ = patterns_of(anchored, allow=True)
        if_disallow, _ = patterns_of(anchored, allow=False)
        globs = [
            GlobRule(index, allow, path, (if_allow if allow else if_disallow)[index])
            for index, (allow, path) in enumerate(zip(allows, stripped, strict=True))
            if path
        ]
        lengths = (length for length, glob in enumerate(globs, 1) if glob.denies_all)
        split = next(lengths, len(globs))
        first = tuple(globs[:split])
        rest = tuple(globs[split:])
        if rest:
            # Choice: in order, a rule after "Disallow: *" would never be reached, but the
            # standard's own example uses one. Explicit Allow rules go before such rules.
            rest = (*(glob for glob in first if glob.allow and glob.is_explicit), *rest)
        return cls(first, rest)

    def denying_rule(self, target: Target, limit: WorkLimit) -> int | None:
        """Return the index of the rule that denies a URL, or None if the URL is allowed.

        Raises TooCostlyError, also if there are too many rules.

        Choice: the first match decides, as in the newest text of the standard; in an older text
        explicit rules go before rules with a wildcard. Choice: a path that no rule matches is
        allowed, even if all rules are Allow rules.
        """
        if self.too_many:
            raise TooCostlyError
        globs = (_first_match(rules, target, limit) for rules in (self.first, self.rest))
        return next((glob.index for glob in globs if glob and not glob.allow), None)


def _first_match(rules: Iterable[GlobRule], target: Target, work: WorkLimit) -> GlobRule | None:
    return next((glob for glob in rules if glob.matches(target, work)), None)


def _glob_matches(glob: str, path: str, work: WorkLimit) -> bool:
    """Match a shell pattern. After a mismatch, the last "*" is tried with one more octet."""
    work.spend(len(glob))
    tokens = [_octets(token) for token in _TOKEN.findall(_encode_glob(glob))]
    octets = _OCTET.findall(path)
    at = octet = star_end = 0
    star = -1
    while octet < len(octets):
        work.spend(1)
        if at < len(tokens) and not tokens[at]:
            star = at
            star_end = octet
            at += 1
        elif at < len(tokens) and octets[octet] in tokens[at]:
            at += 1
            octet += 1
        elif star >= 0:
            star_end += 1
            at = star + 1
            octet = star_end
        else:
            return False
    return not any(tokens[at:])


def _encode_glob(glob: str) -> str:
    return percent_encode(unescape(glob), frozenset(map(chr, range(128))))


@lru_cache(maxsize=1024)
def _octets(piece: str) -> frozenset[str]:
    """Return the octets that one token of a pattern matches, encoded and not; none for "*"."""
    if piece == "*":
        return frozenset()
    if piece == "?":
        return _forms(range(256))
    if len(piece) > 1 and piece.startswith("["):
        return _forms(_bracket(piece[1:-1]))
    return frozenset({piece if len(piece) > 1 else percent_encode(piece, IN_QUERY)})


def _bracket(text: str) -> Iterable[int]:
    """Return the octets that a bracket expression matches; "!" or "^" at its start negates it."""
    is_negated = text.startswith(("!", "^"))
    octets = {
        octet
        for low, high, single in _RANGE.findall(text[is_negated:])
        for octet in range(ord(low or single), ord(high or single) + 1)
    }
    return set(range(256)) - octets if is_negated else octets


def _forms(octets: Iterable[int]) -> frozenset[str]:
    return frozenset(
        form for octet in octets for form in (f"%{octet:02X}", percent_encode(chr(octet), IN_QUERY))
    )
