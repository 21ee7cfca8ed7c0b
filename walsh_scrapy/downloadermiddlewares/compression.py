"""R7: Scrapy unpacks bodies, and a compressed text that was cut off gets a flag.

R2: of a robots.txt, and of a page whose head is read, only what counts is unpacked (decision 34).
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.utils._compression import _check_max_size

from walsh_scrapy.crawl.messages import counted_bytes
from walsh_scrapy.crawl.ticket import DATA_LOSS, content_type_of, source_of
from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.metadata.document import may_be_llms
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import cut, format_bytes, printable
from walsh_scrapy.wire.codings import CODING_ERRORS, is_complete, unpack

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

logger = logging.getLogger(__name__)

#: Codings of one body that are undone. Servers use one; a file can contain itself for ever.
MOST_CODINGS: Final = 4
#: What is asked for.
ACCEPTED: Final = b"gzip, deflate"
#: Codings that a server may use though they were not asked for. They are not undone: a robots.txt
#: in one of them must not count as one without rules.
UNASKED: Final = frozenset({b"br", b"zstd"})
#: Characters of Content-Encoding that are shown.
LONGEST_CODINGS: Final = 60


class CompressionMiddleware(HttpCompressionMiddleware):
    """Scrapy's own (order 590), with a flag for compressed texts that were cut off.

    Scrapy takes what it can unpack for the whole body. A parser of XML or JSON notices a missing
    end. Plain text and markdown have no end mark, so an incomplete one gets Scrapy's own flag for
    incomplete bodies.
    """

    def process_request(self, request: Request) -> None:  # type: ignore[override]
        """Ask for the codings that are undone here. No other choice counts but for none at all."""
        if request.headers.get("Accept-Encoding") != b"identity":
            request.headers["Accept-Encoding"] = ACCEPTED

    def process_response(self, request: Request, response: Response) -> Request | Response:  # type: ignore[override]
        """Unpack a body; raise BadAnswer if it is not what its Content-Encoding says.

        An error response stays that error, whatever its body.
        """
        headers = response.headers.getlist("Content-Encoding")
        codings = b",".join(headers).strip().lower()
        try:
            if codings.count(b",") >= MOST_CODINGS:
                raise EOFError(f"at most {MOST_CODINGS} are undone")
            _check_asked(response, codings)
            most = counted_bytes(request, response.headers)
            if most and headers:
                answer: Request | Response = self._beginning(response, headers, most)
            else:
                answer = self._unpack(request, response)
        except (*CODING_ERRORS, BadAnswer) as error:
            if response.status >= 400:
                return response.replace(body=b"")
            if isinstance(error, BadAnswer):
                raise
            said = codings_text(codings)
            reason = f"the body of {response.url} is not {said} as announced: {error}"
            raise BadAnswer(response, reason) from error
        is_text = source_of(request) and may_be_llms(content_type_of(response.headers))
        if is_text and not is_complete(response.body, codings):
            answer.flags.append(DATA_LOSS)
        return answer

    def _unpack(self, request: Request, response: Response) -> Request | Response:
        try:
            return super().process_response(request, response)
        except IgnoreRequest as error:
            most = format_bytes(request.meta.get("download_maxsize", self._max_size))
            host = host_of(response.url)
            reason = f"the response from {host} is too large: more than {most} when unpacked"
            raise BadAnswer(response, reason) from error

    @staticmethod
    def _decode(body: bytes, encoding: bytes, max_size: int) -> bytes:
        """Undo one coding; raise EOFError if a body has so many parts that it takes long.

        Scrapy reads gzip with Python's `gzip`, which takes seconds for headers of 15 MiB.
        """
        if encoding not in {b"gzip", b"x-gzip"}:
            return HttpCompressionMiddleware._decode(body, encoding, max_size)  # noqa: SLF001 - super()
        found = unpack(body, [encoding], max_size + 1 if max_size else sys.maxsize)
        _check_max_size(len(found), max_size)
        return found

    def _beginning(self, response: Response, headers: list[bytes], most: int) -> Response:
        """Return a body unpacked as far as it counts (decisions 11, 16 and 34)."""
        known, unknown = self._split_encodings(headers)
        body = unpack(response.body, known, most)
        answer = response.replace(body=body)
        if unknown:
            self._warn_unknown_encoding(answer, unknown)
        return answer

    def _warn_unknown_encoding(self, response: Response, encodings: list[bytes]) -> None:
        """Log a coding that is unknown; Scrapy's own cannot read one that is not UTF-8."""
        said = codings_text(b", ".join(encodings))
        logger.warning("the body of %s is not unpacked: no such coding, %s", response.url, said)


def _check_asked(response: Response, codings: bytes) -> None:
    """Raise BadAnswer for a body in a coding that was not asked for, and is not undone."""
    if response.body and UNASKED.intersection(map(bytes.strip, codings.split(b","))):
        reason = f"the body of {response.url} is {codings_text(codings)}, which was not asked for"
        raise BadAnswer(response, reason)


def codings_text(codings: bytes) -> str:
    """Return a Content-Encoding as it is shown to operators."""
    return cut(printable(codings.decode("latin-1")), LONGEST_CODINGS)
