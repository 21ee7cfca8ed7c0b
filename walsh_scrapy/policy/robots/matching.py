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
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

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
    def for_target(cls, target: Target) -> "WorkLimit":
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
    def from_records(cls, allows: Sequence[bool], paths: Sequence[str]) -> "RuleIndex":
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
