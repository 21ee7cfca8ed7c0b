"""The most specific Allow or Disallow rule for a URL (RFC 9309 2.2.2 and 2.2.3, R2).

The rule with the most octets decides; of equal ones Allow does. Protego is not used for this: it
takes up to 0.4 s for a group and 55 ms for a verdict, and counts and compares octets in other ways
than the RFC.

The paths of rules and URLs get one form first. Unreserved characters of RFC 3986 are decoded, all
other octets are percent-encoded (figure 4). Some reserved characters have a meaning and stay as
they are: "/" and "?", and in a rule "*" and a "$" at its end. Their escapes %2F, %3F, %2A and %24
are different from them (figure 6).

In a query "/" and "?" mean the same as their escapes (figure 4). A rule with a "?" is about the
query there. A rule without one may be about either: a Disallow matches the query in both forms, an
Allow only as the URL has it, so that no choice is more permissive.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ASCII: Final = frozenset(map(chr, range(128)))
_IN_PATH: Final = _UNRESERVED | frozenset("/%")
#: The characters that a query keeps; all others are percent-encoded.
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
# An Allow that ends inside an escape must not match every escape (decision 11).
_HALF_ESCAPE: Final = re.compile(r"%(?=[0-9A-F]?(?:[*\n]|\Z))")
_STARS: Final = re.compile(r"\*{2,}")

# Up to this many different octets, replacing them one after the other is faster.
_FEW: Final = 8
#: A rule's path in the form that is compared, and its rank: twice the number of its octets, plus
#: one for Allow. The highest rank wins. Octets are counted after octets beyond ASCII are encoded
#: and escapes of unreserved characters are decoded.
Pattern = tuple[str, int]


def unescape(text: str) -> str:
    """Decode the escapes of unreserved characters, and write the other escapes in upper case."""
    if "%" not in text:
        return text
    pieces = _ESCAPE.split(text)
    pieces[1::2] = map(_DECODED.__getitem__, pieces[1::2])
    return "".join(pieces)


def percent_encode(text: str, kept: frozenset[str]) -> str:
    """Percent-encode every octet of `text` that is not in `kept`."""
    octets = set(text) - kept
    if len(octets) > _FEW:
        return text.translate({ord(octet): f"%{ord(octet):02X}" for octet in octets})
    for octet in octets:
        text = text.replace(octet, f"%{ord(octet):02X}")
    return text


class Target(NamedTuple):
    """A URL's path and query in the three forms that rules are compared with.

    They differ only in the "/" and "?" of the query, and are mostly the same.
    """

    path: str  #: "/" and "?" in the query are plain characters
    written: str  #: they are as the URL has them
    escaped: str  #: they are %2F and %3F


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

    All paths are encoded at once, because encoding half a megabyte of short rules one by one takes
    too long.
    """
    if not rules:
        return []
    joined = unescape("\n".join([path.rstrip(" \t\v\f") for _, path in rules]))
    if not joined.isascii():
        joined = percent_encode(joined, _ASCII)
    compared = _comparable(joined)
    texts = compared.split("\n")
    if _HALF_ESCAPE.search(compared):
        narrow = _HALF_ESCAPE.sub("%25", compared).split("\n")
        texts = [narrow[i] if key else texts[i] for i, (key, _) in enumerate(rules)]
    if "?" in joined and ("%2F" in joined or "%3F" in joined):
        texts = list(map(_plain_rule_query, texts))
    lengths = map(len, joined.split("\n"))
    ranks = [2 * length + (key != "") for length, (key, _) in zip(lengths, rules, strict=True)]
    return list(zip(texts, ranks, strict=True))


def _comparable(paths: str) -> str:
    """Encode lines of paths; "$" stays only at the end of a line, "*" only before its end."""
    paths = percent_encode(paths, _IN_RULES) + "\n"
    if "$" in paths:
        # NUL marks them: it cannot be in the text, where it was encoded.
        paths = paths.replace("$\n", "\0\n").replace("$", "%24").replace("\0\n", "$\n")
    if "*" in paths:
        paths = _STARS.sub("*", paths).replace("*$\n", "*\n").replace("*\n", "\n")
    return paths[:-1]


def _plain_rule_query(pattern: str) -> str:
    path, mark, query = pattern.partition("?")
    return path + mark + _plain_delimiters(query) if mark else pattern


# The most searches for a part of a rule in one verdict: about 2 ms.
_WORK: Final = 12_000
#: The rank of a URL whose verdict would cost too much; it denies the URL.
UNDECIDED: Final = -2


def matches(pattern: Pattern, target: Target) -> bool:
    """Return True if one pattern matches a URL."""
    text, rank = pattern
    head, star, tail = text.partition("*")
    if star:
        return target.path.startswith(head) and _tail_matches((tail, rank), target, len(head))
    if head.endswith("$"):
        return target.path == head[:-1]
    return target.path.startswith(head)


def _tail_matches(tail: Pattern, target: Target, start: int) -> bool:
    """Return True if the part of a pattern after its first "*" is found from `start` on."""
    text, rank = tail
    if target.path == target.escaped or "?" in text or "?" in target.path[:start]:
        return _found(text, target.path, start)
    if rank % 2:
        return _found(text, target.written, start)
    return any(_found(text, path, start) for path in target)


def _found(tail: str, path: str, start: int) -> bool:
    # Taking the first match of each part is enough: it leaves the most text for the next parts.
    *parts, last = tail.split("*")
    for part in parts:
        found = path.find(part, start)
        if found < 0:
            return False
        start = found + len(part)
    if last.endswith("$"):
        return len(path) - len(last) + 1 >= start and path.endswith(last[:-1])
    return path.find(last, start) >= 0


class Tail(NamedTuple):
    """The part of a pattern after its first "*"."""

    rank: int
    text: str
    part: str  #: of it, up to the next "*": found in each URL that matches


@dataclass(frozen=True, slots=True, eq=False)
class PathRules:
    """The Allow and Disallow rules of one group, indexed so that a verdict reads few of them."""

    prefixes: dict[str, int]  #: the ranks of rules without "*" and "$", by path
    exact: dict[str, int]  #: the ranks of rules that end in "$" and have no "*", by path
    wildcards: dict[str, list[Tail]]  #: by the part before their first "*", the best first
    prefix_lengths: list[int]
    head_lengths: list[int]  #: the lengths of the keys of `wildcards`

    @classmethod
    def of(cls, rules: Sequence[tuple[str, str]]) -> "PathRules":
        """Index (key, path) records; a path that occurs twice counts once, with its best rank."""
        ranks: dict[str, int] = {}
        for text, rank in patterns_of(rules):
            if rank > ranks.get(text, 1):
                ranks[text] = rank
        wildcards: dict[str, list[Tail]] = defaultdict(list)
        for text in [each for each in ranks if "*" in each]:
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

        Zero: no rule matches. `UNDECIDED`: the verdict would cost too much.
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
        work = _WORK if target.path == target.escaped else _WORK // len(target)
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
    """Return the index of the first (key, path) record that has this rank and matches the URL."""
    patterns = enumerate(patterns_of(rules))
    return next(index for index, rule in patterns if rule[1] == rank and matches(rule, target))


def denies(rank: int) -> bool:
    """Return True if a rank denies the URL: it is that of a Disallow rule, or `UNDECIDED`."""
    return rank != 0 and rank % 2 == 0
