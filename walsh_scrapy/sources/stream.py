"""A sources file as a stream, so that a large one is never in memory as a whole.

A list is read line by line, and a TOML file table by table where it surely can be split so. Any
other file is read as a whole.
"""

from __future__ import annotations

import json
import re
from itertools import count
from typing import TYPE_CHECKING, Final

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


def stream(file: Path) -> Iterator[Declaration] | None:
    """Yield what a file declares, in its order; None for a format that is read as a whole.

    Raises a ValueError for a file that is wrong, or has to be read as a whole: reading it so says
    which, and where. And raises what opening it raises.
    """
    read = _STREAMS.get(file.suffix.lower())
    return None if read is None else read(file)


def _tables(file: Path) -> Iterator[Declaration]:
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


def _table(number: int, lines: list[str]) -> Declaration:
    value = _read_table(f"{_HEADER}\n{''.join(lines)}")
    return _declaration(f"entry {number}", value)


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


def _lines(file: Path) -> Iterator[Declaration]:
    """Yield the lines of a list that declare a source."""
    with file.open(encoding="utf-8-sig") as text:  # all three line ends become "\n"
        for number, line in enumerate(text, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                (raw,) = read_list(line.encode()).sources
                yield _declaration(f"line {number}", raw.value)


def _declaration(place: str, value: object) -> Declaration:
    return Declaration(place, source_of(RawSource(place, value)))


_STREAMS: Final[dict[str, Callable[[Path], Iterator[Declaration]]]] = {
    ".toml": _tables,
    ".txt": _lines,
}
