"""The most specific Allow or Disallow rule for a URL (RFC 9309 2.2.2 and 2.2.3, R2).

The rule with the most octets decides; of equal ones Allow does. Protego is not used for this: it
takes up to 0.4 s for a group and 55 ms for a verdict, and counts and compares octets in other ways
than the RFC.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from walsh_scrapy.policy.robots.percentencoding import Pattern, Target, patterns_of

# With more wildcard rules than this, collecting the URL's own pairs of octets saves time.
_MANY: Final = 32
# What one verdict may cost, in searches for a part of a rule: about 2 ms.
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


#: Wildcard rules by the part before their first "*", then by the two characters after it.
Wildcards = dict[str, dict[str, list[Pattern]]]


@dataclass(frozen=True, slots=True, eq=False)
class PathRules:
    """The Allow and Disallow rules of one group, indexed so that a verdict reads few of them."""

    prefixes: dict[str, int]  #: the ranks of rules without "*" and "$", by path
    exact: dict[str, int]  #: the ranks of rules that end in "$" and have no "*", by path
    wildcards: Wildcards
    prefix_lengths: list[int]
    head_lengths: list[int]  #: the lengths of the keys of `wildcards`
    has_many_wildcards: bool

    @classmethod
    def of(cls, rules: Sequence[tuple[str, str]]) -> "PathRules":
        """Index (key, path) records; a path that occurs twice counts once, with its best rank."""
        ranks: dict[str, int] = {}
        for text, rank in patterns_of(rules):
            if rank > ranks.get(text, 1):
                ranks[text] = rank
        starred = [text for text in ranks if "*" in text]
        wildcards: Wildcards = defaultdict(lambda: defaultdict(list))
        for text in starred:
            head, _, tail = text.partition("*")
            wildcards[head][tail[:2]].append((tail, ranks.pop(text)))
        exact = {text[:-1]: ranks.pop(text) for text in list(ranks) if text[-1:] == "$"}
        lengths = sorted(set(map(len, ranks)))
        heads = sorted(set(map(len, wildcards)))
        return cls(ranks, exact, wildcards, lengths, heads, len(starred) > _MANY)

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
        longest = len(target.escaped)
        work = _WORK if target.path == target.escaped else _WORK // len(target)
        for head, tail in self._candidates(target):
            if tail[1] > best and len(tail[0]) <= 2 * longest + 2:
                work -= 1 + tail[0].count("*") + longest // 128
                if work < 0:
                    return UNDECIDED
                if _tail_matches(tail, target, head):
                    best = tail[1]
        return best

    def _candidates(self, target: Target) -> Iterator[tuple[int, Pattern]]:
        """Yield the wildcard rules whose head the URL begins with: the head's length, the tail."""
        pairs = _pairs(target) if self.has_many_wildcards else set()
        for length in self.head_lengths:
            tails = self.wildcards.get(target.path[:length], {})
            keys = tails.keys() & pairs if self.has_many_wildcards else tails
            for key in keys:
                for tail in tails[key]:
                    yield length, tail


def index_of(rank: int, target: Target, rules: Sequence[tuple[str, str]]) -> int:
    """Return the index of the first (key, path) record that has this rank and matches the URL."""
    patterns = enumerate(patterns_of(rules))
    return next(index for index, rule in patterns if rule[1] == rank and matches(rule, target))


def denies(rank: int) -> bool:
    """Return True if a rank denies the URL: it is that of a Disallow rule, or `UNDECIDED`."""
    return rank != 0 and rank % 2 == 0


def _pairs(target: Target) -> set[str]:
    """Return the keys (see `Wildcards`) of all tails that can be found in a URL."""
    pairs = set()
    for path in set(target):
        pairs.update([octet + end for octet in set(path) for end in ("", "*", "$")])
        pairs.update([path[i : i + 2] for i in range(len(path) - 1)])
    return pairs
