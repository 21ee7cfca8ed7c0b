"""One HTTP/1.1 exchange over a stream, parsed by h11 (RFC 9112).

The head of a response has a maximum size. Lines that are no header fields are skipped, as browsers
do, because h11 would refuse the whole response.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

import h11
from scrapy.exceptions import DownloadFailedError, ResponseDataLossError

from walsh_scrapy.exceptions import TooSlow
from walsh_scrapy.wire.stalls import limit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from walsh_scrapy.wire.stream import Stream

#: A response is aborted if it was slower than `MIN_BYTES_PER_SECOND` for this many seconds.
SLOW_SECONDS: Final = 20.0
MIN_BYTES_PER_SECOND: Final = 100
#: The maximum size of all heads of one response, informational ones (1xx) included.
MAX_HEAD_BYTES: Final = 128 * 1024
#: The maximum number of lines of one head.
MAX_HEAD_LINES: Final = 500

_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
#: A header field that h11 accepts, or the continuation line of a field.
_FIELD: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\x00\r]*|[ \t][^\x00\r]*")
_NO_FRAMING: Final = re.compile(
    rb"(?:content-length:|transfer-encoding:[ \t]*identity)[ \t]*", re.IGNORECASE
)
_CHUNKED: Final = re.compile(
    rb"transfer-encoding:[ \t]*chunked(?:[ \t]*,[ \t]*chunked)*[ \t]*", re.IGNORECASE
)


class HttpExchange:
    """Sends one request and reads its response. Each exchange over a stream has its own object."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=2 * MAX_HEAD_BYTES)
        self._measured_since: float | None = None  # None before the first byte
        self._measured_bytes = 0

    @property
    def is_reusable(self) -> bool:
        """True if the exchange is over and the stream can carry another one."""
        done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        return done and self._http.trailing_data == (b"", False)  # no surplus bytes, not closed

    @property
    def is_over(self) -> bool:
        """True if the whole response was read."""
        return self._http.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)

    async def send(
        self, method: bytes, target: bytes, fields: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> None:
        """Send a request.

        Raises OSError, and DownloadFailedError if the request is not valid HTTP.
        """
        try:
            data = self._http.send(h11.Request(method=method, target=target, headers=[*fields]))
            data = (data or b"") + (self._http.send(h11.Data(body)) or b"" if body else b"")
            data += self._http.send(h11.EndOfMessage()) or b""
        except h11.LocalProtocolError as error:
            raise DownloadFailedError(f"the request cannot be sent: {error}") from None
        await self._stream.send(data)

    async def head(self) -> h11.Response:
        """Return the head of the final response; informational responses (1xx) are skipped.

        Raises OSError, TooSlow, and DownloadFailedError if the response is not HTTP or its head is
        too large.
        """
        data = bytearray()
        size = 0  # of all heads so far
        while True:
            search_from = 0
            while (end := _HEAD_END.search(data, search_from)) is None:
                _check_size(size + len(data))
                search_from = max(0, len(data) - 3)  # a piece may begin within the end
                piece = await self._receive()
                if not piece:
                    raise DownloadFailedError("the server closed the connection without a response")
                data += piece
            size += end.end()
            _check_size(size)
            event = self._parse_head(_without_invalid_lines(bytes(data[: end.start()])))
            del data[: end.end()]
            if isinstance(event, h11.Response):
                if data:
                    self._http.receive_data(bytes(data))
                return event

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body as they arrive.

        Raises TooSlow, and ResponseDataLossError if the body is cut off.
        """
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise ResponseDataLossError(str(error)) from error
            if event is h11.NEED_DATA:
                try:
                    piece = await self._receive()
                except OSError as error:
                    raise ResponseDataLossError(str(error)) from error
                self._http.receive_data(piece)
            elif isinstance(event, h11.Data):
                yield bytes(event.data)
            else:
                return

    async def _receive(self) -> bytes:
        """Return the next bytes. Raise TooSlow if the response, once begun, is too slow."""
        clock = asyncio.get_running_loop().time
        if self._measured_since is None:
            piece = await self._stream.receive()
            self._measured_since = clock()
            return piece
        try:
            async with limit(self._measured_since + SLOW_SECONDS - clock()):
                piece = await self._stream.receive()
        except TimeoutError as error:
            if error.errno is not None:  # ETIMEDOUT of the system, not our limit
                raise
            rate = f"less than {MIN_BYTES_PER_SECOND} bytes per second came for {SLOW_SECONDS:g} s"
            raise TooSlow(rate) from error
        self._measured_bytes += len(piece)
        if self._measured_bytes >= MIN_BYTES_PER_SECOND * SLOW_SECONDS:
            self._measured_since = clock()
            self._measured_bytes = 0
        return piece

    def _parse_head(self, head: bytes) -> h11.Response | h11.InformationalResponse:
        try:
            self._http.receive_data(head)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise DownloadFailedError(f"the response is not HTTP: {error}") from None
        if not isinstance(event, h11.Response | h11.InformationalResponse):
            raise DownloadFailedError("the response is not HTTP")
        return event


def _check_size(size: int) -> None:
    if size > MAX_HEAD_BYTES:
        raise DownloadFailedError(
            f"the head of the response is longer than {MAX_HEAD_BYTES // 1024} KiB"
        )


def _without_invalid_lines(head: bytes) -> bytes:
    """Return a head without the lines that are no header fields.

    Some servers send lines without a colon or with a space in the name. Browsers skip such lines.
    Raises DownloadFailedError if there are too many lines.
    """
    status, *lines = [line.removesuffix(b"\r") for line in head.split(b"\n")]
    if len(lines) > MAX_HEAD_LINES:
        raise DownloadFailedError(f"the head of the response has more than {MAX_HEAD_LINES} lines")
    fields: list[bytes] = []
    for line in lines:
        if _FIELD.fullmatch(line) and (fields or line[:1] not in b" \t"):
            fields.append(line)
    return b"\r\n".join((status, *_normalize_framing(fields), b"", b""))


def _normalize_framing(fields: list[bytes]) -> list[bytes]:
    """Return header fields whose framing of the body h11 accepts, with the meaning for browsers.

    As in browsers and curl, an empty Content-Length and the coding `identity` are ignored, and a
    repeated `chunked` is read as one. The connection is closed after such a response.
    """
    normalized = [field for field in fields if not _NO_FRAMING.fullmatch(field)]
    codings = [field for field in normalized if _CHUNKED.fullmatch(field)]
    if len(codings) > 1 or any(b"," in coding for coding in codings):
        normalized = [field for field in normalized if field not in codings]
        normalized.append(b"Transfer-Encoding: chunked")
    elif len(normalized) == len(fields):
        return fields
    return [*normalized, b"Connection: close"]
