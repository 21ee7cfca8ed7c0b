"""Bodies are unpacked only as far as they count, in every coding and nesting (decision 34)."""

import gzip
import sys
import zlib
from random import Random

import brotli
import pytest

from walsh_scrapy.wire.codings import CODING_ERRORS, unpacked

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def raw_deflate(body):
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(body) + stream.flush()


PACKERS = {
    "gzip": (b"gzip", gzip.compress),
    "deflate": (b"deflate", zlib.compress),
    "raw deflate": (b"deflate", raw_deflate),
    "br": (b"br", brotli.compress),
    "zstd": (b"zstd", zstd.compress),
}
BODY = Random(1).randbytes(200_000)


@pytest.mark.parametrize("name", PACKERS)
def test_the_beginning_of_a_body_whole_or_cut_off(name):
    coding, pack = PACKERS[name]
    packed = pack(BODY)
    assert unpacked(packed, [coding], 500_000) == BODY
    assert unpacked(packed, [coding], 1000) == BODY[:1000]
    assert unpacked(pack(b""), [coding], 10) == b""
    beginning = unpacked(packed[:150_000], [coding], 500_000)
    assert len(beginning) > 100_000
    assert BODY.startswith(beginning)


@pytest.mark.parametrize("name", PACKERS)
def test_what_is_not_packed_at_all_is_an_error(name):
    coding, _ = PACKERS[name]
    with pytest.raises(CODING_ERRORS):
        unpacked(b"<html>not packed</html>" * 10, [coding], 100)


@pytest.mark.parametrize("outer", PACKERS)
def test_bombs_within_bombs(outer):
    coding, pack = PACKERS[outer]
    bomb = pack(gzip.compress(b"Disallow: /\n" * 1_000_000))
    assert unpacked(bomb, [coding, b"gzip"], 2400) == b"Disallow: /\n" * 200


def test_many_members_cost_no_more_than_one():
    assert unpacked(gzip.compress(b"ab") * 5000, [b"gzip"], 8000) == b"ab" * 4000
