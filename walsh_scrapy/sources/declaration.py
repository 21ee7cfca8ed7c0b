"""The declaration of a run (decision 33): a document with one line per source, its kind and URL.

A large one is kept in parts, by the keys of the URLs (`policy.urls.url_key`), and is then a list of
their names.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.urls import url_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PART: Final = "part "
#: Bits of the key of a URL.
_KEY_BITS: Final = 63
_MAX_CACHED_PARTS: Final = 64


class MissingPart(LookupError):
    """A part of the declaration of a run is no longer kept."""


def encode_part_names(names: Sequence[str]) -> bytes:
    """Return the document that names its parts, of which there is a power of two."""
    return "\n".join(f"{_PART}{name}" for name in names).encode()


def part_names(body: bytes) -> list[str]:
    """Return the names of the parts of a document; none if it has the sources itself."""
    lines = body.decode().splitlines() if body.startswith(_PART.encode()) else []
    return [line.removeprefix(_PART) for line in lines]


def part_number(key: int, parts: int) -> int:
    """Return which of so many parts, counted from 0, has the source with this key."""
    return key * parts >> _KEY_BITS


class RunDeclaration:
    """The declaration of a run; ``copy`` returns the bytes of a part, None if it is gone."""

    def __init__(self, body: bytes, copy: Callable[[str], bytes | None]) -> None:
        self._copy = copy
        self._parts = part_names(body)
        self._sources = {} if self._parts else _kinds(body)
        self._of_part = lru_cache(_MAX_CACHED_PARTS)(self._read)

    def kind(self, url: str) -> str | None:
        """Return the kind of a declared source, None for any other URL. Raises MissingPart."""
        if self._parts:
            name = self._parts[part_number(url_key(url), len(self._parts))]
            return self._of_part(name).get(url)
        return self._sources.get(url)

    def _read(self, name: str) -> Mapping[str, str]:
        body = self._copy(name)
        if body is None:
            raise MissingPart(name)
        return _kinds(body)


def _kinds(body: bytes) -> dict[str, str]:
    lines = (line.partition(" ") for line in body.decode().splitlines())
    return {url: kind for kind, _, url in lines}
