"""One answer on its way through a socket, and the last moment it was known to be wanted."""

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from typing import Final

from walsh_scrapy.testing.hit import Headers, Hit
from walsh_scrapy.testing.reply import Fault, Page, Reply, reply_of
from walsh_scrapy.testing.wire import render_head

_PIECE: Final = 1 << 16
_SLICE_SECONDS: Final = 0.02
_BODILESS: Final = frozenset({204, 304})


class AbandonedError(ConnectionError):
    """The client has left before the end of the answer."""


class Exchange:
    """Sends one reply; `alive` is the last moment at which the client was known to be there.

    `publish` is called before the last write: whoever has read an answer finds it in the log.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        publish: Callable[["Exchange"], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._publish = publish
        self.alive = time.monotonic()
        self.complete = False
        self.size = 0
        self.status = 0
        self.headers: Headers = ()
        # drain() then waits for an empty buffer: nothing counts as sent that the kernel has not.
        # With 0, asyncio's TLS would take an empty buffer for a full one, and never end.
        self._in_tls = writer.get_extra_info("sslcontext") is not None
        writer.transport.set_write_buffer_limits(high=int(self._in_tls), low=0)

    async def send(self, page: Page, hit: Hit) -> bool:
        """Send the page's reply; return whether the connection is good for another request."""
        try:
            reply = reply_of(page, hit)
            await self._pause(reply.delay)
            if reply.fault in (Fault.RESET, Fault.CLOSE):
                self._hang_up(reply.fault)
            else:
                await self._send(reply, hit)
        except BaseException:
            self.complete = False
            self._publish(self)
            raise
        return self.complete and not _says_close(self.headers)

    async def _send(self, reply: Reply, hit: Hit) -> None:
        body = reply.content()
        self.status, self.headers = reply.status, _framed(reply, body)
        if hit.method == "HEAD" or reply.status in _BODILESS:
            body = b""
        if reply.fault is Fault.TRUNCATE:
            body = body[: len(body) // 2]
        head = render_head(self.status, self.headers)
        *steps, (pause, last) = _steps(head, body, reply.drip)
        for seconds, data in steps:
            await self._pause(seconds)
            await self._write(data)
        await self._pause(pause)
        self.size = len(body)
        self.complete = reply.fault is None
        await self._write(last, publish=True)

    async def _write(self, data: bytes, *, publish: bool = False) -> None:
        # Before the write, not after it: the client may be reading by the time it returns.
        self.alive = time.monotonic()
        if publish:
            self._publish(self)
        self._writer.write(data)
        await self._writer.drain()
        if self._in_tls:
            await asyncio.sleep(0)  # there, drain() gives asyncio no chance to see a client leave

    async def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            await asyncio.sleep(min(_SLICE_SECONDS, end - now))
            if self._reader.at_eof() or self._writer.is_closing():
                raise AbandonedError
            self.alive = now

    def _hang_up(self, fault: Fault) -> None:
        if fault is Fault.RESET:
            raw: socket.socket = self._writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.alive = time.monotonic()
        self._publish(self)
        self._writer.transport.abort()


def _framed(reply: Reply, body: bytes) -> Headers:
    pairs = reply.header_pairs()
    if reply.status in _BODILESS or any(name.lower() == "content-length" for name, _ in pairs):
        return pairs
    return (*pairs, ("Content-Length", str(len(body))))


def _steps(head: bytes, body: bytes, drip: float) -> list[tuple[float, bytes]]:
    """Return what to write, each piece with the seconds to wait before it."""
    size = max(1, round(len(body) * _SLICE_SECONDS / drip)) if drip else _PIECE
    cut = [body[start : start + size] for start in range(0, len(body), size)]
    if drip:
        return [(0.0, head), *((drip * len(piece) / len(body), piece) for piece in cut)]
    first, *others = cut or [b""]
    return [(0.0, head + first), *((0.0, piece) for piece in others)]


def _says_close(headers: Headers) -> bool:
    return ("connection", "close") in {(name.lower(), value.lower()) for name, value in headers}
