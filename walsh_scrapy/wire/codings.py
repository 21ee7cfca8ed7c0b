"""Content codings (RFC 9110 8.4.1): bodies that are unpacked only as far as they count."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: The codings that are undone here.
KNOWN: Final = frozenset({b"gzip", b"x-gzip", b"deflate"})
#: The errors of a body that does not have its declared coding.
CODING_ERRORS: Final = (EOFError, zlib.error)
_CHUNK: Final = 65_536
#: Members of a gzip file: servers send one. Each takes up to 10 microseconds.
MAX_PARTS: Final = 10_000
GZIP: Final = b"\x1f\x8b"  #: how it begins
_ZEROS: Final = re.compile(rb"\0*+")


class Unpacked(NamedTuple):
    """A body, as far as it counts."""

    body: bytes
    is_complete: bool  #: False if it was damaged or cut off before its end


def unpack(body: bytes, codings: Sequence[bytes], max_bytes: int) -> Unpacked:
    """Return the first ``most`` bytes of a body; its inner layers are unpacked little further.

    ``codings`` are of ``KNOWN``, the outermost first. The bytes before an error count. Raises one
    of ``CODING_ERRORS`` if there are none.
    """
    is_complete = True
    for number, coding in enumerate(codings, 1):
        limit = max_bytes if number == len(codings) else 2 * max_bytes  # packed bytes may be more
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
    """Return how `zlib` names the format of a body; deflate comes without its header, too."""
    if coding != b"deflate":
        return zlib.MAX_WBITS | 16
    try:
        zlib.decompressobj().decompress(body[:2])
    except zlib.error:
        return -zlib.MAX_WBITS
    return zlib.MAX_WBITS


def _inflate(body: bytes, window_bits: int) -> Iterator[bytes]:
    """Yield the content of a body, in pieces: gzip may have several members (RFC 1952 2.2).

    Zeros between them, and anything but a member after them, are passed over.
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
