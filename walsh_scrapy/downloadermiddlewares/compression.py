"""R7: Scrapy unpacks bodies, and a compressed text that was cut off gets a flag."""

from __future__ import annotations

import struct
import sys
import zlib
from typing import TYPE_CHECKING, Final

from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware

from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.metadata.mediatypes import may_be_llms
from walsh_scrapy.runtime.negotiation import content_type_of
from walsh_scrapy.runtime.requestmeta import DATA_LOSS, source_of

try:  # Scrapy uses either of the two
    import brotli
except ImportError:
    import brotlicffi as brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scrapy import Request
    from scrapy.http import Response

_ERRORS: Final = (OSError, EOFError, struct.error, zlib.error, brotli.error, zstd.ZstdError)


class CompressionMiddleware(HttpCompressionMiddleware):
    """Scrapy's own (order 590), with a flag for compressed texts that were cut off.

    Scrapy takes what it can unpack for the whole body. A parser of XML or JSON notices a missing
    end. Plain text and markdown have no end mark, so an incomplete one gets Scrapy's own flag for
    incomplete bodies.
    """

    def process_response(self, request: Request, response: Response) -> Request | Response:  # type: ignore[override]
        """Unpack a body; raise BadAnswer if it is not what its Content-Encoding says.

        An error response stays that error, whatever its body.
        """
        codings = b",".join(response.headers.getlist("Content-Encoding")).strip().lower()
        try:
            answer = super().process_response(request, response)
        except _ERRORS as error:
            if response.status >= 400:
                return response.replace(body=b"")
            said = codings.decode("latin-1")
            reason = f"the body of {response.url} is not {said} as announced: {error}"
            raise BadAnswer(response, reason) from error
        is_text = source_of(request) and may_be_llms(content_type_of(response.headers))
        if is_text and codings in _ENDS and not _ENDS[codings](response.body):
            answer.flags.append(DATA_LOSS)
        return answer


def _gzip_ends(body: bytes) -> bool:
    return _inflates(body, zlib.MAX_WBITS | 16)


def _deflate_ends(body: bytes) -> bool:
    """Return True at the end of deflate, with the header that it should have or without."""
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


#: By content coding: a function that returns True if a compressed body is complete. The body was
#: unpacked before within Scrapy's limits, so it is no decompression bomb.
_ENDS: Final[Mapping[bytes, Callable[[bytes], bool]]] = {
    b"gzip": _gzip_ends,
    b"x-gzip": _gzip_ends,
    b"deflate": _deflate_ends,
    b"br": _brotli_ends,
    b"zstd": _zstd_ends,
}
