"""Responses byte by byte: any bytes, split anywhere, are read or refused by a sentence."""

import asyncio
import gzip
import sys
import zlib
from itertools import count, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.http import Response
from scrapy.statscollectors import StatsCollector
from scrapy.utils.gz import gunzip
from scrapy.utils.test import get_crawler

from tests.helpers.responses import REFUSALS, Pieces, read_response
from walsh_scrapy.crawl.messages import CODING_ERRORS, unpack
from walsh_scrapy.downloadermiddlewares.compression import CompressionMiddleware
from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.wire.http1 import MAX_HEAD_BYTES, MAX_HEAD_LINES, HttpExchange

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: 1\r\n\r\nabc"


@given(st.lists(st.integers(0, len(WHOLE)), max_size=6))
def test_a_response_is_the_same_however_it_is_split(cuts):
    at = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[first:last] for first, last in pairwise(at)]
    assert read_response(pieces) == (200, b"abc", True)


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
    early = b"HTTP/1.1 103 Early Hints\r\nX: " + b"x" * (MAX_HEAD_BYTES // 2) + b"\r\n\r\n"
    too_long = "the head of the response is longer than 128 KiB"
    assert head_of([start, b"X: " + b"x" * MAX_HEAD_BYTES]) == too_long
    assert head_of([early, early, WHOLE]) == too_long
    assert head_of([early, WHOLE]) == [(b"Content-Length", b"3"), (b"X", b"1")]
    too_many = f"the head of the response has more than {MAX_HEAD_LINES} lines"
    assert head_of([start + line * (MAX_HEAD_LINES + 1) + b"\r\n"]) == too_many


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
def test_a_connection_is_reused_only_after_the_whole_response(response, method, found):
    assert read_response([response], method) == found


# Bodies are unpacked only as far as they count, in every coding and nesting (decision 34).


def raw_deflate(body):
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(body) + stream.flush()


PACKERS = {
    "gzip": (b"gzip", gzip.compress),
    "deflate": (b"deflate", zlib.compress),
    "raw deflate": (b"deflate", raw_deflate),
}
BODY = Random(1).randbytes(200_000)


@pytest.mark.parametrize("name", PACKERS)
def test_the_beginning_of_a_body_whole_or_cut_off(name):
    coding, pack = PACKERS[name]
    packed = pack(BODY)
    assert unpack(packed, [coding], 500_000) == (BODY, True)
    assert unpack(packed, [coding], 1000) == (BODY[:1000], True)
    assert unpack(pack(b""), [coding], 10) == (b"", True)
    beginning, _ = unpack(packed[:150_000], [coding], 500_000)
    assert len(beginning) > 100_000
    assert BODY.startswith(beginning)
    assert unpack(packed + b"no such member", [coding], 500_000).is_complete
    for cut_off in (packed[:-1], packed[:150_000], b""):
        assert not unpack(cut_off, [coding], 500_000).is_complete
    assert unpack(packed[:150_000], [], 500_000).is_complete


@pytest.mark.parametrize("name", PACKERS)
def test_what_is_not_packed_at_all_is_an_error(name):
    coding, _ = PACKERS[name]
    with pytest.raises(CODING_ERRORS):
        unpack(b"<html>not packed</html>" * 10, [coding], 100)


@pytest.mark.parametrize("outer", PACKERS)
def test_bombs_within_bombs(outer):
    coding, pack = PACKERS[outer]
    bomb = pack(gzip.compress(b"Disallow: /\n" * 1_000_000))
    assert unpack(bomb, [coding, b"gzip"], 2400).body == b"Disallow: /\n" * 200


def decoded(body, most=1_000_000):
    return unpack(body, [b"gzip"], most).body


def test_a_body_of_very_many_empty_parts_is_refused():
    part = gzip.compress(b"")
    assert decoded(part * 1000) == b""
    with pytest.raises(CODING_ERRORS, match="more than 10000 parts"):
        decoded(part * 10_001)


ONE = gzip.compress(BODY)
NAMED = b"\x1f\x8b\x08\x1c" + ONE[4:10] + b"\x03\0abcname\0comment\0" + ONE[10:]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(b"", b"", id="empty"),
        pytest.param(ONE + gzip.compress(b"x"), BODY + b"x", id="members"),
        pytest.param(ONE + bytes(100_000), BODY, id="zeros"),
        pytest.param(ONE + bytes(70_000) + ONE, BODY * 2, id="zeros between"),
        pytest.param(NAMED, BODY, id="header"),
        pytest.param(ONE[:-4], BODY, id="cut"),
        pytest.param(ONE + b"no gzip", BODY, id="junk"),
        pytest.param(gzip.compress(bytes(900_000)), bytes(900_000), id="zeros packed"),
    ],
)
def test_gzip_of_any_make_is_unpacked_as_by_scrapy(body, expected):
    assert decoded(body) == gunzip(body) == expected


def test_what_comes_before_a_wrong_checksum_counts():
    found = unpack(ONE[:-8] + b"wrong" + ONE[-3:], [b"gzip"], 1_000_000)
    assert BODY.startswith(found.body)
    assert len(found.body) > 100_000
    assert not found.is_complete


def test_a_name_in_a_header_is_not_read_byte_by_byte():
    body = b"\x1f\x8b\x08\x08" + ONE[4:10] + b"a" * 2**24 + b"\0" + ONE[10:]
    calls = count()
    sys.setprofile(lambda *_: next(calls))
    try:
        found = decoded(body)
    finally:
        sys.setprofile(None)
    assert found == BODY
    assert next(calls) < 10_000


@pytest.mark.parametrize(("most", "fits"), [(1_000_000, False), (1_000_001, True), (0, True)])
def test_a_body_that_unpacks_to_too_much_is_refused(most, fits):
    packed = gzip.compress(bytes(1_000_001))
    response = Response("http://a.example/", headers={"Content-Encoding": "x-gzip"}, body=packed)
    request = Request("http://a.example/")
    middleware = CompressionMiddleware(most, StatsCollector(get_crawler()))
    if not fits:
        with pytest.raises(BadAnswer, match="more than 976"):
            middleware.process_response(request, response)
        return
    answer = middleware.process_response(request, response)
    assert (answer.body, answer.headers.get("Content-Encoding")) == (bytes(1_000_001), None)


def test_many_members_cost_no_more_than_one():
    assert unpack(gzip.compress(b"ab") * 5000, [b"gzip"], 8000).body == b"ab" * 4000


@pytest.mark.parametrize(
    "fields",
    [
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"transfer-encoding: chunked, Chunked",
        b"Content-Length: \r\nTransfer-Encoding: chunked",
    ],
)
def test_a_body_that_is_framed_twice_ends_its_connection(fields):
    answer = read_response([b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n"])
    assert answer == (200, b"abc", False)


def test_the_coding_identity_says_nothing():
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 3\r\n\r\n"
    assert read_response([head + b"abc"]) == (200, b"abc", False)
