"""Responses byte by byte: any bytes, split anywhere, are read or refused by a sentence."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.exceptions import DownloadFailedError, DownloadTimeoutError, ResponseDataLossError

from walsh_scrapy.wire.http1 import MOST_BYTES, MOST_LINES, HttpExchange

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


def head_of(pieces):
    """The fields of a head, or the sentence that refuses it."""

    async def run():
        exchange = HttpExchange(Pieces(pieces))
        await exchange.send(b"GET", b"/feed", [(b"Host", b"blog.example")], b"")
        return (await exchange.head()).headers.raw_items()

    try:
        return asyncio.run(run())
    except REFUSALS as error:
        return str(error)


@given(
    st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n"]),
    st.binary(max_size=400),
    st.sampled_from([b"", b"\r\n\r\n", b"\n\nabc"]),
    st.lists(st.integers(0, 420), max_size=5),
)
def test_a_head_is_the_same_however_it_is_split(begin, data, end, cuts):
    whole = begin + data + end
    at = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    assert head_of([whole[first:last] for first, last in pairwise(at)]) == head_of([whole])


def test_lines_that_are_no_fields_are_passed_over():
    found = head_of([b"HTTP/1.1 200 OK\r\nno field\r\nBad Name: 1\r\nX: 2\r\n\r\n"])
    assert found == [(b"X", b"2")]


def test_a_limit_is_named():
    start, line = b"HTTP/1.1 200 OK\r\n", b"X: 1\r\n"
    early = b"HTTP/1.1 103 Early Hints\r\nX: " + b"x" * (MOST_BYTES // 2) + b"\r\n\r\n"
    too_long = "the head of the response is longer than 128 KiB"
    assert head_of([start, b"X: " + b"x" * MOST_BYTES]) == too_long
    assert head_of([early, early, WHOLE]) == too_long
    assert head_of([early, WHOLE]) == [(b"Content-Length", b"3"), (b"X", b"1")]
    too_many = f"the head of the response has more than {MOST_LINES} lines"
    assert head_of([start + line * (MOST_LINES + 1) + b"\r\n"]) == too_many


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
