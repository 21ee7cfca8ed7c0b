"""R7: what a Content-Encoding means for pages of other bots, sources, robots.txt and blocklist."""

import gzip
import logging
import zlib

import pytest
from scrapy import Request
from scrapy.http import Response
from scrapy.statscollectors import StatsCollector
from scrapy.utils.test import get_crawler

from walsh_scrapy.crawl.messages import codings_of, may_be_complete, unpack_response
from walsh_scrapy.crawl.ticket import note, set_visit
from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.feeds.sources.source import Source
from walsh_scrapy.feeds.sourcevisit import SourceVisit
from walsh_scrapy.policy.frontier import Rank

URL = "http://a.example/"
BODY = b"<rss><channel><title>Posts</title></channel></rss>"
GZIP = gzip.compress(BODY)


def request_for(kind):
    request = Request(URL)
    if kind == "source":
        set_visit(request, SourceVisit(Source(URL), readable=lambda _: True))
    elif kind != "page":
        note(request, rank=Rank[kind])
    return request


KINDS = ("page", "source", "ROBOTS", "OPERATOR")


def unpacked(kind, fields, body):
    response = Response(URL, headers={"Content-Encoding": list(fields)}, body=body)
    return unpack_response(request_for(kind), response, 0, StatsCollector(get_crawler()))


#: Fields without a coding, and how fields with gzip may be written beside them.
NOTHING = [
    ("identity",),
    (" Identity ",),
    ("",),
    (",",),
    ("identity, identity", "identity"),
    ("none",),
    ("utf-8",),
    ("UTF8",),
    ("iso-8859-1",),
    ("windows-1251", "binary"),
    ("x-sjis",),
    ("8bit",),
]
PACKED = [
    ("gzip, identity",),
    ("identity,gzip",),
    ("gzip,utf-8",),
    ("GZip , , UTF-8",),
    ("gzip", "identity"),
    ("identity", "", "x-gzip"),
    (",gzip,",),
    ("none, gzip",),
    ("gzip, ISO-8859-15",),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fields", NOTHING)
def test_what_is_no_coding_leaves_a_body_alone(kind, fields, caplog):
    answer = unpacked(kind, fields, BODY)
    assert (answer.body, answer.headers.get("Content-Encoding")) == (BODY, None)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fields", PACKED)
def test_gzip_is_unpacked_beside_what_is_no_coding(kind, fields, caplog):
    answer = unpacked(kind, fields, GZIP)
    assert (answer.body, answer.headers.get("Content-Encoding")) == (BODY, None)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("kind", KINDS)
def test_two_codings_are_undone_beside_what_is_no_coding(kind):
    fields = ("gzip, identity", "utf-8", "deflate")
    assert unpacked(kind, fields, zlib.compress(GZIP)).body == BODY


@pytest.mark.parametrize("kind", KINDS)
def test_codings_that_are_not_known_are_still_named(kind, caplog):
    answer = unpacked(kind, ("identity, compress",), BODY)
    assert answer.headers["Content-Encoding"] == b"compress"
    assert "compress" in caplog.text
    with pytest.raises(BadAnswer, match="br"):
        unpacked(kind, ("identity, br",), BODY)


def test_a_cut_off_feed_may_be_complete_beside_what_is_no_coding():
    headers = Response(URL, headers={"Content-Encoding": "gzip, utf-8"}).headers
    assert may_be_complete(request_for("source"), headers, GZIP, 10_000)
    assert not may_be_complete(request_for("source"), headers, GZIP[:-9], 10_000)


@pytest.mark.parametrize(
    "name",
    [b"gzip", b"x-gzip", b"deflate", b"br", b"zstd", b"compress", b"x-compress", b"dcb", b"exi"],
)
def test_names_of_codings_stay(name):
    assert codings_of([name.upper()]) == [name]
