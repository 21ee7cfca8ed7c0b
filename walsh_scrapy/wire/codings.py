"""Content codings (RFC 9110 8.4.1): bodies that are unpacked only as far as they count."""

from __future__ import annotations

import gzip
import struct
import sys
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Final

try:  # Scrapy uses either of the two
    import brotli
except ImportError:
    import brotlicffi as brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

#: What a body raises that is not what its coding says.
CODING_ERRORS: Final = (OSError, EOFError, struct.error, zlib.error, brotli.error, zstd.ZstdError)
_CHUNK: Final = 65_536


def unpacked(body: bytes, codings: Iterable[bytes], most: int) -> bytes:
    """Return the first ``most`` bytes of a body; of the layers in it little more is unpacked.

    ``codings`` are names in lower case, the outermost first. What comes before an error counts.
    Raises one of ``CODING_ERRORS`` if nothing does, and KeyError for an unknown coding.
    """
    for coding in codings:
        found = bytearray()
        try:
            for chunk in _CHUNKS[coding](body):
                found += chunk
                if len(found) > 2 * most:  # packed bytes may be more than what they unpack to
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
    with gzip.GzipFile(fileobj=BytesIO(body)) as stream:
        while chunk := stream.read1(_CHUNK):
            yield chunk


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


def _brotli(body: bytes) -> Iterator[bytes]:
    stream = brotli.Decompressor()
    chunk = stream.process(body, output_buffer_limit=_CHUNK)
    while chunk:
        yield chunk
        chunk = stream.process(b"", output_buffer_limit=_CHUNK)
    if not stream.is_finished():
        raise EOFError("brotli without an end")


def _zstd(body: bytes) -> Iterator[bytes]:
    with zstd.ZstdFile(BytesIO(body)) as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


_CHUNKS: Final[Mapping[bytes, Callable[[bytes], Iterator[bytes]]]] = {
    b"gzip": _gzip,
    b"x-gzip": _gzip,
    b"deflate": _deflate,
    b"br": _brotli,
    b"zstd": _zstd,
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


def _brotli_ends(body: bytes) -> bool:
    stream = brotli.Decompressor()
    stream.process(body)
    return bool(stream.is_finished())


def _zstd_ends(body: bytes) -> bool:
    stream = zstd.ZstdDecompressor()
    stream.decompress(body)
    return stream.eof


_ENDS: Final[Mapping[bytes, Callable[[bytes], bool]]] = {
    b"gzip": _gzip_ends,
    b"x-gzip": _gzip_ends,
    b"deflate": _deflate_ends,
    b"br": _brotli_ends,
    b"zstd": _zstd_ends,
}
