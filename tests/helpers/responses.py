"""Responses that come in pieces, read without a connection."""

import asyncio

from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError, ResponseDataLossError

from walsh_scrapy.wire.http1 import HttpExchange

#: The errors that refuse a response.
REFUSALS = (DownloadFailedError, DownloadTimeoutError, ResponseDataLossError)


class Pieces:
    """A stream that yields what it was given, then its end."""

    peer = "192.0.2.1"
    has_unread = False

    def __init__(self, pieces):
        self.left = [piece for piece in pieces if piece]
        self.sent = b""

    async def send(self, data):
        self.sent += data

    async def receive(self):
        return self.left.pop(0) if self.left else b""

    def close(self):
        pass


def read_response(pieces, method=b"GET"):
    """Status, body and reuse of a response that comes in these pieces."""

    async def run():
        exchange = HttpExchange(Pieces(pieces))
        await exchange.send(method, b"/feed", [(b"Host", b"blog.example")], b"")
        head = await exchange.head()
        body = b"".join([piece async for piece in exchange.body()])
        return head.status_code, body, exchange.is_reusable

    return asyncio.run(run())


async def read_body(exchange, body, sizes=None):
    """Send a request, and append the body of its response to `body`, the size of each to `sizes`.

    Raises one of `REFUSALS` for a response that is refused.
    """
    await exchange.send(b"GET", b"/feed", [(b"Host", b"blog.example")], b"")
    await exchange.head()
    async for piece in exchange.body():
        body += piece
        if sizes is not None:
            sizes.append(len(piece))
