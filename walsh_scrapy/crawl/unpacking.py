"""Unpacks bodies with a Content-Encoding, and recognizes those that were cut off."""

from __future__ import annotations

import logging
import re
import sys
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from scrapy.http import TextResponse
from scrapy.responsetypes import responsetypes

from walsh_scrapy.crawl.ticket import DATA_LOSS, content_type_of, rank_of, subject_of, visit_of
from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.robots.robotstxt import MAX_OCTETS
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import cut, format_bytes, printable
from walsh_scrapy.wire.codings import CODING_ERRORS, GZIP, KNOWN, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scrapy import Request
    from scrapy.http import Headers, Response
    from scrapy.statscollectors import StatsCollector

logger = logging.getLogger(__name__)

#: The maximum number of codings of one body. Servers use one; a hostile file can contain itself.
MAX_CODINGS: Final = 4
#: The codings that are requested.
ACCEPTED: Final = b"gzip, deflate"
#: Codings that some servers use although they were not requested. They are refused, so that a
#: robots.txt in one of them does not count as a file without rules.
UNREQUESTED: Final = frozenset({b"br", b"zstd"})
#: What servers write although it is no coding: RFC 9110 8.4.1 reserves `identity` for requests, the
#: others belong to other fields.
_NO_CODING: Final = re.compile(
    rb"identity|none|binary|[78]bit|"
    rb"(?:x-)?(?:utf|iso|ucs|windows|win|cp|us-ascii|ascii|ansi|latin|koi|gb|big5|s(?:hift)?[_-]?jis|"
    rb"euc|tis|mac|ks_?c|unicode)[\w.:-]*+"
)
_ONE_GZIP: Final[tuple[list[bytes], ...]] = ([], [b"gzip"], [b"x-gzip"])
#: The maximum number of characters of a Content-Encoding in a message.
MAX_CODINGS_CHARACTERS: Final = 60


def unpack_response(
    request: Request, response: Response, max_bytes: int, stats: StatsCollector
) -> Response:
    """Return a response with its body unpacked, to ``max_bytes`` at most (0: no limit).

    Raises BadAnswer if the body does not have the announced Content-Encoding, or is too large. An
    error response stays that error, whatever its body.
    """
    codings = _find_codings(request, response.headers, response.body)
    if not codings:
        response.headers.pop("Content-Encoding", None)
        return response
    try:
        return _unpack_body(request, response, codings, max_bytes or sys.maxsize, stats)
    except (*CODING_ERRORS, BadAnswer) as error:
        if response.status >= 400:
            return response.replace(body=b"")
        if isinstance(error, BadAnswer):
            raise
        problem = str(error).rpartition(": ")[2]  # zlib puts its number first
        announced = codings_text(b",".join(codings))
        reason = f"the body of {response.url} is not {announced} as announced: {problem}"
        raise BadAnswer(response, reason) from error


def may_be_complete(request: Request, headers: Headers, body: bytes, max_bytes: int) -> bool:
    """Return True if a response that was cut off may have a complete feed; its parser decides.

    ``body`` is the part that came. Compressed data must be complete, because its checksum is at its
    end.
    """
    names = _find_codings(request, headers, body)
    visit = visit_of(request)
    if visit is None or not visit.needs_end or len(names) > MAX_CODINGS:
        return False
    try:
        unpacked = unpack(body, [name for name in reversed(names) if name in KNOWN], max_bytes)
    except CODING_ERRORS:
        return False
    return unpacked.is_complete and visit.may_have_ended(unpacked.body)


def codings_of(fields: Iterable[bytes]) -> list[bytes]:
    """Return the codings that Content-Encoding fields name, the one that was applied first first.

    Names are in lower case. Empty members, `identity` and names of charsets are left out.

    >>> codings_of([b"GZIP, identity", b"utf-8"])
    [b'gzip']
    """
    names = [name.strip().lower() for name in b",".join(fields).split(b",")]
    return [name for name in names if name and not _NO_CODING.fullmatch(name)]


def _find_codings(request: Request, headers: Headers, body: bytes) -> list[bytes]:
    """Return the codings of a body; for sources and documents its first bytes decide about gzip."""
    codings = codings_of(headers.getlist("Content-Encoding"))
    if (subject_of(request) or rank_of(request) is not Rank.TARGET) and codings in _ONE_GZIP:
        # Some servers announce gzip and send a plain body, or the other way round.
        return [b"gzip"] if body.startswith(GZIP) else []
    return codings


def _unpack_body(
    request: Request, response: Response, names: list[bytes], max_bytes: int, stats: StatsCollector
) -> Response:
    if len(names) > MAX_CODINGS:
        raise EOFError(f"at most {MAX_CODINGS} are undone")
    if response.body and UNREQUESTED.intersection(names):
        coding = f"{codings_text(b','.join(names))}, which was not requested"
        raise BadAnswer(response, f"the body of {response.url} is {coding}")
    undone = list(takewhile(lambda name: name in KNOWN, reversed(names)))
    remaining = names[: len(names) - len(undone)]
    counted = counted_bytes(request, response.headers)
    body, is_complete = unpack(response.body, undone, counted or max_bytes + 1)
    visit = visit_of(request)
    if not is_complete and visit is not None and visit.needs_end:
        raise EOFError("its end is missing or damaged")
    if len(body) > max_bytes and visit is not None and visit.may_have_ended(body[:max_bytes]):
        body = body[:max_bytes]
        is_complete = False
    if len(body) > max_bytes:
        problem = f"the response from {host_of(response.url)} is too large"
        raise BadAnswer(response, f"{problem}: more than {format_bytes(max_bytes)} when unpacked")
    if undone:
        stats.inc_value("httpcompression/response_count")
        stats.inc_value("httpcompression/response_bytes", len(body))
    response.headers["Content-Encoding"] = remaining
    if not remaining:
        del response.headers["Content-Encoding"]
    answer = _replace_body(response, body)
    if remaining:
        coding = codings_text(b", ".join(remaining))
        logger.warning("the body of %s is not unpacked: no such coding, %s", response.url, coding)
    if not is_complete and subject_of(request):
        answer.flags.append(DATA_LOSS)
    return answer


def counted_bytes(request: Request, headers: Headers) -> int | None:
    """Return the number of bytes of a body that are read; None if all are.

    Of a robots.txt that is one more than its limit, so that its parser sees the limit exceeded.
    """
    if rank_of(request) is Rank.ROBOTS:
        return MAX_OCTETS + 1
    visit = visit_of(request)
    return visit.max_bytes(content_type_of(headers)) if visit else None


def _replace_body(response: Response, body: bytes) -> Response:
    """Return the response with its unpacked body, in the class for that body."""
    kind = responsetypes.from_args(headers=response.headers, url=response.url, body=body)
    # The encoding is found anew: that of the compressed bytes means nothing.
    changes: dict[str, Any] = {"encoding": None} if issubclass(kind, TextResponse) else {}
    return response.replace(cls=kind, body=body, **changes)


def codings_text(codings: bytes) -> str:
    """Return a Content-Encoding for a message."""
    return cut(printable(codings.decode("latin-1")), MAX_CODINGS_CHARACTERS)
