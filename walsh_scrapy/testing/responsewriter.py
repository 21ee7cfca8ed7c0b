"""Writes one response to a socket, and records when the client was last known to be connected."""

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Final

from walsh_scrapy.testing.hit import Headers, Hit
from walsh_scrapy.testing.http1 import render_head
from walsh_scrapy.testing.reply import Fault, Page, Raw, Reply, reply_of

_PIECE: Final = 1 << 16
_SLICE_SECONDS: Final = 0.02
_BODILESS: Final = frozenset({204, 304})


class AbandonedError(ConnectionError):
    """The client has left before the end of the response."""


class ResponseWriter:
    """Sends one reply.

    `publish` is called before the last write, so a client that has read a response finds it in the
    log, and again if the response fails after all.
    `alive` is the last moment at which the client was known to be connected (`time.monotonic`).
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        publish: Callable[["ResponseWriter"], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._publish = publish
        self.alive = time.monotonic()
        self.complete = False
        self.size = 0
        self.status = 0
        self.headers: Headers = ()
        # With a limit of 0, drain() waits until the kernel has every byte, so all that was written
        # is sent. With TLS the limit is 1: at 0 asyncio takes an empty buffer for a full one.
        self._in_tls = writer.get_extra_info("sslcontext") is not None
        writer.transport.set_write_buffer_limits(high=int(self._in_tls), low=0)

    async def send(self, page: Page, hit: Hit, latency: float = 0.0) -> bool:
        """Send the page's reply, so many seconds later than it says.

        Return True if the connection can carry another.
        """
        try:
            reply = reply_of(page, hit)
            await self._pause(latency)
            if isinstance(reply, Raw):
                return await self._send_raw(reply)
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
        await self._send_steps(
            _steps(head, body, reply.drip), len(body), complete=reply.fault is None
        )

    async def _send_raw(self, raw: Raw) -> bool:
        self.status = raw.status
        steps = raw.steps()
        await self._send_steps(steps, sum(len(data) for _, data in steps), complete=True)
        if raw.then == "reset":
            self._hang_up(Fault.RESET)
        return raw.then == "keep"

    async def _send_steps(
        self, steps: Sequence[tuple[float, bytes]], size: int, *, complete: bool
    ) -> None:
        """Write pieces, each after its pause; before the last one the response is published."""
        *earlier, (pause, last) = steps
        for seconds, data in earlier:
            await self._pause(seconds)
            await self._write(data)
        await self._pause(pause)
        self.size, self.complete = size, complete
        await self._write(last, publish=True)

    async def _write(self, data: bytes, *, publish: bool = False) -> None:
        # Taken before the write: the client may have read the data when the write returns.
        self.alive = time.monotonic()
        if publish:
            self._publish(self)
        self._writer.write(data)
        await self._writer.drain()
        if self._in_tls:
            await asyncio.sleep(0)  # because drain() returns before asyncio sees a closed socket

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
    """Return the pieces to write, each with the seconds to wait before it."""
    size = max(1, round(len(body) * _SLICE_SECONDS / drip)) if drip else _PIECE
    cut = [body[start : start + size] for start in range(0, len(body), size)]
    if drip:
        return [(0.0, head), *((drip * len(piece) / len(body), piece) for piece in cut)]
    first, *others = cut or [b""]
    return [(0.0, head + first), *((0.0, piece) for piece in others)]


def _says_close(headers: Headers) -> bool:
    return ("connection", "close") in {(name.lower(), value.lower()) for name, value in headers}
