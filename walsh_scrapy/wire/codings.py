"""Content codings (RFC 9110 8.4.1): bodies are unpacked only up to a maximum size."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: The codings that this module can undo.
KNOWN: Final = frozenset({b"gzip", b"x-gzip", b"deflate"})
#: The exceptions for a body that is not encoded as declared.
CODING_ERRORS: Final = (EOFError, zlib.error)
_CHUNK: Final = 65_536
#: The maximum number of members of a gzip body. Servers send one; each takes up to 10 microseconds.
MAX_PARTS: Final = 10_000
GZIP: Final = b"\x1f\x8b"  #: The first bytes of gzip data.
_ZEROS: Final = re.compile(rb"\0*+")


class Unpacked(NamedTuple):
    """The beginning of an unpacked body."""

    body: bytes
    is_complete: bool  #: False if the packed body was damaged or cut off


def unpack(body: bytes, codings: Sequence[bytes], max_bytes: int) -> Unpacked:
    """Return the first ``max_bytes`` of a body. Inner layers are unpacked up to twice that size.

    ``codings`` are taken from ``KNOWN``, the outermost coding first. The bytes before an error are
    returned. Raises one of ``CODING_ERRORS`` if there are no such bytes.
    """
    is_complete = True
    for number, coding in enumerate(codings, 1):
        limit = max_bytes if number == len(codings) else 2 * max_bytes  # packed data may be larger
        content = bytearray()
        try:
            for chunk in _inflate(body, _window_bits(body, coding)):
                content += chunk
                if len(content) > limit:
                    break
        except CODING_ERRORS:
            if body and not content:
                raise
            is_complete = False
        body = bytes(content)
    return Unpacked(body[:max_bytes], is_complete)


def _window_bits(body: bytes, coding: bytes) -> int:
    """Return the `wbits` with which zlib reads a body. Deflate may come without its zlib header."""
    if coding != b"deflate":
        return zlib.MAX_WBITS | 16
    try:
        zlib.decompressobj().decompress(body[:2])
    except zlib.error:
        return -zlib.MAX_WBITS
    return zlib.MAX_WBITS


def _inflate(body: bytes, window_bits: int) -> Iterator[bytes]:
    """Yield the content of a body in pieces. Gzip may have several members (RFC 1952 2.2).

    Zeros between the members are skipped, and so is everything after the last member.
    """
    position = 0
    for _ in range(MAX_PARTS):
        stream = zlib.decompressobj(window_bits)
        while not stream.eof:
            piece = stream.unconsumed_tail
            if not piece:
                piece = body[position : position + _CHUNK]
                position += len(piece)
            chunk = stream.decompress(piece, _CHUNK)
            if not (piece or chunk or stream.eof):
                raise EOFError("its end is missing")
            yield chunk
        position = cast(
            "re.Match[bytes]", _ZEROS.match(body, position - len(stream.unused_data))
        ).end()
        if not body.startswith(GZIP, position):
            return
    raise EOFError(f"more than {MAX_PARTS} parts")
