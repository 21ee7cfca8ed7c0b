"""Groups of Robot-version 2.x: rules in order, with shell patterns (decision 13).

The first rule that matches decides. This reading is in addition to that of RFC 9309: it can deny
more URLs, and cannot allow more. Where the extended standard 2.0 contradicts itself, a comment that
begins with "Choice:" says how it is read here.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from walsh_scrapy.policy.robots.matching import (
    IN_QUERY,
    UNDECIDED,
    Target,
    matches,
    patterns_of,
    percent_encode,
    unescape,
)

# What one verdict may cost, in characters compared: about 2 ms.
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

        Choice: the first match decides, as the newest text says; an older text has explicit rules
        go before those with a wildcard. Choice: a path that no rule matches is allowed, even if all
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
    """Match a shell pattern. After a mismatch only the last "*" has to take one more octet."""
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
