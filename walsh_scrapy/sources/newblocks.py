"""The sources of a file's new blocks, and their places among the blocks that are known.

So an edit of a large file is read by what is new in it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple

from walsh_scrapy.policy.urls import url_key
from walsh_scrapy.sources.blocks import split
from walsh_scrapy.sources.loading import merged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from walsh_scrapy.sources.source import Source

#: New blocks of an edit. If there are more, all of the file is read.
_MOST_NEW: Final = 20_000


class TooMuchError(Exception):
    """So much of a file has changed that all of it is read."""


class NewSource(NamedTuple):
    """A source that was read; ``hash`` is that of its block, None if it has several."""

    key: int  #: `url_key` of its URL
    source: Source
    hash: int | None
    place: str  #: for messages
    position: float  #: among the sources of the file


class KnownBlocks:
    """The blocks that are known of a file, by their hashes: 25 bytes each.

    ``rows`` have hash, key and position, in the order of the hashes. Those of the keys ``without``
    count as not known.
    """

    def __init__(self, rows: Iterable[tuple[int, int, float]], without: Collection[int]) -> None:
        self._hashes, self._keys, self._positions = array("q"), array("q"), array("d")
        for hash_, key, position in rows:
            if key not in without:
                self._hashes.append(hash_)
                self._keys.append(key)
                self._positions.append(position)
        self._is_kept = bytearray(len(self._hashes))  # 1 for each that the file still has

    def position_of(self, block: int) -> float | None:
        """Return the position of a block, the first time that it is found; None if it is new."""
        at = self._find(block)
        if at is None or self._is_kept[at]:
            return None
        self._is_kept[at] = 1
        return self._positions[at]

    def has_found(self, block: int | None) -> bool:
        """Return True for a known block that the file still has."""
        at = None if block is None else self._find(block)
        return at is not None and self._is_kept[at] == 1

    @property
    def has_found_any(self) -> bool:
        """Whether the file still has any of them."""
        return any(self._is_kept)

    @property
    def removed(self) -> Iterator[int]:
        """The keys of the sources whose blocks are gone."""
        return compress(self._keys, (not each for each in self._is_kept))

    def _find(self, block: int) -> int | None:
        at = bisect_left(self._hashes, block)
        return at if at < len(self._hashes) and self._hashes[at] == block else None


class Merger:
    """Sources by their keys: of several declarations the first one, with what the others add."""

    def __init__(self, news: Iterable[NewSource] = ()) -> None:
        self.kept: dict[int, NewSource] = {}
        self.repeated: list[str] = []
        for each in news:
            self.add(each)

    def add(self, new: NewSource) -> None:
        """Add a source, or what it adds to the one that was declared before."""
        if first := self.kept.get(new.key):
            self.repeated.append(new.place)
            new = first._replace(source=merged(first.source, new.source), hash=None)
        self.kept[new.key] = new


def new_sources(file: Path, known: KnownBlocks) -> Iterator[NewSource]:
    """Yield the source of each new block, with a position between those that are known.

    Raises TooMuchError if all of the file is to be read, and what `split` and `Block.read` raise.
    """
    blocks = split(file)
    if blocks is None:
        raise TooMuchError
    last: float | None = None
    run: list[NewSource] = []
    left = _MOST_NEW
    for block in blocks:
        position = known.position_of(block.hash)
        if position is None:
            left -= 1
            source = block.read(file).source
            run.append(NewSource(url_key(source.url), source, block.hash, block.place, 0.0))
        else:
            yield from _between(last, run, position)
            last, run = position, []
        if left < 0:
            raise TooMuchError
    yield from _between(last, run, None)


def _between(
    last: float | None, run: Sequence[NewSource], following: float | None
) -> Iterator[NewSource]:
    """Yield new sources with positions between two known ones, None for an end of the file."""
    if last is None and following is not None:
        last = following - len(run) - 1.0
    last = last or 0.0
    step = 1.0 if following is None else (following - last) / (len(run) + 1)
    for each in run:
        if not last < last + step != following:
            raise TooMuchError  # another order, or no room left between two numbers
        last += step
        yield each._replace(position=last)
    if following is not None and following <= last:
        raise TooMuchError
