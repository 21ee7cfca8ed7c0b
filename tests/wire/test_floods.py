"""A server that sends without end, in small pieces: bytes and turns of the loop are counted."""

import asyncio
import itertools
import socket
import ssl
import threading
from contextlib import nullcontext, suppress

import pytest

from tests.helpers.responses import REFUSALS, Pieces, read_body
from walsh_scrapy.testing.authority import CertificateAuthority
from walsh_scrapy.testing.site import Certificate
from walsh_scrapy.wire import stalls
from walsh_scrapy.wire.http1 import (
    CHUNK_BYTES,
    MAX_CHUNK_LINE_BYTES,
    MAX_HEAD_BYTES,
    MAX_OVERHEAD_BYTES,
    HttpExchange,
    TcpStream,
    Tls,
    TlsStream,
)

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
MAX_EXTENSION = b"x" * (MAX_CHUNK_LINE_BYTES - 2)
#: The begin of a response, and what follows without end.
FLOODS = {
    "one-byte chunks": (CHUNKED, b"1\r\nx\r\n"),
    "two-byte chunks": (CHUNKED, b"2\r\nxx\r\n"),
    "leading zeros": (CHUNKED, b"00000001\r\nx\r\n"),
    "extensions": (CHUNKED, b"1;" + MAX_EXTENSION + b"\r\nx\r\n"),
    "extensions with line ends": (CHUNKED, b"1;a=\n\n\n\n\r\nx\r\n"),
    "a line without end": (CHUNKED + b"1;", b"x"),
    "line ends in a line without end": (CHUNKED + b"1;", b"\n"),
    "a trailer without end": (CHUNKED + b"0\r\nX: ", b"x"),
    "trailers": (CHUNKED + b"0\r\n", b"X: 1\r\n"),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "102 Processing": (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "103 Early Hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
    "a head of fields": (HEAD, b"X: 1\r\n"),
    "a field without end": (HEAD + b"X: ", b"x"),
    "a status line without end": (b"HTTP/1.1 200 ", b"x"),
    "line ends": (b"", b"\r"),
}


class Flood:
    """A stream that never ends, in pieces of at most so many bytes."""

    peer = "192.0.2.1"
    has_unread = True

    def __init__(self, begin, repeated, piece_bytes):
        self._repeated = repeated * (1 + piece_bytes // len(repeated))
        self._piece_bytes = piece_bytes
        self._rest = begin
        self.taken = 0

    async def send(self, data):
        pass

    async def receive(self):
        while len(self._rest) < self._piece_bytes:
            self._rest += self._repeated
        piece, self._rest = self._rest[: self._piece_bytes], self._rest[self._piece_bytes :]
        self.taken += len(piece)
        return piece

    def close(self):
        pass


@pytest.mark.parametrize("piece_bytes", [CHUNK_BYTES, 1000])
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_refused_within_its_bytes(name, piece_bytes):
    begin, repeated = FLOODS[name]
    flood = Flood(begin, repeated, piece_bytes)
    body = bytearray()
    with pytest.raises(REFUSALS):
        asyncio.run(read_body(HttpExchange(flood), body))
    assert flood.taken <= 2 * len(body) + MAX_OVERHEAD_BYTES + MAX_HEAD_BYTES + 2 * CHUNK_BYTES


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        (b"3;" + b"x" * (MAX_CHUNK_LINE_BYTES - 2), True),
        (b"3;" + b"x" * (MAX_CHUNK_LINE_BYTES - 1), False),
        (b"3;" + b"x" * 100_000, False),
    ],
)
@pytest.mark.parametrize("before", [b"", b"1\r\na\r\n" * 50])
@pytest.mark.parametrize("piece_bytes", [1_000_000, 1000, 1])
def test_the_line_of_a_chunk_has_a_maximum(line, is_read, before, piece_bytes):
    response = CHUNKED + before + line + b"\r\nabc\r\n0\r\n\r\n"
    cuts = range(0, len(response), piece_bytes)
    stream = Pieces([response[cut : cut + piece_bytes] for cut in cuts])
    body = bytearray()
    with nullcontext() if is_read else pytest.raises(REFUSALS, match="line"):
        asyncio.run(read_body(HttpExchange(stream), body))
    assert body.endswith(b"abc") is is_read


def test_small_chunks_are_joined():
    """A listener of Scrapy's signals is called once for all that came together."""
    flood = Flood(CHUNKED, b"1\r\nx\r\n", CHUNK_BYTES)

    async def first_pieces():
        exchange = HttpExchange(flood)
        await exchange.send(b"GET", b"/", [(b"Host", b"a.example")], b"")
        await exchange.head()
        pieces = exchange.body()
        return [len(await anext(pieces)) for _ in range(3)]

    assert min(asyncio.run(first_pieces())) > CHUNK_BYTES // 7


# On a real socket: whatever is ready to be read, other tasks run and time limits end.


@pytest.fixture
def flooded():
    """A socket at whose other end somebody sends the same bytes without end."""
    threads = []
    listener = socket.create_server(("127.0.0.1", 0))

    def connect(begin, repeated):
        def pump():
            try:
                server.sendall(begin)
                while True:
                    server.sendall(repeated * 4096)
            except OSError:
                server.close()

        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        threads.append(threading.Thread(target=pump))
        threads[-1].start()
        client.setblocking(False)
        return client

    yield connect
    for thread in threads:
        thread.join(60)
    listener.close()


def test_each_receive_is_a_turn_of_the_loop(flooded):
    async def run():
        turns = itertools.count()
        loop = asyncio.get_running_loop()

        def turn():
            next(turns)
            loop.call_soon(turn)

        loop.call_soon(turn)
        stream = TcpStream(flooded(b"", b"x"))
        for number in range(200):
            assert await stream.receive()
            assert next(turns) > number
        stream.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["one-byte chunks", "extensions", "100 Continue"])
def test_a_flood_outlives_no_time_limit(flooded, monkeypatch, name):
    """Neither its own limit nor the moment until which the worker may use the host."""
    monkeypatch.setattr("walsh_scrapy.wire.http1.MAX_OVERHEAD_BYTES", 1 << 62)
    monkeypatch.setattr("walsh_scrapy.wire.http1.MAX_HEAD_BYTES", 1 << 62)
    begin, repeated = FLOODS[name]

    async def run(seconds, max_total):
        stream = TcpStream(flooded(begin, repeated))
        try:
            async with stalls.limit(seconds, max_total):
                await read_body(HttpExchange(stream), bytearray())
        finally:
            stream.close()

    with pytest.raises(stalls.StoodStill):
        asyncio.run(run(3600.0, 0.2))
    with pytest.raises(TimeoutError):  # on a busy machine the first limit is extended
        asyncio.run(run(0.2, 5.0))


# TLS: each record has at most one byte of data, or none.


class Records:
    """The other end of a connection, in memory: a server of TLS with one byte in each record."""

    peer = "127.0.0.1"
    has_unread = False

    def __init__(self, context, body):
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=True)
        self._is_secure = False
        self._pieces = itertools.chain(HEAD + b"\r\n", body)
        self.taken = 0

    async def send(self, data):
        self._received.write(data)
        if not self._is_secure:
            try:
                self._tls.do_handshake()
                self._is_secure = True
            except ssl.SSLWantReadError:
                pass

    async def receive(self):
        while self._is_secure and self._to_send.pending < CHUNK_BYTES:
            octet = next(self._pieces, None)
            if octet is None:
                with suppress(ssl.SSLError):
                    self._tls.unwrap()  # sends the closing alert
                self._is_secure = False
            else:
                self._tls.write(bytes([octet]))
        data = self._to_send.read(CHUNK_BYTES)
        self.taken += len(data)
        return data

    def send_last(self, data):
        pass

    def close(self):
        pass


@pytest.fixture
def read_records(monkeypatch):
    """Return a function that reads a body which comes in records of one byte."""
    authority = CertificateAuthority()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))

    def read(sent, body, sizes):
        server = Records(authority.context("a.example", Certificate.GOOD), sent)

        async def run():
            stream = await Tls().secure(server, "a.example", 443)
            assert isinstance(stream, TlsStream)
            await read_body(HttpExchange(stream), body, sizes)

        try:
            asyncio.run(run())
        finally:
            assert server.taken <= 2 * len(body) + MAX_OVERHEAD_BYTES + MAX_HEAD_BYTES
        return server

    yield read
    authority.close()


def test_records_of_one_byte_are_joined_and_refused(read_records):
    body, sizes = bytearray(), []
    with pytest.raises(REFUSALS, match="TLS records"):
        read_records(itertools.repeat(ord("x")), body, sizes)
    assert min(sizes[:-1]) > CHUNK_BYTES // 40


@pytest.mark.parametrize("size", [0, 1, 1000, 40_000])
def test_the_closing_alert_ends_a_body(linear, read_records, size):
    body = bytearray()
    read_records(b"x" * size, body, [])
    assert body == b"x" * size
