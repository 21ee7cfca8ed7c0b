"""A TCP connection as a stream of bytes, made to the addresses of a host after RFC 8305."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import aiohappyeyeballs

if TYPE_CHECKING:
    from walsh_scrapy.wire.names import Addresses

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
