"""Text of other people, made fit for a terminal, a pipe and grep: a line stays a line."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

# Characters that do something instead of showing something; directions could make a line lie.
_ACTING: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTIONS: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def printable(text: str) -> str:
    r"""Return the text with every control character spelled out (`\x1b`)."""
    return text if text.isprintable() else "".join(map(_spelled, text))


def columns(rows: Sequence[Sequence[str]], widest: int = 60) -> Iterator[str]:
    """Yield a line for each row, its cells below each other as far as they are not too wide.

    Nothing is cut or wrapped; the last cells are not padded.
    """
    widths = [min(max(map(cell_len, cells)), widest) for cells in zip(*rows, strict=True)]
    for row in rows:
        padded = (
            cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)
        )
        yield "  ".join(padded).rstrip()


def json_array(objects: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Yield the lines of a JSON array, an object a line."""
    before = "["
    for each in objects:
        # json spells out every other control character by itself
        yield before + json.dumps(each).replace("\x7f", "\\u007f")
        before = ","
    yield "]" if before == "," else "[]"


def _spelled(character: str) -> str:
    if unicodedata.category(character) in _ACTING or character in _DIRECTIONS:
        return character.encode("unicode_escape").decode("ascii")
    return character
