"""The streams of a connection that a web of a test accepted, in TLS or not."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ssl import SSLContext, SSLObject

from walsh_scrapy.testing.connections import FULL, RESUMED


class NoHandshakeError(Exception):
    """The client rejected the certificate, or left, before the TLS handshake was complete."""


@asynccontextmanager
async def streams(
    accepted: socket.socket, context: SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Give the streams of an accepted socket, and cut it at the end.

    With a context they are in TLS. Raises NoHandshakeError if its handshake fails.
    """
    made: list[asyncio.StreamWriter] = []
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader, lambda _, writer: made.append(writer))
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=context)
    except OSError as error:
        raise NoHandshakeError from error
    try:
        yield reader, made[0]
    finally:
        made[0].transport.abort()  # because closing waits for a client that does not read


def handshake_of(writer: asyncio.StreamWriter) -> str:
    """Return the kind of the TLS handshake of a connection, "" if there was none."""
    tls: SSLObject | None = writer.get_extra_info("ssl_object")
    if tls is None:
        return ""
    return RESUMED if tls.session_reused else FULL
