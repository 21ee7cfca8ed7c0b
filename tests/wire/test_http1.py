"""Responses byte by byte: any bytes, split anywhere, are read or refused by a sentence."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError, ResponseDataLossError

from walsh_scrapy.wire.http1 import MOST_BYTES, MOST_LINES, HeadReader, HeadTooLarge, HttpExchange

REFUSALS = (DownloadFailedError, DownloadTimeoutError, ResponseDataLossError)
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: 1\r\n\r\nabc"


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


def read(pieces, method=b"GET"):
    """Status, body and reuse of a response that comes in these pieces."""

    async def run():
        exchange = HttpExchange(Pieces(pieces))
        await exchange.send(method, b"/feed", [(b"Host", b"blog.example")], b"")
        head = await exchange.head()
        body = b"".join([piece async for piece in exchange.body()])
        return head.status_code, body, exchange.is_reusable

    return asyncio.run(run())


@given(st.lists(st.integers(0, len(WHOLE)), max_size=6))
def test_it_does_not_matter_where_a_response_is_split(cuts):
    at = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[first:last] for first, last in pairwise(at)]
    assert read(pieces) == (200, b"abc", True)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
def test_a_head_is_the_same_however_it_is_split(data, cuts):
    def heads(pieces):
        reader, found = HeadReader(), []
        for piece in pieces:
            if head := reader.feed(piece):
                return head[0]
        return found

    at = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    split = [data[first:last] for first, last in pairwise(at)]
    assert heads(split) == heads([data])


def test_a_limit_is_named():
    with pytest.raises(HeadTooLarge, match="longer than 128 KiB"):
        HeadReader().feed(b"HTTP/1.1 200 OK\r\nX: " + b"x" * MOST_BYTES)
    with pytest.raises(HeadTooLarge, match=f"more than {MOST_LINES} lines"):
        HeadReader().feed(b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * (MOST_LINES + 1) + b"\r\n")


@pytest.mark.parametrize(
    ("response", "method", "found"),
    [
        (WHOLE, b"GET", (200, b"abc", True)),
        (WHOLE, b"HEAD", (200, b"", False)),  # what follows belongs to no request
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b"GET", (304, b"", True)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"GET", (204, b"", True)),
        (b"HTTP/1.0 200 OK\r\n\r\nabc", b"GET", (200, b"abc", False)),
        (WHOLE.replace(b"X: 1", b"Connection: close"), b"GET", (200, b"abc", False)),
        (WHOLE + b"surplus", b"GET", (200, b"abc", False)),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE, b"GET", (200, b"abc", True)),
        (b"HTTP/1.1 200 OK\r\n\r\nto the end", b"GET", (200, b"to the end", False)),
    ],
)
def test_a_connection_is_used_again_only_if_nothing_is_left_of_the_response(
    response, method, found
):
    assert read([response], method) == found
