r"""Protego, Scrapy's parser, as a second reader of robots.txt (decision 35).

`walsh mayfetch` shows where its answer differs from that of `RobotsTxt`. Protego takes long for
hostile files, selects groups in another way than RFC 9309, and counts some octets otherwise. So its
answer is a fault of a reader only where a file and a URL leave both readers one reading
(`SecondReader.can_compare`). Whether they are comparable is found here, without the modules of
`RobotsTxt`.

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

#: Octets, rules, and rules times User-agent lines of a file that can be compared: Protego keeps
#: the rules of each of those lines, and reads all of them for a verdict.
_MOST_OCTETS: Final = 100_000
_MOST_RULES: Final = 2_000
_MOST_PAIRS: Final = 50_000
#: Line ends that only one of the two readers knows.
_OTHER_LINE_ENDS: Final = re.compile("[\0\x0b\x0c\x1c-\x1e\x85\u2028\u2029\ufeff]")
_RECORD: Final = re.compile(r"[ \t]*([A-Za-z][A-Za-z-]*)[ \t]*:[ \t]*([^#]*)")
_EMPTY: Final = re.compile(r"[ \t]*(?:#.*)?")
_TOKEN: Final = re.compile(r"[A-Za-z_-]+")
#: Keys that one reader takes for another one (`disalow`, `user-agents`).
_LIKE_OTHERS: Final = re.compile(r"user|allow|disal|dissal|diasl|site")
#: User-agent lines with other records between them: the readers group them in two ways.
_SPLIT_STACK: Final = re.compile("uo+u")
#: A path, and a rule, of octets that nobody encodes.
_PLAIN_URL: Final = re.compile(
    r"https?://[^/?#]*(?:/[A-Za-z0-9._~/=-]*)?(\?[A-Za-z0-9._~=&-]*)?", re.IGNORECASE
)
_PLAIN_RULE: Final = re.compile(r"[A-Za-z0-9._~/=*-]+\$?")


class _Shape(NamedTuple):
    """The facts that decide whether the two readings of a file can be compared."""

    is_plain: bool  #: each line means one thing, and they are few
    names: frozenset[str]  #: the values of User-agent, in lower case
    is_query_plain: bool  #: and so do its rules for URLs with a query


_STRANGE: Final = _Shape(is_plain=False, names=frozenset(), is_query_plain=False)


class SecondReader:
    """One robots.txt as Protego reads it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def allows(self, url: str, token: str) -> bool | None:
        """Return whether Protego lets a bot fetch a URL; None if it cannot read it."""
        try:
            return bool(self._protego.can_fetch(url, token))
        except ValueError:  # a number or a URL that it cannot read
            return None

    def can_compare(self, url: str, token: str) -> bool:
        """Return True if RFC 9309 has one reading for this, which is Protego's.

        Then a denial of Protego is right. The reverse need not be: `Allow: /a$` lets it fetch
        `/a$x`, and `Allow: /index.html` `/` as well. It takes little time, whatever the file is.
        """
        shape, plain = self._shape, _PLAIN_URL.fullmatch(url)
        if plain is None or not shape.is_plain or not _TOKEN.fullmatch(token):
            return False
        is_whole = all(_is_read_alike(name, token.lower()) for name in shape.names)
        return is_whole and (plain[1] is None or shape.is_query_plain)

    @cached_property
    def _protego(self) -> Protego:
        return Protego.parse(self._body.decode("utf-8", errors="ignore"))  # as Scrapy reads it

    @cached_property
    def _shape(self) -> _Shape:
        if len(self._body) > _MOST_OCTETS:
            return _STRANGE
        try:
            text = self._body.decode("utf-8")
        except UnicodeDecodeError:
            return _STRANGE
        return _STRANGE if _OTHER_LINE_ENDS.search(text) else _shape_of(text.splitlines())


def _shape_of(lines: list[str]) -> _Shape:
    kinds, names, allows, disallows = "", list[str](), list[str](), list[str]()
    for line in lines:
        if _EMPTY.fullmatch(line):
            continue
        record = _RECORD.match(line)
        if record is None:
            return _STRANGE
        key, value = record[1].lower(), record[2].strip()
        if key == "user-agent":
            names.append(value.lower())
            kinds += "u"
        elif key in ("allow", "disallow"):
            (allows if key == "allow" else disallows).append(value)
            kinds += "r"
        elif key not in ("sitemap", "host"):  # these are about the whole file
            if _LIKE_OTHERS.match(key):
                return _STRANGE
            kinds += "o"
    count = len(allows) + len(disallows)
    is_long = count > _MOST_RULES or count * len(names) > _MOST_PAIRS
    if is_long or _SPLIT_STACK.search(kinds):
        return _STRANGE
    is_query_plain = all(not rule or _PLAIN_RULE.fullmatch(rule) for rule in (*allows, *disallows))
    # An octet that is encoded counts as one or as three. That decides between Allow and Disallow.
    if not any(allows):
        is_query_plain = not any("%" in rule or not rule.isascii() for rule in disallows)
    return _Shape(True, frozenset(names), is_query_plain)


def _is_read_alike(name: str, token: str) -> bool:
    """Return True if both readers take a User-agent value for ours, or both do not."""
    if name in ("*", token):
        return True
    whole = _TOKEN.fullmatch(name)
    begin = _TOKEN.match(name)
    if whole is None:
        return bool(name) and "*" not in name and not (begin and token.startswith(begin[0]))
    return not token.startswith(name) or "-" in token[len(name) - 1 : len(name) + 1]
