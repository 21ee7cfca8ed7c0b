"""What a request of a crawl carries beside its URL, and what its response does.

The headers that are never sent, the validators of conditional requests, the key that signs, and
bodies with a Content-Encoding, which are unpacked only up to a maximum size.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
import zlib
from base64 import b64encode
from itertools import takewhile
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

from scrapy.http import Headers, TextResponse
from scrapy.responsetypes import responsetypes

from walsh_scrapy.crawl.startup import Kind
from walsh_scrapy.crawl.ticket import (
    DATA_LOSS,
    content_type_of,
    rank_of,
    subject_of,
    ticket_of,
    visit_of,
)
from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.options import BadSetting
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.robots.robotstxt import MAX_OCTETS
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import cut, format_bytes, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from scrapy import Request
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.signing import PrivateKey, RequestSigner


# Content codings (RFC 9110 8.4.1)

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


# Messages

logger = logging.getLogger(__name__)


#: Header fields by name; None stands for one that is not sent.
Fields: TypeAlias = "Mapping[str, str | bytes | None]"


def host_field(netloc: str) -> str:
    """Return the Host field for the authority of a URL: without user info."""
    return netloc.rpartition("@")[2]


#: Headers that would link visits to each other, or carry credentials (R1), by the kind of crawl.
NEVER_SENT: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.DECLARED: ("Cookie", "Cookie2", "Referer", "Authorization"),
    Kind.OWN: (),
}


def conditions_of(request: Request) -> Fields:
    """Return both headers of a conditional request (R7).

    Their values are the validators that were stored for the URL of the request.
    """
    validators = ticket_of(request).validators
    is_of_url = validators is not None and validators.url == request.url
    return {
        "If-None-Match": validators.etag if validators and is_of_url else None,
        "If-Modified-Since": validators.last_modified if validators and is_of_url else None,
    }


def set_conditions(request: Request) -> None:
    """Set the validators of the URL of a request, and remove those that a redirect copied along."""
    for name, value in conditions_of(request).items():
        request.headers.pop(name, None)
        if value is not None:
            request.headers[name] = value


#: A PEM file of an Ed25519 key has 119 bytes; a larger file is something else.
_MAX_KEY_BYTES: Final = 16_384
_NONCE_BYTES: Final = 32
#: Without a signature, and over plain http, a request has none of these, whoever set them.
_UNSIGNED: Final = {"Signature-Agent": None, "Signature-Input": None, "Signature": None}


class UnusableKey(ValueError):
    """A file is not a usable key; the message is a sentence that names the file."""


class Signer:
    """Signs the requests of a crawl."""

    def __init__(self, signer: RequestSigner) -> None:
        self._signer = signer
        self.key_id = signer.key.public.thumbprint

    def fields(self, url: str, now: float) -> Fields:
        """Return the fields of one request that is sent now, in epoch seconds.

        Each call has another nonce. Over plain http anybody on the way could use the signature.
        """
        parts = urlsplit(url)
        if parts.scheme != "https":
            return _UNSIGNED
        nonce = b64encode(token_bytes(_NONCE_BYTES)).decode("ascii")
        return self._signer.fields(host_field(parts.netloc), now, nonce)


def read_signer(options: Options) -> Signer | None:
    """Return the signer of a crawl, None without a key.

    Raises BadSetting for a key that cannot be read, is of another type, or may be read by others.
    """
    if not options.signing_key:
        return None
    # Crawls that sign nothing do not load the signer: 7 ms.
    from walsh_scrapy.policy.signing import RequestSigner  # noqa: PLC0415

    try:
        key = read_key(Path(options.signing_key))
    except UnusableKey as error:
        raise BadSetting(f"WALSH_SIGNING_KEY: {error}") from None
    return Signer(
        RequestSigner(key=key, agent=options.signature_agent, form=options.signature_form)
    )


def read_key(path: Path) -> PrivateKey:
    """Return the private key in a file. Raises UnusableKey."""
    from walsh_scrapy.policy.signing import BadKey, PrivateKey  # noqa: PLC0415 - as above

    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            pem = file.read(_MAX_KEY_BYTES) if stat.S_ISREG(mode) else b""
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise UnusableKey(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UnusableKey(
            f"{path} is open to other users of this machine (mode {stat.S_IMODE(mode):o}); "
            f"run: chmod 600 {path}"
        )
    try:
        return PrivateKey.from_pem(pem)
    except BadKey as error:
        raise UnusableKey(f"{path} {error}") from None


# Bodies with a Content-Encoding, or cut off


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
        reason = f"the body from {host_of(response.url)} is not {announced} as announced: {problem}"
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
        raise BadAnswer(response, f"the body from {host_of(response.url)} is {coding}")
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
