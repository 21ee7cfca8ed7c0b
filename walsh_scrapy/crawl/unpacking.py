"""Unpacks bodies with a Content-Encoding, up to the number of bytes that will be read."""

from __future__ import annotations

import logging
import sys
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from scrapy.http import TextResponse
from scrapy.responsetypes import responsetypes

from walsh_scrapy.crawl.messages import counted_bytes
from walsh_scrapy.crawl.ticket import DATA_LOSS, content_type_of, rank_of, source_of
from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.metadata.document import may_be_llms
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import cut, format_bytes, printable
from walsh_scrapy.wire.codings import CODING_ERRORS, GZIP, KNOWN, unpack

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector

logger = logging.getLogger(__name__)

#: Codings of one body that are undone. Servers use one; a file can contain itself.
MAX_CODINGS: Final = 4
#: The codings that are requested.
ACCEPTED: Final = b"gzip, deflate"
#: Codings that a server may use though they were not requested. They are not undone: a robots.txt
#: in one of them must not count as one without rules.
UNASKED: Final = frozenset({b"br", b"zstd"})
_ONE_GZIP: Final = (b"", b"gzip", b"x-gzip")
#: Characters of Content-Encoding that are shown.
MAX_CODINGS_CHARACTERS: Final = 60


def unpack_response(
    request: Request, response: Response, max_bytes: int, stats: StatsCollector
) -> Response:
    """Return a response with its body unpacked; ``max_bytes`` is its limit, 0 for none.

    Raises BadAnswer if it does not have its Content-Encoding, or is too large. An error response
    stays that error, whatever its body.
    """
    codings = b",".join(response.headers.getlist("Content-Encoding")).strip().lower()
    if (source_of(request) or rank_of(request) is not Rank.TARGET) and codings in _ONE_GZIP:
        # Some servers announce gzip and send a plain body, or the other way round.
        codings = b"gzip" if response.body.startswith(GZIP) else b""
        response.headers.pop("Content-Encoding", None)
    if not codings:
        return response
    try:
        return _unpack(request, response, codings, max_bytes or sys.maxsize, stats)
    except (*CODING_ERRORS, BadAnswer) as error:
        if response.status >= 400:
            return response.replace(body=b"")
        if isinstance(error, BadAnswer):
            raise
        problem = str(error).rpartition(": ")[2]  # zlib puts its number first
        announced = codings_text(codings)
        reason = f"the body of {response.url} is not {announced} as announced: {problem}"
        raise BadAnswer(response, reason) from error


def _unpack(
    request: Request, response: Response, codings: bytes, max_bytes: int, stats: StatsCollector
) -> Response:
    names = [name.strip() for name in codings.split(b",")]
    if len(names) > MAX_CODINGS:
        raise EOFError(f"at most {MAX_CODINGS} are undone")
    if response.body and UNASKED.intersection(names):
        coding = f"{codings_text(codings)}, which was not requested"
        raise BadAnswer(response, f"the body of {response.url} is {coding}")
    undone = list(takewhile(lambda name: name in KNOWN, reversed(names)))
    remaining = names[: len(names) - len(undone)]
    counted = counted_bytes(request, response.headers)
    body, is_complete = unpack(response.body, undone, counted or max_bytes + 1)
    if len(body) > max_bytes:
        problem = f"the response from {host_of(response.url)} is too large"
        raise BadAnswer(response, f"{problem}: more than {format_bytes(max_bytes)} when unpacked")
    if undone:
        stats.inc_value("httpcompression/response_count")
        stats.inc_value("httpcompression/response_bytes", len(body))
    response.headers["Content-Encoding"] = remaining
    if not remaining:
        del response.headers["Content-Encoding"]
    answer = _with_body(response, body)
    if remaining:
        coding = codings_text(b", ".join(remaining))
        logger.warning("the body of %s is not unpacked: no such coding, %s", response.url, coding)
    if not is_complete and source_of(request) and may_be_llms(content_type_of(response.headers)):
        answer.flags.append(DATA_LOSS)
    return answer


def _with_body(response: Response, body: bytes) -> Response:
    """Return a response of the kind that its unpacked body has."""
    kind = responsetypes.from_args(headers=response.headers, url=response.url, body=body)
    # A packed body has no encoding.
    changes: dict[str, Any] = {"encoding": None} if issubclass(kind, TextResponse) else {}
    return response.replace(cls=kind, body=body, **changes)


def codings_text(codings: bytes) -> str:
    """Return a Content-Encoding as it is shown to operators."""
    return cut(printable(codings.decode("latin-1")), MAX_CODINGS_CHARACTERS)
