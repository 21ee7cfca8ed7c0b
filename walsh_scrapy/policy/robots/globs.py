"""The rules of a group of Robot-version 2.x, read as that version reads them (decision 13).

The document contradicts itself where its old and its new text meet; each choice is one comment
that begins with "Choice:". This reading can only deny what RFC 9309 would allow.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from walsh_scrapy.policy.robots.paths import UNDECIDED, matches
from walsh_scrapy.policy.robots.spelling import IN_QUERY, Target, encoded, patterns_of, unescaped

# What one verdict may cost, in characters compared: about 2 ms.
_WORK: Final = 12_000
# More rules than this are not read in order: nobody writes them, and every URL is then undecided.
_MOST: Final = 2_000
_VERSION_2: Final = re.compile(r"2(?![0-9])")
# Choice: a bracket that is not closed within 64 octets is the character itself.
_TOKEN: Final = re.compile(r"%[0-9A-F]{2}|\*|\[[!^]?\]?[^\]]{0,64}\]|.", re.DOTALL)
_OCTET: Final = re.compile(r"%[0-9A-F]{2}|.", re.DOTALL)
_RANGE: Final = re.compile(r"(.)-(.)|(.)", re.DOTALL)


class _TooCostlyError(Exception):
    """The rules of a group cost more to read than one verdict may."""


def is_version_2(value: str) -> bool:
    """Return whether a Robot-version value is 2.x.

    Choice: odd (experimental) minor numbers, third numbers and a record that does not directly
    follow its User-agent line count as well: a group that is read so can only be stricter.
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
    """One rule of a 2.x group: `place` is its number there, `anchored` what RFC 9309 calls it.

    Choice: "*" and "?" match "/" too, as in a shell's `case`: the examples mean pages in folders.
    Choice: "$" has no meaning, and a rule without "*", "?" or "[" is the whole path and query.
    """

    place: int
    allow: bool
    path: str
    anchored: str

    @property
    def explicit(self) -> bool:
        """Return whether the rule is an exact string."""
        return not any(wild in self.path for wild in "*?[")

    @property
    def catches_all(self) -> bool:
        """Return whether the rule is "nothing else", the last that an ordered reading can reach."""
        return not self.allow and self.path in ("*", "/*")

    def matches(self, target: Target, work: _Work) -> bool:
        """Return whether the rule is about a URL."""
        if "?" in self.path or "[" in self.path:
            return _glob_matches(self.path, target.path, work)
        longest = len(target.escaped)
        work.spend(1 + self.anchored.count("*") + longest // 128)
        return len(self.anchored) <= 2 * longest + 3 and matches(
            (self.anchored, self.allow), target
        )


@dataclass(frozen=True, slots=True)
class OrderedRules:
    """The rules of a 2.x group in order, split at the first that catches everything."""

    before: tuple[GlobRule, ...] = ()
    behind: tuple[GlobRule, ...] = ()
    too_many: bool = False

    @classmethod
    def of(cls, rules: Sequence[tuple[str, str]]) -> "OrderedRules":
        """Read (key, path) records; an empty key is Disallow, an empty path matches nothing."""
        if len(rules) > _MOST:
            return cls(too_many=True)
        paths = [(key, path.rstrip(" \t\v\f")) for key, path in rules]
        patterns = patterns_of([(key, path.replace("$", "%24") + "$") for key, path in paths])
        globs = [
            GlobRule(place, bool(key), path, anchored)
            for place, ((key, path), (anchored, _)) in enumerate(zip(paths, patterns, strict=True))
            if path
        ]
        catching = (at for at, glob in enumerate(globs, 1) if glob.catches_all)
        split = next(catching, len(globs))
        before, behind = tuple(globs[:split]), tuple(globs[split:])
        if behind:
            # Choice: in order, nothing behind "Disallow: *" could ever count, yet the document's
            # example means it to. It counts before the wildcard Allows, after the explicit ones.
            behind = (*(glob for glob in before if glob.allow and glob.explicit), *behind)
        return cls(before, behind)

    def denying(self, target: Target) -> int | None:
        """Return the place of the rule that forbids a URL; None if it is allowed.

        `UNDECIDED` forbids as well: the rules would cost too much to read.

        Choice: the first match decides, as the newest text says, not explicit before wildcard.
        Choice: a path that no rule covers is allowed, even if there are only Allow rules.
        """
        work = _Work()
        if self.too_many:
            return UNDECIDED
        try:
            firsts = (_first(rules, target, work) for rules in (self.before, self.behind))
            return next((glob.place for glob in firsts if glob and not glob.allow), None)
        except _TooCostlyError:
            return UNDECIDED


def _first(rules: Iterable[GlobRule], target: Target, work: _Work) -> GlobRule | None:
    return next((glob for glob in rules if glob.matches(target, work)), None)


def _glob_matches(glob: str, path: str, work: _Work) -> bool:
    """Match a shell pattern; after a mismatch, only the last "*" need take one octet more."""
    work.spend(len(glob))
    tokens = [_octets(piece) for piece in _TOKEN.findall(_spelled(glob))]
    octets = _OCTET.findall(path)
    token = octet = resumed = 0
    star = -1
    while octet < len(octets):
        work.spend(1)
        if token < len(tokens) and not tokens[token]:
            star, resumed = token, octet
            token += 1
        elif token < len(tokens) and octets[octet] in tokens[token]:
            token, octet = token + 1, octet + 1
        elif star >= 0:
            resumed += 1
            token, octet = star + 1, resumed
        else:
            return False
    return not any(tokens[token:])


def _spelled(glob: str) -> str:
    return encoded(unescaped(glob), frozenset(map(chr, range(128))))


@lru_cache(maxsize=1024)
def _octets(piece: str) -> frozenset[str]:
    """Return what one piece of a pattern stands for, in every spelling; nothing for "*"."""
    if piece == "*":
        return frozenset()
    if piece == "?":
        return _spellings(range(256))
    if len(piece) > 1 and piece.startswith("["):
        return _spellings(_class(piece[1:-1]))
    return frozenset({piece if len(piece) > 1 else encoded(piece, IN_QUERY)})


def _class(text: str) -> Iterable[int]:
    """Return the octets of a bracket's inside; "!" (or "^") in front means all others."""
    negated = text.startswith(("!", "^"))
    named = {
        octet
        for low, high, single in _RANGE.findall(text[negated:])
        for octet in range(ord(low or single), ord(high or single) + 1)
    }
    return set(range(256)) - named if negated else named


def _spellings(octets: Iterable[int]) -> frozenset[str]:
    return frozenset(
        spelling
        for octet in octets
        for spelling in (f"%{octet:02X}", encoded(chr(octet), IN_QUERY))
    )
