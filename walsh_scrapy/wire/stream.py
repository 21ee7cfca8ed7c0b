"""Connections as streams of bytes: TCP, made to the addresses of a host after RFC 8305, and TLS.

Certificates are verified, and sessions resumed (decisions 22 and 26). The verification is a
callback of OpenSSL. Only a callback gets the reason during the handshake; the error after it only
says "certificate verify failed".
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import aiohappyeyeballs
from OpenSSL import SSL
from scrapy.utils.datatypes import LocalCache
from service_identity import CertificateError, VerificationError
from service_identity.cryptography import (
    verify_certificate_hostname,
    verify_certificate_ip_address,
)

from walsh_scrapy.wire.unreachable import (
    BadCertificate,
    NoSecureConnection,
    certificate_flaw,
    tls_error,
    wrong_host,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.x509 import Certificate
    from OpenSSL.crypto import X509

    from walsh_scrapy.wire.names import Addresses

T = TypeVar("T")

#: Seconds after which the next address is tried beside one that has not answered (RFC 8305 5).
ATTEMPT_DELAY: Final = 0.25
#: Most bytes that are read at once.
CHUNK: Final = 65_536


class Stream(Protocol):
    """A connection, with or without TLS."""

    @property
    def peer(self) -> str:
        """The address of the other end."""

    @property
    def has_unread(self) -> bool:
        """True if there is something to read, the end of the stream included."""

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Raises OSError if the connection is broken."""

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises OSError if the connection is broken."""

    def close(self) -> None:
        """Close the connection at once; the other end sees it in order, without a reset."""


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
        """Connect to one of the addresses: both families, the next after a quarter of a second.

        Every attempt is closed before this returns, except the one that was made first. Raises
        OSError; its ``errno`` is None if the attempts failed for different reasons.
        """
        local = None
        if bind_address is not None:
            host, port = bind_address
            local = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        connected = await aiohappyeyeballs.start_connection(
            addresses.infos, local_addr_infos=local, happy_eyeballs_delay=ATTEMPT_DELAY
        )
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return cls(connected)
        except OSError:  # it was reset at once
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
        """Return the next bytes, or b"" at the end. Raises OSError if the connection is broken."""
        return await self._loop.sock_recv(self._socket, CHUNK)

    def send_last(self, data: bytes) -> None:
        """Send what can be sent at once, before ``close``."""
        with suppress(OSError):
            self._socket.send(data)

    def close(self) -> None:
        """Close the connection at once."""
        self._socket.close()


#: By their names in Scrapy's settings.
VERSIONS: Final = {
    "TLSv1.0": SSL.TLS1_VERSION,
    "TLSv1.1": SSL.TLS1_1_VERSION,
    "TLSv1.2": SSL.TLS1_2_VERSION,
    "TLSv1.3": SSL.TLS1_3_VERSION,
}
#: Old servers that know no secure renegotiation are talked to, as by Scrapy and browsers; we never
#: renegotiate. pyOpenSSL has no name for SSL_OP_LEGACY_SERVER_CONNECT.
_LEGACY_SERVERS: Final = 0x4
#: Hosts whose last session is kept, those first met go first. A session takes a few kilobytes.
MOST_SESSIONS: Final = 2000


class Tls:
    """Makes secure connections that trust the signers of this machine; keeps their sessions.

    ``least`` and ``most`` are names of ``VERSIONS``: 1.2 and the newest unless they are given.
    ``ciphers`` is a list in OpenSSL's format.
    """

    def __init__(
        self, least: str | None = None, most: str | None = None, ciphers: str = "DEFAULT"
    ) -> None:
        self._context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        self._context.set_default_verify_paths()
        self._context.set_options(_LEGACY_SERVERS)
        self._context.set_min_proto_version(VERSIONS[least or "TLSv1.2"])
        if most is not None:
            self._context.set_max_proto_version(VERSIONS[most])
        self._context.set_cipher_list(ciphers.encode())
        self._context.set_alpn_protos([b"http/1.1"])
        self._sessions: LocalCache[tuple[str, int], SSL.Session] = LocalCache(MOST_SESSIONS)

    async def secure(self, stream: TcpStream, host: str, port: int) -> TlsStream:
        """Make a connection secure, by the last session of its host if there is one.

        Raises BadCertificate, NoSecureConnection or OSError.
        """
        connection = SSL.Connection(self._context, None)
        if not is_address(host):
            connection.set_tlsext_host_name(host.encode("ascii"))
        verification = Verification(host)
        connection.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, verification)
        if session := self._sessions.get((host, port)):
            connection.set_session(session)
        connection.set_connect_state()
        secure = TlsStream(stream, connection, host)
        try:
            await secure.handshake()
        except BaseException as error:
            # A session that the server no longer knows must not be offered again.
            self._sessions.pop((host, port), None)
            if verification.flaw:
                raise BadCertificate(host, verification.flaw) from error
            raise
        return secure

    def keep_session(self, stream: TlsStream, host: str, port: int) -> None:
        """Keep the session of a connection after a response: TLS 1.3 tickets come with it."""
        if session := stream.session:
            self._sessions[host, port] = session


class TlsStream:
    """The client's side of TLS over a TCP connection."""

    def __init__(self, stream: TcpStream, connection: SSL.Connection, host: str) -> None:
        self._stream = stream
        self._connection = connection
        self._host = host
        self.peer: str = stream.peer

    @property
    def has_unread(self) -> bool:
        """True if there is something to read, the end of the stream included."""
        return self._connection.pending() > 0 or self._stream.has_unread

    @property
    def session(self) -> SSL.Session | None:
        """The session to offer to the host next time."""
        return self._connection.get_session()

    @property
    def certificate(self) -> object:
        """The certificate of the host, as pyOpenSSL has it."""
        return self._connection.get_peer_certificate()

    async def handshake(self) -> None:
        """Do the handshake. Raises NoSecureConnection or OSError."""
        try:
            await self._run(self._connection.do_handshake)
        except (SSL.ZeroReturnError, SSL.SysCallError) as error:
            reason = "the server closed the connection"
            raise NoSecureConnection(self._host, reason) from error

    async def send(self, data: bytes) -> None:
        """Send all of ``data``. Raises NoSecureConnection or OSError."""
        # A write of pyOpenSSL takes all or nothing of at most 2 GiB, far more than a request has.
        await self._run(lambda: self._connection.send(data))

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" at the end. Raises NoSecureConnection or OSError."""
        try:
            return await self._run(lambda: self._connection.recv(CHUNK))
        except (SSL.ZeroReturnError, SSL.SysCallError):
            return b""  # with or without the closing alert, which many servers leave out

    def close(self) -> None:
        """Send the closing alert, and close the connection without waiting for the other end's.

        Without the alert OpenSSL would not resume the session.
        """
        with suppress(SSL.Error):
            self._connection.shutdown()
            self._stream.send_last(self._connection.bio_read(CHUNK))
        self._stream.close()

    async def _run(self, operation: Callable[[], T]) -> T:
        """Repeat an operation of OpenSSL while it wants bytes of the other end."""
        while True:
            try:
                result = operation()
            except SSL.WantReadError:
                await self._flush()
                if data := await self._stream.receive():
                    self._connection.bio_write(data)
                else:
                    self._connection.bio_shutdown()
            except (SSL.ZeroReturnError, SSL.SysCallError):
                raise
            except SSL.Error as error:
                await self._flush()  # the alert that tells the server why
                raise tls_error(error, self._host) or error from error
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        """Send what OpenSSL has written."""
        while True:
            try:
                data = self._connection.bio_read(CHUNK)
            except SSL.WantReadError:
                return
            await self._stream.send(data)


class Verification:
    """Verifies the certificates that a host shows in one handshake, and keeps what is wrong."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.flaw = ""  #: why a certificate is not valid; empty if all of them are

    def __call__(self, _: SSL.Connection, shown: X509, code: int, depth: int, ok: int) -> bool:
        """Return True if one certificate of the chain is valid: OpenSSL's callback."""
        self.flaw = self.flaw or self._flaw(shown, code, depth, valid=bool(ok))
        return not self.flaw

    def _flaw(self, shown: X509, code: int, depth: int, *, valid: bool) -> str:
        """Return what is wrong with a certificate of the chain; empty if it is valid."""
        try:
            certificate = shown.to_cryptography()
            if not valid:
                return certificate_flaw(code, certificate, is_leaf=depth == 0)
            return "" if depth or _is_for(certificate, self._host) else wrong_host(certificate)
        except Exception:  # noqa: BLE001 - a server's bytes: unreadable is invalid
            return "cannot be read"


def is_address(host: str) -> bool:
    """Return True if a host is an IP address, which has no SNI and another kind of name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_for(certificate: Certificate, host: str) -> bool:
    try:
        if is_address(host):
            verify_certificate_ip_address(certificate, host)
        else:
            verify_certificate_hostname(certificate, host)
    except (CertificateError, VerificationError):
        return False
    return True
