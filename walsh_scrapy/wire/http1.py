"""One HTTP/1.1 exchange over a stream, parsed by h11 (RFC 9112).

The head of a response has a maximum size. Lines that are no header fields are skipped, as browsers
do, because h11 would refuse the whole response.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, TypeAlias

import h11
from scrapy.exceptions import DownloadFailedError, ResponseDataLossError

from walsh_scrapy.exceptions import BadFraming, TooSlow
from walsh_scrapy.wire.stalls import limit
from walsh_scrapy.wire.stream import MAX_OVERHEAD_BYTES

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
#: The maximum number of bytes of the line before each chunk, with its extensions.
MAX_CHUNK_LINE_BYTES: Final = 1024

_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
#: A header field that h11 accepts, or the continuation line of a field.
_FIELD: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\x00\r]*|[ \t][^\x00\r]*")
_NO_FRAMING: Final = re.compile(
    rb"(?:content-length:|transfer-encoding:[ \t]*identity)[ \t]*", re.IGNORECASE
)
_CHUNKED: Final = re.compile(
    rb"transfer-encoding:[ \t]*chunked(?:[ \t]*,[ \t]*chunked)*[ \t]*", re.IGNORECASE
)

_Event: TypeAlias = "h11.Event | type[h11.NEED_DATA | h11.PAUSED]"


class HttpExchange:
    """Sends one request and reads its response. Each exchange over a stream has its own object."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=2 * MAX_HEAD_BYTES)
        self._measured_since: float | None = None  # None before the first byte
        self._measured_bytes = 0
        self._framing = _Framing()

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
                    self._feed_body(bytes(data))
                return event

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, all chunks that came together in one piece.

        Raises TooSlow, and ResponseDataLossError if the body is cut off, or has more framing than
        a server needs.
        """
        chunks: list[bytes] = []
        while True:
            try:
                event = self._next_event()
            except ResponseDataLossError:
                if chunks:
                    yield b"".join(chunks)
                raise
            if isinstance(event, h11.Data):
                chunks.append(event.data)
                continue
            if chunks:
                yield b"".join(chunks)
                chunks.clear()
            if event is not h11.NEED_DATA:
                return
            try:
                piece = await self._receive()
            except OSError as error:
                raise ResponseDataLossError(str(error)) from error
            self._feed_body(piece)

    def _feed_body(self, piece: bytes) -> None:
        self._framing.received += len(piece)
        self._http.receive_data(piece)

    def _next_event(self) -> _Event:
        """Return the next event of the body.

        Raises ResponseDataLossError if the body is cut off, BadFraming if its framing is too long.
        """
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise ResponseDataLossError(str(error)) from error
        self._framing.check(event, self._http.trailing_data[0])
        return event

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


class _Framing:
    """Counts the bytes of a body that are no data: the lines of its chunks, and its trailers.

    h11 limits neither the length of a line that has come completely, nor the number of chunks.
    """

    def __init__(self) -> None:
        self.received = 0  #: bytes that h11 has got
        self._data = 0
        self._size = 0  # of the framing, as far as h11 has read

    def check(self, event: _Event, unread: bytes) -> None:
        """Raise BadFraming if a line, or all framing together, is too long.

        ``event`` is the next one of h11, and ``unread`` are the bytes that it has not read.
        """
        max_line = MAX_CHUNK_LINE_BYTES + len(b"\r\n")
        if isinstance(event, h11.Data):
            self._data += len(event.data)
        size = self.received - self._data - len(unread)
        line = size - self._size
        self._size = max(self._size, size)
        if isinstance(event, h11.Data) and event.chunk_end:
            self._size += len(b"\r\n")  # the end of the chunk, which h11 reads later
        elif isinstance(event, h11.EndOfMessage):  # this has the trailers too
            max_line = MAX_HEAD_BYTES
        elif event is h11.NEED_DATA:  # the beginning of a line is unread, or of the trailers
            line += len(unread)
            max_line = MAX_HEAD_BYTES if b"\n" in unread[2:] else max_line
        if line > max_line:
            raise BadFraming("a line of the chunked body is too long")
        if size > self._data + MAX_OVERHEAD_BYTES:
            raise BadFraming("the body is sent in too many small chunks")


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
