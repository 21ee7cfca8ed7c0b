"""The blocks of a sources file: each declares one source, and can be read without the others.

So after an edit only the blocks that are new are read. A file is split only where that is surely
safe; any other one is read as a whole.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.sources.loading import Declaration, source_of
from walsh_scrapy.sources.readers import RawSource, read_list, read_toml
from walsh_scrapy.sources.source import UnreadableSources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_HEADER: Final = "[[source]]"
# A string without escapes, or a list of them, which TOML and JSON write alike.
_STRING: Final = r'"[^"\\\x00-\x1f\x7f]*"'
_PLAIN_LINE: Final = re.compile(rf"([A-Za-z0-9_-]+) = ({_STRING}|\[{_STRING}(?:, ?{_STRING})*\])")


class Block(NamedTuple):
    """The text that declares one source; ``number`` is that of ``Declaration``."""

    number: int
    place: str
    text: str
    hash: int  #: 63 bits of its SHA-256

    def read(self, file: Path) -> Declaration:
        """Return what it declares in this file. Raises a ValueError if it is wrong."""
        value = _READERS[file.suffix.lower()](self.text)
        source = source_of(RawSource(self.number, self.place, value))
        return Declaration(self.number, self.place, source)


def split(file: Path) -> Iterator[Block] | None:
    """Yield the blocks of a file in its order; None for a format that has none.

    Raises UnreadableSources for a file that has to be read as a whole, and what opening it raises.
    """
    ending = file.suffix.lower()
    return _SPLITTERS[ending](file) if ending in _SPLITTERS else None


def _tables(file: Path) -> Iterator[Block]:
    """Yield the `[[source]]` tables of a TOML file that has nothing else."""
    numbers = count(1)
    lines: list[str] = []
    has_begun = False
    with file.open(encoding="utf-8-sig", newline="\n") as text:
        for line in text:
            if '"""' in line or "'''" in line:
                raise UnreadableSources(
                    "a string of several lines may hold what looks like a table"
                )
            stripped = line.rstrip("\r\n")
            if stripped == _HEADER:
                if has_begun:
                    yield _table(next(numbers), lines)
                has_begun, lines = True, []
            elif has_begun:
                lines.append(line)
            elif stripped.strip(" \t") and not stripped.lstrip(" \t").startswith("#"):
                raise UnreadableSources("it does not begin with a table")
    if has_begun:
        yield _table(next(numbers), lines)


def _table(number: int, lines: list[str]) -> Block:
    text = f"{_HEADER}\n{''.join(lines)}"
    return Block(number, f"entry {number}", text, hash_of(text))


def _read_table(text: str) -> object:
    """Return what a table says: TOML's reader takes ten times as long for one that is plain."""
    plain: dict[str, object] = {}
    for line in filter(None, text.split("\n")[1:]):
        found = _PLAIN_LINE.fullmatch(line)
        if found is None or found[1] in plain:
            (raw,) = read_toml(text.encode()).sources
            return raw.value
        plain[found[1]] = json.loads(found[2])
    return plain


def _read_line(text: str) -> object:
    (raw,) = read_list(text.encode()).sources
    return raw.value


def _lines(file: Path) -> Iterator[Block]:
    """Yield the lines of a list that declare a source."""
    with file.open(encoding="utf-8-sig") as text:  # all three line ends become "\n"
        for number, line in enumerate(text, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                yield Block(number, f"line {number}", line, hash_of(line))


def hash_of(text: str) -> int:
    """Return 63 bits of the SHA-256 of a text."""
    return int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()[:8]) >> 1


_SPLITTERS: Final[dict[str, Callable[[Path], Iterator[Block]]]] = {".toml": _tables, ".txt": _lines}
_READERS: Final = {".toml": _read_table, ".txt": _read_line}
