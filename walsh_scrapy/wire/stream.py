"""Connections as streams of bytes: TCP to the addresses of a host (by RFC 8305), and TLS.

Certificates are always verified. TLS sessions are resumed, because a crawl that has only one open
connection must connect to a host again and again (decision 26).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import aiohappyeyeballs
from scrapy.utils.datatypes import LocalCache

from walsh_scrapy.wire.unreachable import NoSecureConnection, no_handshake

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")

#: If an address has not answered after this time, the next one is tried as well (RFC 8305 5).
ATTEMPT_DELAY_SECONDS: Final = 0.25
#: The maximum number of bytes that are read at once. One-byte chunks of so many bytes take 30 ms to
#: parse, and meanwhile the event loop does nothing else.
CHUNK_BYTES: Final = 16_384
#: The maximum number of bytes that a server may send beyond twice the bytes of its data: records of
#: TLS and the framing of bodies, each.
MAX_OVERHEAD_BYTES: Final = 1024 * 1024


#: As ``socket.getaddrinfo`` returns it: family, type, protocol, canonical name, address.
AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]


class Addresses(NamedTuple):
    """The addresses of a name. Connections go to these, so what was checked is what is used."""

    infos: tuple[AddressInfo, ...]  #: in the order of RFC 6724, as the system sorts them

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses as text, without ports."""
        return tuple(str(info[4][0]) for info in self.infos)


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
                raise no_handshake(error, self._host) from error
            else:
                await self._flush()
                return result

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
