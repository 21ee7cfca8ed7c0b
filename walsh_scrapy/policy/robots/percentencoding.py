"""One form for the paths of rules and URLs, so that they can be compared (RFC 9309 2.2.2, 2.2.3).

Unreserved characters of RFC 3986 are decoded, all other octets are percent-encoded (figure 4).
Some reserved characters have a meaning and stay as they are: "/" and "?", and in a rule "*" and a
"$" at its end. Their escapes %2F, %3F, %2A and %24 are different from them (figure 6).

In a query "/" and "?" mean the same as their escapes (figure 4). A rule with a "?" is about the
query there. A rule without one may be about either: a Disallow matches the query in both forms, an
Allow only as the URL has it, so that no choice is more permissive.
"""

import re
from collections.abc import Sequence
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


def unescaped(text: str) -> str:
    """Decode the escapes of unreserved characters, and write the other escapes in upper case."""
    if "%" not in text:
        return text
    pieces = _ESCAPE.split(text)
    pieces[1::2] = map(_DECODED.__getitem__, pieces[1::2])
    return "".join(pieces)


def encoded(text: str, kept: frozenset[str]) -> str:
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
    path = encoded(unescaped(path), _IN_PATH) + mark
    written = encoded(unescaped(query), IN_QUERY)
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
    joined = unescaped("\n".join([path.rstrip(" \t\v\f") for _, path in rules]))
    if not joined.isascii():
        joined = encoded(joined, _ASCII)
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
    paths = encoded(paths, _IN_RULES) + "\n"
    if "$" in paths:
        # NUL marks them: it cannot be in the text, where it was encoded.
        paths = paths.replace("$\n", "\0\n").replace("$", "%24").replace("\0\n", "$\n")
    if "*" in paths:
        paths = _STARS.sub("*", paths).replace("*$\n", "*\n").replace("*\n", "\n")
    return paths[:-1]


def _plain_rule_query(pattern: str) -> str:
    path, mark, query = pattern.partition("?")
    return path + mark + _plain_delimiters(query) if mark else pattern
