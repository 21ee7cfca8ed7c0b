"""Text of other people, made safe for a terminal, a pipe and grep."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# Controls, surrogates and line separators: a terminal obeys them, or breaks the line.
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Marks of writing direction: they can show a line in another order than it has.
_DIRECTION_MARKS: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def printable(text: str) -> str:
    r"""Return the text with control characters and direction marks escaped (`\x1b`)."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def columns(rows: Sequence[Sequence[str]], widest: int = 60) -> Iterator[str]:
    """Yield a line for each row, with the cells of a column aligned.

    ``widest`` is the largest width, in terminal cells, that a column is padded to. Nothing is cut
    or wrapped, so a longer cell moves the rest of its line to the right.
    """
    widths = [min(max(map(cell_len, cells)), widest) for cells in zip(*rows, strict=True)]
    for row in rows:
        padded = (
            cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)
        )
        yield "  ".join(padded).rstrip()


def json_array(objects: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Yield the lines of a JSON array, one object a line."""
    before = "["
    for each in objects:
        # json escapes every other control character itself.
        yield before + json.dumps(each).replace("\x7f", "\\u007f")
        before = ","
    yield "]" if before == "," else "[]"


def _escaped(character: str) -> str:
    if unicodedata.category(character) in _UNSAFE_CATEGORIES or character in _DIRECTION_MARKS:
        return character.encode("unicode_escape").decode("ascii")
    return character
