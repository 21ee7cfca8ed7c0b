"""How the paths of rules and URLs are spelled to be compared (RFC 9309 2.2.2 and 2.2.3, R2).

Both sides are brought to one spelling. Octets that are no unreserved character of RFC 3986
are percent-encoded, and encoded unreserved ones are not (figure 4). Only "/", "?", and in a rule
"*" and a "$" at its end, keep their meaning when they stand there plain; %2F, %2A and %24 are the
characters themselves (figure 6). In a query "/" and "?" have no meaning to lose (figure 4), but
only a rule with a "?" says that it means the query: without one, a Disallow matches either
spelling, and an Allow the one that the URL has.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ASCII: Final = frozenset(map(chr, range(128)))
_IN_PATH: Final = _UNRESERVED | frozenset("/%")
#: What a query keeps as it is; everything else there is percent-encoded.
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

# Up to this many different octets, replacing one after the other is the faster way.
_FEW: Final = 8
#: A rule's path as it is compared, and its rank: twice its octets, one more for Allow. Octets are
#: counted with what is no ASCII encoded, and with escapes of unreserved characters as one.
Pattern = tuple[str, int]


def unescaped(text: str) -> str:
    """Decode the escapes of unreserved characters and write the others in upper case."""
    if "%" not in text:
        return text
    pieces = _ESCAPE.split(text)
    pieces[1::2] = map(_DECODED.__getitem__, pieces[1::2])
    return "".join(pieces)


def encoded(text: str, kept: frozenset[str]) -> str:
    """Percent-encode every octet of `text` that is not `kept`."""
    octets = set(text) - kept
    if len(octets) > _FEW:
        return text.translate({ord(octet): f"%{ord(octet):02X}" for octet in octets})
    for octet in octets:
        text = text.replace(octet, f"%{ord(octet):02X}")
    return text


class Target(NamedTuple):
    """A URL's path and query in the spellings that are compared; mostly they are the same.

    Delimiters in the query are plain in `path`, as the URL has them in `written`, else escaped.
    """

    path: str
    written: str
    escaped: str


def target_of(url: str) -> Target:
    """Return what rules are matched against in a full URL or a bare path: never the fragment."""
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
    return Target(path + _undelimited(written), path + written, path + escaped)


def _undelimited(query: str) -> str:
    return query.replace("%2F", "/").replace("%3F", "?")


def patterns_of(rules: Sequence[tuple[str, str]]) -> list[Pattern]:
    """Return the patterns of (key, path) records, in order; an empty key is Disallow.

    All paths are spelled at once: half a megabyte of short rules would cost too much one by one.
    """
    if not rules:
        return []
    joined = unescaped("\n".join([path.rstrip(" \t\v\f") for _, path in rules]))
    if not joined.isascii():
        joined = encoded(joined, _ASCII)
    compared = _compared(joined)
    texts = compared.split("\n")
    if _HALF_ESCAPE.search(compared):
        narrow = _HALF_ESCAPE.sub("%25", compared).split("\n")
        texts = [narrow[i] if key else texts[i] for i, (key, _) in enumerate(rules)]
    if "?" in joined and ("%2F" in joined or "%3F" in joined):
        texts = list(map(_undelimited_rule, texts))
    lengths = map(len, joined.split("\n"))
    ranks = [2 * length + (key != "") for length, (key, _) in zip(lengths, rules, strict=True)]
    return list(zip(texts, ranks, strict=True))


def _compared(paths: str) -> str:
    """Spell lines of paths for comparison: "$" is left only where it ends one, "*" only inside."""
    paths = encoded(paths, _IN_RULES) + "\n"
    if "$" in paths:
        # NUL is free for this: it was encoded above.
        paths = paths.replace("$\n", "\0\n").replace("$", "%24").replace("\0\n", "$\n")
    if "*" in paths:
        paths = _STARS.sub("*", paths).replace("*$\n", "*\n").replace("*\n", "\n")
    return paths[:-1]


def _undelimited_rule(pattern: str) -> str:
    path, mark, query = pattern.partition("?")
    return path + mark + _undelimited(query) if mark else pattern
