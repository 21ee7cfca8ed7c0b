"""Text of other people, made safe for a terminal, a pipe and grep."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.cells import cell_len

from walsh_scrapy.policy.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["columns", "json_array", "printable"]


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
