"""One client's connection to the loopback web: plain HTTP, or TLS in a CONNECT tunnel."""

import asyncio
import contextlib
import time
from dataclasses import replace
from ssl import SSLContext
from typing import Final

from walsh_scrapy.testing.directory import Directory
from walsh_scrapy.testing.hit import Hit, Log
from walsh_scrapy.testing.http1 import MalformedRequestError, hit_of, parse_request
from walsh_scrapy.testing.responsewriter import ResponseWriter

_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


class _NoHandshakeError(Exception):
    """The client rejected the certificate, or left, before the TLS handshake was complete."""


class Connection:
    """Answers the requests of one connection, one after the other, until one side closes it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        directory: Directory,
        log: Log,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._directory = directory
        self._log = log
        self._scheme = "http"  # of targets that name none; https in a tunnel

    async def serve(self) -> None:
        """Answer until the connection ends. Raises the exceptions of the test's pages."""
        try:
            while await self._answer():
                pass
        except _NoHandshakeError:
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
            client = self._writer.get_extra_info("peername")[1]
            hit = hit_of(request, client, self._scheme)
        except (MalformedRequestError, ValueError, asyncio.LimitOverrunError):
            self._writer.write(_BAD_REQUEST)
            return False
        if hit.method == "CONNECT" and (context := self._directory.context_for(hit)):
            return await self._open_tunnel(hit, context)
        hit, page = self._directory.page_for(hit)
        key = self._log.open(hit)

        def publish(response: ResponseWriter) -> None:
            self._log.close(key, _with_response(hit, response))

        reusable = await ResponseWriter(self._reader, self._writer, publish).send(page, hit)
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
            raise _NoHandshakeError from error
        finally:
            status = 200 if secured else 0
            self._log.close(key, replace(hit, ended=ended, status=status, complete=secured))
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
