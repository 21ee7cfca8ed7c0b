"""One HTTP/1.1 exchange over a connection, parsed by h11 (RFC 9112).

A connection is a stream of bytes: TCP to the addresses of a host (by RFC 8305), and TLS.
Certificates are always verified. TLS sessions are resumed, because a crawl that has only one open
connection must connect to a host again and again (decision 26).

The head of a response has a maximum size. Lines that are no header fields are skipped, as browsers
do, because h11 would refuse the whole response.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

import aiohappyeyeballs
import h11
from scrapy.exceptions import DownloadFailedError, ResponseDataLossError
from scrapy.utils.datatypes import LocalCache

from walsh_scrapy.exceptions import BadFraming, TooSlow
from walsh_scrapy.wire.endpoints import MISSING_ISSUER, NoSecureConnection, no_handshake
from walsh_scrapy.wire.stalls import limit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from walsh_scrapy.wire.endpoints import Addresses

T = TypeVar("T")

#: If an address has not answered after this time, the next one is tried as well (RFC 8305 5).
ATTEMPT_DELAY_SECONDS: Final = 0.25
#: The maximum number of bytes that are read at once. One-byte chunks of so many bytes take 30 ms to
#: parse, and meanwhile the event loop does nothing else.
CHUNK_BYTES: Final = 16_384
#: The maximum number of bytes that a server may send beyond twice the bytes of its data: records of
#: TLS and the framing of bodies, each.
MAX_OVERHEAD_BYTES: Final = 1024 * 1024


class Stream(Protocol):
    """A connection, with or without TLS."""

    @property
    def peer(self) -> str:
        """The address of the other end."""

    @property
    def has_unread(self) -> bool:
        """True if there are unread bytes, or the other end has closed the connection."""

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Raises OSError if the connection is broken."""

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises OSError if the connection is broken."""

    def close(self) -> None:
        """Close the connection at once, without a reset."""


class TcpStream:
    """A connected TCP socket."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self.peer: str = connected.getpeername()[0]

    @classmethod
    async def open(
        cls, addresses: Addresses, bind_address: tuple[str, int] | None = None
    ) -> TcpStream:
        """Connect to one of the addresses, of both families, as RFC 8305 describes it.

        When this returns, all other attempts are closed. Raises OSError; its ``errno`` is None if
        the attempts failed for different reasons.
        """
        local = None
        if bind_address is not None:
            host, port = bind_address
            local = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        connected = await aiohappyeyeballs.start_connection(
            addresses.infos, local_addr_infos=local, happy_eyeballs_delay=ATTEMPT_DELAY_SECONDS
        )
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return cls(connected)
        except OSError:  # the connection was reset immediately
            connected.close()
            raise

    @property
    def has_unread(self) -> bool:
        """True if there is something to read, the end of the stream included."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            pass
        return True

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Raises OSError if the connection is broken."""
        await self._loop.sock_sendall(self._socket, data)

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises OSError if the connection is broken.

        Other tasks run first, and time limits end: ``sock_recv`` does not wait while there are
        bytes.
        """
        await asyncio.sleep(0)
        return await self._loop.sock_recv(self._socket, CHUNK_BYTES)

    def send_last(self, data: bytes) -> None:
        """Send what can be sent without waiting; call it directly before ``close``."""
        with suppress(OSError):
            self._socket.send(data)

    def close(self) -> None:
        """Close the connection at once."""
        self._socket.close()


#: TLS versions by their names in Scrapy's settings.
VERSIONS: Final = {
    "TLSv1.0": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
#: SSL_OP_LEGACY_SERVER_CONNECT, which has no name in Python 3.11: accept old servers without secure
#: renegotiation, as Scrapy and browsers do. This client never renegotiates.
_LEGACY_SERVERS: Final = 0x4
#: The number of hosts whose last TLS session is kept. A session takes a few kilobytes.
MAX_SESSIONS: Final = 2000


class Tls:
    """Adds TLS to connections, with the certificate authorities of this machine; keeps sessions.

    ``min_version`` (default: 1.2) and ``max_version`` (default: the newest) are keys of
    ``VERSIONS``. ``ciphers`` is a list in OpenSSL's format; ssl.SSLError is raised if it names no
    cipher.
    """

    def __init__(
        self,
        min_version: str | None = None,
        max_version: str | None = None,
        ciphers: str = "DEFAULT",
    ) -> None:
        # Not ssl.create_default_context(): since Python 3.13 it refuses certificates that browsers
        # accept.
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.set_default_verify_paths()
        self._context.hostname_checks_common_name = False  # RFC 9110 4.3.4
        self._context.options |= _LEGACY_SERVERS
        self._context.minimum_version = VERSIONS[min_version or "TLSv1.2"]
        if max_version is not None:
            self._context.maximum_version = VERSIONS[max_version]
        self._context.set_ciphers(ciphers)
        self._context.set_alpn_protocols(["http/1.1"])
        self._sessions: LocalCache[tuple[str, int], ssl.SSLSession] = LocalCache(MAX_SESSIONS)

    def log_keys(self, file: str) -> None:
        """Append the keys of all sessions to a file, so that a tool can decrypt the traffic."""
        self._context.keylog_filename = file

    async def secure(self, stream: TcpStream, host: str, port: int) -> TlsStream:
        """Add TLS to a connection; resume the last session with the host if there is one.

        Raises NoHandshake or OSError.
        """
        secure = TlsStream(stream, self._context, host, self._sessions.get((host, port)))
        try:
            await secure.handshake()
        except BaseException:
            # A session that the server no longer knows must not be offered again.
            self._sessions.pop((host, port), None)
            raise
        return secure

    def keep_session(self, stream: TlsStream, host: str, port: int) -> None:
        """Keep the session of a connection. Call it after a response: TLS 1.3 tickets come late."""
        if session := stream.session:
            self._sessions[host, port] = session


#: The parts of a name in a certificate that tell who it is, the best one first.
_NAME_PARTS: Final = ("commonName", "organizationalUnitName", "organizationName")
#: The maximum length of the name of an issuer, which a server may choose.
MAX_ISSUER_CHARACTERS: Final = 100


class TlsStream:
    """The client's side of TLS over a TCP connection."""

    def __init__(
        self, stream: TcpStream, context: ssl.SSLContext, host: str, session: ssl.SSLSession | None
    ) -> None:
        self._stream = stream
        self._host = host
        self._received = ssl.MemoryBIO()
        self._to_send = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._received,
            self._to_send,
            server_hostname=host.encode("ascii"),  # ssl would encode text by IDNA 2003
            session=session,
        )
        self.peer: str = stream.peer
        self._received_bytes = 0
        self._data_bytes = 0  # that the received records had

    @property
    def has_unread(self) -> bool:
        """True if there are unread bytes, or the other end has closed the connection."""
        return self._tls.pending() > 0 or self._stream.has_unread

    @property
    def session(self) -> ssl.SSLSession | None:
        """The session to offer to the host next time."""
        return self._tls.session

    @property
    def certificate(self) -> bytes:
        """The certificate of the host (DER)."""
        return self._tls.getpeercert(binary_form=True) or b""

    @property
    def version(self) -> str | None:
        """The version of TLS, as OpenSSL names it."""
        return self._tls.version()

    @property
    def cipher(self) -> str | None:
        """The cipher, as OpenSSL names it."""
        cipher = self._tls.cipher()
        return cipher[0] if cipher else None

    async def handshake(self) -> None:
        """Do the handshake. Raises NoHandshake or OSError."""
        try:
            await self._run(self._tls.do_handshake)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError) as error:
            reason = "the server closed the connection"
            raise NoSecureConnection(self._host, reason) from error

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Raises NoSecureConnection or OSError."""
        rest = memoryview(data)
        while rest:  # OpenSSL accepts one record at a time
            rest = rest[await self._run(partial(self._tls.write, rest)) :]

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises NoSecureConnection or OSError."""
        try:
            return await self._run(self._read_records)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""  # also without the closing alert, which many servers do not send

    def _read_records(self) -> bytes:
        """Return the data of all records that have come, which may have one byte each.

        b"" is the end: OpenSSL returns it again and again after the closing alert.
        """
        data = self._tls.read(CHUNK_BYTES)
        records = [data]
        with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError, ssl.SSLEOFError):
            while data:
                data = self._tls.read(CHUNK_BYTES)
                records.append(data)
        data = b"".join(records)
        self._data_bytes += len(data)
        return data

    def close(self) -> None:
        """Send the closing alert, and close the connection without waiting for the server's alert.

        Without the closing alert OpenSSL would not resume the session.
        """
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._stream.send_last(self._to_send.read())
        self._stream.close()

    async def _run(self, operation: Callable[[], T]) -> T:
        """Repeat an operation of OpenSSL until it needs no more bytes from the server."""
        while True:
            try:
                result = operation()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive_records()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                raise
            except ssl.SSLError as error:
                await self._flush()  # sends the alert with the reason to the server
                raise no_handshake(error, self._host, self._missing_issuer(error)) from error
            else:
                await self._flush()
                return result

    def _missing_issuer(self, error: ssl.SSLError) -> str:
        """Return who signed the last certificate of a chain without its end; "" if nobody knows."""
        if not isinstance(error, ssl.SSLCertVerificationError):
            return ""
        if error.verify_code not in MISSING_ISSUER:
            return ""
        # SSLObject itself has the chain of a failed handshake since Python 3.13.
        inner = self._tls._sslobj  # type: ignore[attr-defined]  # noqa: SLF001
        with suppress(ssl.SSLError, ValueError):  # a name that cannot be decoded
            issuer = inner.get_unverified_chain()[-1].get_info()["issuer"]
            names = {part: name for attributes in issuer for part, name in attributes}
            known = [names[part] for part in _NAME_PARTS if part in names]
            return known[0][:MAX_ISSUER_CHARACTERS] if known else ""
        return ""

    async def _receive_records(self) -> None:
        """Pass the next bytes of the connection on to OpenSSL.

        Raises OSError if there are too many of them for the data that they had so far: a record may
        have one byte of data, or none.
        """
        records = await self._stream.receive()
        if not records:
            self._received.write_eof()
            return
        self._received.write(records)
        self._received_bytes += len(records)
        if self._received_bytes > 2 * self._data_bytes + MAX_OVERHEAD_BYTES:
            raise OSError(errno.EPROTO, "too many TLS records for too little data")

    async def _flush(self) -> None:
        """Send the bytes that OpenSSL has written."""
        if data := self._to_send.read():
            await self._stream.send(data)


# ---- exchanges ----

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
_FIELD: Final = re.compile(
    rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\x00\r\x0b\x0c]*|[ \t][^\x00\r\x0b\x0c]*"
)
#: The characters that h11 refuses. In a Location they become SUBSTITUTE (ASCII): a redirect without
#: Location would be another fault than the one that the server has.
_REFUSED: Final = bytes.maketrans(b"\x00\r\x0b\x0c", b"\x1a\x1a\x1a\x1a")
#: How h11 quotes bytes.
_QUOTED: Final = re.compile(r"bytearray\(b(.*)\)")
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
            reason = _QUOTED.sub(r"\1", str(error))
            raise DownloadFailedError(f"the response is not HTTP: {reason}") from None
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
    Lines with a control character that h11 refuses are skipped too, except for a Location. Raises
    DownloadFailedError if there are too many lines.
    """
    status, *lines = [line.removesuffix(b"\r") for line in head.split(b"\n")]
    if len(lines) > MAX_HEAD_LINES:
        raise DownloadFailedError(f"the head of the response has more than {MAX_HEAD_LINES} lines")
    fields: list[bytes] = []
    for raw_line in lines:
        is_location = raw_line[:9].lower() == b"location:"
        line = raw_line.translate(_REFUSED) if is_location else raw_line
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
