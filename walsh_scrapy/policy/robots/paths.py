"""Which Allow or Disallow rule decides about a URL (RFC 9309 2.2.2 and 2.2.3, R2).

The most octets win, and Allow wins ties. Protego does this part no longer: it takes up to 0.4 s to
read one group, 55 ms for one verdict, and counts and matches octets otherwise than the RFC.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from walsh_scrapy.policy.robots.spelling import Pattern, Target, patterns_of

# Beyond this many wildcard rules an index over the URL's own octets pays for itself.
_MANY: Final = 32
# What one verdict may cost, in searches of one part of a rule: about 2 ms.
_WORK: Final = 12_000
#: A rank that stands for "too costly to say", and denies.
UNDECIDED: Final = -2


def matches(pattern: Pattern, target: Target) -> bool:
    """Return whether one pattern matches a URL."""
    text, rank = pattern
    head, star, tail = text.partition("*")
    if star:
        return target.path.startswith(head) and _tail_matches((tail, rank), target, len(head))
    if head.endswith("$"):
        return target.path == head[:-1]
    return target.path.startswith(head)


def _tail_matches(tail: Pattern, target: Target, start: int) -> bool:
    """Return whether what follows a pattern's first "*" is found from `start` on."""
    text, rank = tail
    if target.path == target.escaped or "?" in text or "?" in target.path[:start]:
        return _found(text, target.path, start)
    if rank % 2:
        return _found(text, target.written, start)
    return any(_found(text, path, start) for path in target)


def _found(tail: str, path: str, start: int) -> bool:
    # Taking the first place for each part is enough: it leaves the most for the next.
    *parts, last = tail.split("*")
    for part in parts:
        found = path.find(part, start)
        if found < 0:
            return False
        start = found + len(part)
    if last.endswith("$"):
        return len(path) - len(last) + 1 >= start and path.endswith(last[:-1])
    return path.find(last, start) >= 0


#: Wildcard rules: by what stands before their first "*", then by the two characters after it.
Wildcards = dict[str, dict[str, list[Pattern]]]


@dataclass(frozen=True, slots=True, eq=False)
class PathRules:
    """The Allow and Disallow rules of one group, arranged so that a verdict reads few of them."""

    plain: dict[str, int]
    exact: dict[str, int]
    wildcards: Wildcards
    lengths: list[int]
    heads: list[int]
    many: bool

    @classmethod
    def of(cls, rules: Sequence[tuple[str, str]]) -> "PathRules":
        """Arrange (key, path) records; a path written twice counts once, with its best rank."""
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
        """Return the rank of the rule that decides about a URL.

        Zero: no rule matches. `UNDECIDED`: the rules cost too much to read for this URL.
        """
        path, plain = target.path, self.plain
        best, size = self.exact.get(path, 0), len(path)
        for length in self.lengths:
            if length > size:
                break
            rank = plain.get(path[:length], 0)
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
        """Yield the wildcard rules whose beginning the URL has: length of the head, the rest."""
        pieces = _pieces(target) if self.many else set()
        for length in self.heads:
            tails = self.wildcards.get(target.path[:length], {})
            keys = tails.keys() & pieces if self.many else tails
            for key in keys:
                for tail in tails[key]:
                    yield length, tail


def place_of(rank: int, target: Target, rules: Sequence[tuple[str, str]]) -> int:
    """Return which of the (key, path) records has this rank and matches."""
    patterns = enumerate(patterns_of(rules))
    return next(at for at, rule in patterns if rule[1] == rank and matches(rule, target))


def denies(rank: int) -> bool:
    """Return whether a rank forbids the URL: it is the rank of a Disallow, or undecided."""
    return rank != 0 and rank % 2 == 0


def _pieces(target: Target) -> set[str]:
    """Return the beginnings (see `Wildcards`) of whatever can be found in a URL."""
    pieces = set()
    for path in set(target):
        pieces.update([octet + end for octet in set(path) for end in ("", "*", "$")])
        pieces.update([path[i : i + 2] for i in range(len(path) - 1)])
    return pieces
