"""One client's connection to a web of a test: plain HTTP, TLS, or TLS in a CONNECT tunnel."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from ssl import SSLContext, SSLObject
from typing import Final

from walsh_scrapy.testing.connections import FAILED, FULL, RESUMED
from walsh_scrapy.testing.directory import Directory, VirtualHosts
from walsh_scrapy.testing.hit import Hit, SharedLog
from walsh_scrapy.testing.http1 import MalformedRequestError, ResponseWriter, hit_of, parse_request

_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Connection:
    """Answers the requests of one connection, one after the other, until one side closes it.

    `client` is the remote port, `scheme` that of targets that name none. `shaken` is told how TLS
    in a tunnel began. `latency` are seconds by which each response comes later.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pages: Directory | VirtualHosts,
        log: SharedLog[Hit],
        *,
        client: int,
        scheme: str = "http",
        shaken: Callable[[str], None] = lambda _: None,
        latency: float = 0.0,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._pages = pages
        self._log = log
        self._client = client
        self._scheme = scheme
        self._shaken = shaken
        self._latency = latency

    async def serve(self) -> None:
        """Answer until the connection ends. Raises the exceptions of the test's pages."""
        try:
            while await self._answer():
                pass
        except NoHandshakeError:
            return  # asyncio never reports the end of such a connection, so do not wait for it
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left; the log shows what it got
        finally:
            self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _answer(self) -> bool:
        """Read one request and answer it; return True if the connection stays open."""
        try:
            request = parse_request(await self._reader.readuntil(b"\r\n\r\n"))
            await self._reader.readexactly(int(request.value("content-length") or 0))
            hit = hit_of(request, self._client, self._scheme)
        except (MalformedRequestError, ValueError, asyncio.LimitOverrunError):
            self._writer.write(_BAD_REQUEST)
            return False
        if hit.method == "CONNECT" and (context := self._pages.context_for(hit)):
            return await self._open_tunnel(hit, context)
        hit, page = self._pages.page_for(hit)
        key = self._log.open(hit)

        def publish(response: ResponseWriter) -> None:
            self._log.change(key, lambda _: _with_response(hit, response))

        response = ResponseWriter(self._reader, self._writer, publish)
        reusable = await response.send(page, hit, self._latency)
        return reusable and request.keeps_alive

    async def _open_tunnel(self, hit: Hit, context: SSLContext) -> bool:
        """Open a tunnel and start TLS in it. If the handshake fails, the log shows status 0."""
        key, secured = self._log.open(hit), False
        # If the client leaves now, this is the last moment at which it was known to be connected.
        ended = time.monotonic()
        self._writer.write(_ESTABLISHED)
        try:
            await self._writer.start_tls(context)
            secured = True
        except OSError as error:
            raise NoHandshakeError from error
        finally:
            self._shaken(handshake_of(self._writer) or FAILED)
            done = replace(hit, ended=ended, status=200 if secured else 0, complete=secured)
            self._log.change(key, lambda _: done)
        self._scheme = "https"
        return True


def _with_response(hit: Hit, response: ResponseWriter) -> Hit:
    return replace(
        hit,
        ended=response.alive,
        complete=response.complete,
        status=response.status,
        answer=response.headers,
        size=response.size,
    )


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
