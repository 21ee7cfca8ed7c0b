r"""White space in a robots.txt that is neither a space nor a tab, such as a hard space.

Some readers strip it from names and values, others take it for a part of them, so it is read in
all ways (decision 11). In a stripped text blanks take its place: all offsets stay the same.

>>> strip("\nDisallow: /private/\xc2\xa0").texts
('\nDisallow: /private/  ',)
"""

import re
from dataclasses import dataclass
from typing import Final

#: What `str.isspace` knows, without blanks and the ends of lines. The last two are octets that are
#: not UTF-8, as Python decodes them with `surrogateescape`; in Latin-1 they are white space.
SPACES: Final = (
    "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\udc85\udca0"
)
#: Those of a text that is ASCII.
SPACES_IN_ASCII: Final = "\x1c\x1d\x1e\x1f"
_EDGES: Final = f"\n \t\v\f{SPACES}"
_SPACE: Final = re.compile(f"[{SPACES}]")
#: The maximum number of lines with such characters that are read in both ways.
MAX_LINES: Final = 2_000

#: A part of the text: the offsets of its start and of its end.
Span = tuple[int, int]


def _octets(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


_TO_BLANKS: Final = str.maketrans({space: " " * _octets(space) for space in SPACES})


@dataclass(frozen=True, slots=True)
class Stripped:
    """A text as readers see it that strip white space."""

    #: First the one whose names and values have blanks in the place of all white space, then the
    #: one that is stripped at their ends only, if it differs. None if there is nothing to strip.
    texts: tuple[str, ...] = ()
    lines: tuple[Span, ...] = ()  #: the lines that differ, each with its line feed
    is_complete: bool = True  #: False if more than `MAX_LINES` may differ


def strip(text: str) -> Stripped:
    """Strip a text in which each character is one octet, and each line begins with a line feed.

    Comments stay as they are.
    """
    decoded = text.encode("latin-1").decode("utf-8", "surrogateescape")
    pieces: list[str] = []  # of the first text
    other_pieces: list[str] = []  # of the second text
    lines: list[Span] = []
    candidates = 0
    offset = 0  # in octets
    end = copied = 0
    while space := _SPACE.search(decoded, end):
        start = decoded.rfind("\n", 0, space.start())
        end = decoded.find("\n", space.end())
        end = len(decoded) if end < 0 else end
        line = decoded[start:end]
        content, mark, comment = line.partition("#")
        if len(content) <= space.start() - start:
            continue
        candidates += 1
        if candidates > MAX_LINES:
            return Stripped(is_complete=False)
        stripped = _blank_record(content) + mark + comment
        before = decoded[copied:start]
        pieces += before, stripped
        other_pieces += before, _strip_record(content), mark, comment
        copied = end
        offset += _octets(before)
        size = _octets(line)
        if stripped != line:
            lines.append((offset, offset + size))
        offset += size
    if not lines:
        return Stripped()
    texts = []
    for parts in (pieces, other_pieces):
        octets = "".join([*parts, decoded[copied:]]).encode("utf-8", "surrogateescape")
        texts.append(octets.decode("latin-1"))
    return Stripped(tuple(dict.fromkeys(texts)), tuple(lines))


def _strip_record(content: str) -> str:
    """Strip both ends of the name and the value of a record."""
    name, colon, value = content.partition(":")
    return _strip_edges(name) + colon + _strip_edges(value)


def _blank_record(content: str) -> str:
    """Make all white space of a record blank, but not that inside of the value of a rule."""
    name, colon, value = content.partition(":")
    name = name.translate(_TO_BLANKS)
    is_rule = name.lstrip("\n \t\v\f")[:1] in "AaDd"  # Allow or Disallow, however it is spelled
    value = _strip_edges(value) if is_rule else value.translate(_TO_BLANKS)
    return name + colon + value


def _strip_edges(text: str) -> str:
    middle = text.strip(_EDGES)
    if not middle:
        return text.translate(_TO_BLANKS)
    before, _, after = text.partition(middle)
    return before.translate(_TO_BLANKS) + middle + after.translate(_TO_BLANKS)


def has_odd_edges(path: str) -> bool:
    """Return True if white space other than blanks is at an end of a path, in octets."""
    decoded = path.encode("latin-1").decode("utf-8", "surrogateescape")
    return _strip_edges(decoded) != decoded
