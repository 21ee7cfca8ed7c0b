r"""Protego, Scrapy's parser, as a second reader of robots.txt.

`walsh mayfetch` shows where Protego's answer differs from that of `RobotsTxt`. Protego takes long
for hostile files, selects groups in another way than RFC 9309, and counts some octets differently.
A difference is a bug of one of the readers only if RFC 9309 allows a single reading of the file and
the URL; `SecondReader.can_compare` decides that. This module imports nothing of `RobotsTxt`, so
that both readers cannot share a bug.

>>> reader = SecondReader(b"User-agent: *\nDisallow: /private/*/draft\n")
>>> reader.can_compare("https://a.example/private/1/2/draft", "Walsh-Research")
True
>>> reader.allows("https://a.example/private/1/2/draft", "Walsh-Research")
False
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final, NamedTuple

from protego import Protego

#: The limits of a file that can be compared: its octets, its rules, and its rules times its
#: User-agent lines, because Protego keeps the rules once per such line and reads all of them.
_MAX_OCTETS: Final = 100_000
_MAX_RULES: Final = 2_000
_MAX_PAIRS: Final = 50_000
#: Line ends that only one of the two readers treats as line ends.
_OTHER_LINE_ENDS: Final = re.compile("[\0\x0b\x0c\x1c-\x1e\x85\u2028\u2029\ufeff]")
_RECORD: Final = re.compile(r"[ \t]*([A-Za-z][A-Za-z-]*)[ \t]*:[ \t]*([^#]*)")
_EMPTY: Final = re.compile(r"[ \t]*(?:#.*)?")
_TOKEN: Final = re.compile(r"[A-Za-z_-]+")
#: Misspelled keys that one reader accepts and the other does not (`disalow`, `user-agents`).
_SIMILAR_KEYS: Final = re.compile(r"user|allow|disal|dissal|diasl|site")
#: User-agent lines with other records between them, which the two readers group differently.
_SPLIT_STACK: Final = re.compile("uo+u")
#: A path, and a rule, without characters that may be percent-encoded.
_PLAIN_URL: Final = re.compile(
    r"https?://[^/?#]*(?:/[A-Za-z0-9._~/=-]*)?(\?[A-Za-z0-9._~=&-]*)?", re.IGNORECASE
)
_PLAIN_RULE: Final = re.compile(r"[A-Za-z0-9._~/=*-]+\$?")


class _Ambiguity(NamedTuple):
    """The facts about a file that decide whether two readings of it can be compared."""

    is_plain: bool  #: each line has one meaning, and there are few lines
    names: frozenset[str]  #: the values of User-agent, in lower case
    is_query_plain: bool  #: the rules have one meaning for URLs with a query too


_AMBIGUOUS: Final = _Ambiguity(is_plain=False, names=frozenset(), is_query_plain=False)


class SecondReader:
    """A robots.txt as Protego reads it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def allows(self, url: str, token: str) -> bool | None:
        """Return Protego's verdict for a bot; None if Protego cannot read the file or the URL."""
        try:
            return bool(self._protego.can_fetch(url, token))
        except ValueError:  # a number or a URL that Protego cannot read
            return None

    def can_compare(self, url: str, token: str) -> bool:
        """Return True if RFC 9309 allows a single reading, which is Protego's.

        Then a denial by Protego is right. A permission need not be: Protego takes `Allow: /a$` for
        `/a$x` too, and `Allow: /index.html` for `/`. Takes little time, even for hostile files.
        """
        ambiguity = self._ambiguity
        plain_url = _PLAIN_URL.fullmatch(url)
        if plain_url is None or not ambiguity.is_plain or not _TOKEN.fullmatch(token):
            return False
        has_one_group = all(_is_read_alike(name, token.lower()) for name in ambiguity.names)
        return has_one_group and (plain_url[1] is None or ambiguity.is_query_plain)

    @cached_property
    def _protego(self) -> Protego:
        return Protego.parse(self._body.decode("utf-8", errors="ignore"))  # as Scrapy reads it

    @cached_property
    def _ambiguity(self) -> _Ambiguity:
        if len(self._body) > _MAX_OCTETS:
            return _AMBIGUOUS
        try:
            text = self._body.decode("utf-8")
        except UnicodeDecodeError:
            return _AMBIGUOUS
        return _AMBIGUOUS if _OTHER_LINE_ENDS.search(text) else _find_ambiguity(text.splitlines())


def _find_ambiguity(lines: list[str]) -> _Ambiguity:
    kinds = ""
    names: list[str] = []
    allows: list[str] = []
    disallows: list[str] = []
    for line in lines:
        if _EMPTY.fullmatch(line):
            continue
        record = _RECORD.match(line)
        if record is None:
            return _AMBIGUOUS
        key = record[1].lower()
        value = record[2].strip()
        if key == "user-agent":
            names.append(value.lower())
            kinds += "u"
        elif key in ("allow", "disallow"):
            (allows if key == "allow" else disallows).append(value)
            kinds += "r"
        elif key not in ("sitemap", "host"):  # these are about the whole file
            if _SIMILAR_KEYS.match(key):
                return _AMBIGUOUS
            kinds += "o"
    count = len(allows) + len(disallows)
    is_long = count > _MAX_RULES or count * len(names) > _MAX_PAIRS
    if is_long or _SPLIT_STACK.search(kinds):
        return _AMBIGUOUS
    is_query_plain = all(not rule or _PLAIN_RULE.fullmatch(rule) for rule in (*allows, *disallows))
    # An encoded octet may count as one or three, which matters only between Allow and Disallow.
    if not any(allows):
        is_query_plain = not any("%" in rule or not rule.isascii() for rule in disallows)
    return _Ambiguity(True, frozenset(names), is_query_plain)


def _is_read_alike(name: str, token: str) -> bool:
    """Return True if both readers agree whether a User-agent value names the bot of a token."""
    if name in ("*", token):
        return True
    whole_token = _TOKEN.fullmatch(name)
    prefix = _TOKEN.match(name)
    if whole_token is None:
        return bool(name) and "*" not in name and not (prefix and token.startswith(prefix[0]))
    return not token.startswith(name) or "-" in token[len(name) - 1 : len(name) + 1]
