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
#: A rule's normalized path, and its rank: twice the number of its octets, plus one for Allow. The
#: highest rank wins. Octets are counted after octets beyond ASCII are encoded and escapes of
#: unreserved characters are decoded.
Pattern = tuple[str, int]


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


def patterns_of(rules: Sequence[tuple[str, str]]) -> list[Pattern]:
    """Return the patterns of (key, path) records, in order; the key is "" for Disallow.

    All paths are encoded at once: one by one, half a megabyte of short rules takes too long.
    """
    if not rules:
        return []
    joined = unescape("\n".join([path.rstrip(" \t\v\f") for _, path in rules]))
    if not joined.isascii():
        joined = percent_encode(joined, _ASCII)
    normalized = _normalize(joined)
    texts = normalized.split("\n")
    if _HALF_ESCAPE.search(normalized):
        narrow = _HALF_ESCAPE.sub("%25", normalized).split("\n")
        texts = [narrow[i] if key else texts[i] for i, (key, _) in enumerate(rules)]
    if "?" in joined and ("%2F" in joined or "%3F" in joined):
        texts = list(map(_plain_rule_query, texts))
    lengths = map(len, joined.split("\n"))
    ranks = [2 * length + (key != "") for length, (key, _) in zip(lengths, rules, strict=True)]
    return list(zip(texts, ranks, strict=True))


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
#: The rank for a URL whose verdict would cost too much. It denies the URL.
UNDECIDED: Final = -2


def matches(pattern: Pattern, target: Target) -> bool:
    """Return True if a pattern matches a URL."""
    text, rank = pattern
    head, star, tail = text.partition("*")
    if star:
        return target.path.startswith(head) and _tail_matches((tail, rank), target, len(head))
    if head.endswith("$"):
        return target.path == head[:-1]
    return target.path.startswith(head)


def _tail_matches(tail: Pattern, target: Target, start: int) -> bool:
    """Return True if the part of a pattern after its first "*" matches from `start` on."""
    text, rank = tail
    if target.path == target.escaped or "?" in text or "?" in target.path[:start]:
        return _contains(text, target.path, start)
    if rank % 2:
        return _contains(text, target.written, start)
    return any(_contains(text, path, start) for path in target)


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


class Tail(NamedTuple):
    """The part of a pattern after its first "*"."""

    rank: int
    text: str
    part: str  #: the text up to the next "*", which every matching URL contains


@dataclass(frozen=True, slots=True, eq=False)
class PathRules:
    """The Allow and Disallow rules of one group, indexed so that a verdict reads few of them."""

    prefixes: dict[str, int]  #: the ranks of rules without "*" and "$", by path
    exact: dict[str, int]  #: the ranks of rules that end in "$" and have no "*", by path
    wildcards: dict[str, list[Tail]]  #: by the text before the first "*", highest rank first
    prefix_lengths: list[int]
    head_lengths: list[int]  #: the lengths of the keys of `wildcards`

    @classmethod
    def of(cls, rules: Sequence[tuple[str, str]]) -> "PathRules":
        """Index (key, path) records. A path that occurs twice keeps its highest rank."""
        ranks: dict[str, int] = {}
        for text, rank in patterns_of(rules):
            if rank > ranks.get(text, 1):
                ranks[text] = rank
        wildcards: dict[str, list[Tail]] = defaultdict(list)
        for text in [path for path in ranks if "*" in path]:
            head, _, tail = text.partition("*")
            wildcards[head].append(Tail(ranks.pop(text), tail, tail.partition("*")[0].rstrip("$")))
        for tails in wildcards.values():
            tails.sort(reverse=True)
        exact = {text[:-1]: ranks.pop(text) for text in list(ranks) if text[-1:] == "$"}
        lengths = sorted(set(map(len, ranks)))
        heads = sorted(set(map(len, wildcards)))
        return cls(ranks, exact, wildcards, lengths, heads)

    def rank(self, target: Target) -> int:
        """Return the rank of the most specific rule for a URL.

        It is 0 if no rule matches, and `UNDECIDED` if the verdict would cost too much.
        """
        path, prefixes = target.path, self.prefixes
        best, size = self.exact.get(path, 0), len(path)
        for length in self.prefix_lengths:
            if length > size:
                break
            rank = prefixes.get(path[:length], 0)
            if rank > best:
                best = rank
        return self._wildcard_rank(target, best) if self.wildcards else best

    def _wildcard_rank(self, target: Target, best: int) -> int:
        longest, forms = len(target.escaped), "\n".join(set(target))
        work = _MAX_WORK if target.path == target.escaped else _MAX_WORK // len(target)
        for length in self.head_lengths:
            for rank, tail, part in self.wildcards.get(target.path[:length], ()):
                if rank <= best:
                    break
                work -= 1 + longest // 128
                if part in forms and len(tail) <= 2 * longest + 2:
                    work -= tail.count("*")
                    if work >= 0 and _tail_matches((tail, rank), target, length):
                        best = rank
                if work < 0:
                    return UNDECIDED
        return best


def index_of(rank: int, target: Target, rules: Sequence[tuple[str, str]]) -> int:
    """Return the index of the first (key, path) record with a rank that matches the URL."""
    patterns = enumerate(patterns_of(rules))
    return next(index for index, rule in patterns if rule[1] == rank and matches(rule, target))


def denies(rank: int) -> bool:
    """Return True if a rank denies the URL: the rank of a Disallow rule, or `UNDECIDED`."""
    return rank != 0 and rank % 2 == 0
