"""Words for operators: counts and durations (`2 domains`, `2 h 5 min`), and strangers' text."""

import re
import unicodedata
from html import unescape
from typing import Final

_STEPS: Final = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))

# Controls, surrogates and line separators: a terminal obeys them, or breaks the line.
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Marks of writing direction: they can show a line in another order than it has.
_DIRECTION_MARKS: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)

# The reference of no character: Python refuses to read so many digits.
_ENDLESS: Final = re.compile(r"&#[0-9]{1000,}+;?")


def without_references(text: str) -> str:
    """Return text of HTML with characters for their references: `&` for `&amp;`. Never raises."""
    return unescape(_ENDLESS.sub("\ufffd", text))


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun; ``plural`` is ``singular`` with an s unless given.

    `counted(1, "entry", "entries")` is `1 entry`.
    """
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def cut(text: str, most: int) -> str:
    """Return the text, of which at most ``most`` characters are shown, with "…" at a cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def and_more(number: int) -> str:
    """Return the phrase for what is left out of a list: `… and 7,990 more`."""
    return f"… and {number:,} more"


def format_seconds(seconds: float) -> str:
    """Format a duration for operators, in its two largest units; "0 s" if negative or NaN.

    >>> format_seconds(7512), format_seconds(0.5)
    ('2 h 5 min', '0.5 s')
    """
    if not seconds >= 0:
        return "0 s"
    if seconds < 10:
        return f"{round(seconds, 1):g} s"
    if seconds == float("inf"):
        return "forever"
    left, parts = round(seconds), list[str]()
    for unit, size in _STEPS:
        if count := left // size:
            parts.append(f"{count} {unit}")
        elif parts:
            break
        left %= size
    return " ".join(parts[:2])


def printable(text: str) -> str:
    r"""Return a stranger's text safe for a terminal and a log, on one line: `\x1b`, `\n`, `\u202e`.

    Control characters, line separators, lone surrogates and direction marks are escaped.
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if unicodedata.category(character) in _UNSAFE_CATEGORIES or character in _DIRECTION_MARKS:
        return character.encode("unicode_escape").decode("ascii")
    return character


def storable(text: str) -> str:
    """Replace what not every database can keep: NUL (PostgreSQL) and lone surrogates (UTF-8).

    JSON and headers of strangers may contain both.
    """
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
