"""The sources that a run declared, as a document for the audit.

The document has one line for each source, with its kind and its URL. A large document is stored in
parts, and each source is in the part that the key of its URL selects (`policy.urls.url_key`). The
document itself is then a list of the names of the parts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from walsh_scrapy.policy.urls import url_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PART: Final = "part "
#: The number of bits in the key of a URL.
_KEY_BITS: Final = 63
_MAX_CACHED_PARTS: Final = 64


class MissingPart(LookupError):
    """A part of the declaration of a run is no longer stored."""


def encode_part_names(names: Sequence[str]) -> bytes:
    """Return the document that lists the parts; their number must be a power of two."""
    return "\n".join(f"{_PART}{name}" for name in names).encode()


def part_names(body: bytes) -> list[str]:
    """Return the names of the parts; none if the document has the sources themselves."""
    lines = body.decode().splitlines() if body.startswith(_PART.encode()) else []
    return [line.removeprefix(_PART) for line in lines]


def part_number(key: int, parts: int) -> int:
    """Return the index of the part that has the source with this key."""
    return key * parts >> _KEY_BITS


class RunDeclaration:
    """The declaration of a run; ``read_part`` returns the bytes of a part, None if it is gone."""

    def __init__(self, body: bytes, read_part: Callable[[str], bytes | None]) -> None:
        self._read_part = read_part
        self._parts = part_names(body)
        self._sources = {} if self._parts else _parse_kinds(body)
        self._kinds_in = lru_cache(_MAX_CACHED_PARTS)(self._parse_part)

    def kind(self, url: str) -> str | None:
        """Return the kind of a source, or None if it was not declared. Raises MissingPart."""
        if self._parts:
            name = self._parts[part_number(url_key(url), len(self._parts))]
            return self._kinds_in(name).get(url)
        return self._sources.get(url)

    def _parse_part(self, name: str) -> Mapping[str, str]:
        body = self._read_part(name)
        if body is None:
            raise MissingPart(name)
        return _parse_kinds(body)


def _parse_kinds(body: bytes) -> dict[str, str]:
    lines = (line.partition(" ") for line in body.decode().splitlines())
    return {url: kind for kind, _, url in lines}
