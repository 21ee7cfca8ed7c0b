"""One client's connection to the loopback web: requests in the clear, or in a tunnel with TLS."""

import asyncio
import contextlib
import time
from dataclasses import replace
from ssl import SSLContext
from typing import Final

from walsh_scrapy.testing.directory import Directory
from walsh_scrapy.testing.exchange import Exchange
from walsh_scrapy.testing.hit import Hit, Log
from walsh_scrapy.testing.wire import MalformedRequestError, hit_of, parse_request

_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


class _NoHandshakeError(Exception):
    """The client did not like the certificate, or left, before TLS was spoken."""


class Connection:
    """Answers its requests one after the other, until one side has had enough."""

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
        self._scheme = "http"  # of what is asked for without saying so; https in a tunnel

    async def serve(self) -> None:
        """Answer until the end; what a page of the test's own raises comes out of here."""
        try:
            while await self._answer():
                pass
        except _NoHandshakeError:
            return  # asyncio would not tell of the end of such a connection: nothing to wait for
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left: what it got stands in the log
        finally:
            self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _answer(self) -> bool:
        """Read one request and answer it; return whether the connection goes on."""
        try:
            request = parse_request(await self._reader.readuntil(b"\r\n\r\n"))
            await self._reader.readexactly(int(request.value("content-length") or 0))
            client = self._writer.get_extra_info("peername")[1]
            hit = hit_of(request, client, self._scheme)
        except (MalformedRequestError, ValueError, asyncio.LimitOverrunError):
            self._writer.write(_BAD_REQUEST)
            return False
        if hit.method == "CONNECT" and (context := self._directory.context_for(hit)):
            return await self._enter(hit, context)
        hit, page = self._directory.page_for(hit)
        key = self._log.open(hit)

        def publish(told: Exchange) -> None:
            self._log.close(key, _told(hit, told))

        goes_on = await Exchange(self._reader, self._writer, publish).send(page, hit)
        return goes_on and request.keeps_alive

    async def _enter(self, hit: Hit, context: SSLContext) -> bool:
        """Open a tunnel and be its other end. One that the client does not enter has status 0."""
        key, entered = self._log.open(hit), False
        # The last moment at which the client was surely there, if it then leaves.
        ended = time.monotonic()
        self._writer.write(_ESTABLISHED)
        try:
            await self._writer.start_tls(context)
            entered = True
        except OSError as error:
            raise _NoHandshakeError from error
        finally:
            status = 200 if entered else 0
            self._log.close(key, replace(hit, ended=ended, status=status, complete=entered))
        self._scheme = "https"
        return True


def _told(hit: Hit, exchange: Exchange) -> Hit:
    return replace(
        hit,
        ended=exchange.alive,
        complete=exchange.complete,
        status=exchange.status,
        answer=exchange.headers,
        size=exchange.size,
    )
