"""Content codings (RFC 9110 8.4.1): bodies that are unpacked only as far as they count."""

from __future__ import annotations

import gzip
import re
import struct
import zlib
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: What a body raises that is not what its coding says.
CODING_ERRORS: Final = (OSError, EOFError, struct.error, zlib.error)
_CHUNK: Final = 65_536
#: Members of a gzip file: servers send one. Each takes up to 10 microseconds.
MOST_PARTS: Final = 10_000
_GZIP_HEADER: Final = re.compile(rb"\x1f\x8b\x08(.).{6}", re.DOTALL)
_GZIP_TRAILER: Final = 8  # bytes: checksum and size
_ZEROS: Final = re.compile(rb"\0*+")


def unpack(body: bytes, codings: Sequence[bytes], most: int) -> bytes:
    """Return the first ``most`` bytes of a body; of the layers in it little more is unpacked.

    ``codings`` are names in lower case, the outermost first. What comes before an error counts.
    Raises one of ``CODING_ERRORS`` if nothing does, and KeyError for an unknown coding.
    """
    for number, coding in enumerate(codings, 1):
        enough = most if number == len(codings) else 2 * most  # packed bytes may be more
        found = bytearray()
        try:
            for chunk in _CHUNKS[coding](body):
                found += chunk
                if len(found) > enough:
                    break
        except CODING_ERRORS:
            if not found:
                raise
        body = bytes(found)
    return body[:most]


def is_complete(body: bytes, coding: bytes) -> bool:
    """Return False if a body with one coding was cut off; True for an unknown coding.

    The body was unpacked before within a limit, so it is no decompression bomb.
    """
    return coding not in _ENDS or _ENDS[coding](body)


def _gzip(body: bytes) -> Iterator[bytes]:
    """Unpack the members of a gzip file (RFC 1952); wrong checksums do no harm.

    `gzip` of the standard library reads names in headers, and zeros between members, byte by byte.
    """
    at = 0
    for _ in range(MOST_PARTS):
        if at == len(body):
            return
        at = _after_gzip_header(body, at)
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        while not stream.eof:
            piece = stream.unconsumed_tail
            if not piece:
                piece = body[at : at + _CHUNK]
                at += len(piece)
            chunk = stream.decompress(piece, _CHUNK)
            if not (piece or chunk or stream.eof):
                raise EOFError("gzip without an end")
            yield chunk
        at = min(at + _GZIP_TRAILER - len(stream.unused_data), len(body))
        at = cast("re.Match[bytes]", _ZEROS.match(body, at)).end()
    raise EOFError(f"more than {MOST_PARTS} parts")


def _after_gzip_header(body: bytes, at: int) -> int:
    """Return where the data of a member begin whose header begins at `at`."""
    head = _GZIP_HEADER.match(body, at)
    if head is None:
        raise gzip.BadGzipFile("no gzip header")
    flags, at = head[1][0], head.end()
    if flags & 4:  # extra fields, after their length
        at += 2 + int.from_bytes(body[at : at + 2], "little")
    for flag in (8, 16):  # name and comment
        if flags & flag:
            at = body.find(b"\0", at) + 1 or len(body)
    return at + 2 if flags & 2 else at  # a checksum of the header


def _deflate(body: bytes) -> Iterator[bytes]:
    """Unpack deflate, with the header that it should have or without."""
    stream = zlib.decompressobj()
    try:
        chunk = stream.decompress(body, _CHUNK)
    except zlib.error:
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        chunk = stream.decompress(body, _CHUNK)
    while chunk:
        yield chunk
        chunk = stream.decompress(stream.unconsumed_tail, _CHUNK)
    if not stream.eof:
        raise EOFError("deflate without an end")


_CHUNKS: Final[Mapping[bytes, Callable[[bytes], Iterator[bytes]]]] = {
    b"gzip": _gzip,
    b"x-gzip": _gzip,
    b"deflate": _deflate,
}


def _gzip_ends(body: bytes) -> bool:
    return _inflates(body, zlib.MAX_WBITS | 16)


def _deflate_ends(body: bytes) -> bool:
    return _inflates(body, zlib.MAX_WBITS) or _inflates(body, -zlib.MAX_WBITS)


def _inflates(body: bytes, window: int) -> bool:
    stream = zlib.decompressobj(window)
    try:
        stream.decompress(body)
    except zlib.error:
        return False
    return stream.eof


_ENDS: Final[Mapping[bytes, Callable[[bytes], bool]]] = {
    b"gzip": _gzip_ends,
    b"x-gzip": _gzip_ends,
    b"deflate": _deflate_ends,
}
