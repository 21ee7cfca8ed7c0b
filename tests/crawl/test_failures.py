"""Why a request failed is one sentence: which host, and what went wrong."""

import pytest
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    ResponseDataLossError,
)
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.web._newclient import ParseError, ResponseNeverReceived

from walsh_scrapy.crawl.failures import reason_of
from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.metadata.entries import NotAFeed

URL = "http://blog.example/feed"


def downloaded(*reasons):
    """An error as Scrapy's own handler raises it, with what Twisted found on the way."""
    cause = ResponseNeverReceived([Failure(reason) for reason in reasons])
    error = DownloadFailedError(str(cause))
    error.__cause__ = cause
    return error


def answered(status, **headers):
    return HttpError(Response(URL, status, headers))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (answered(404), "blog.example answered 404"),
        (answered(304, Location="/x"), "blog.example answered 304"),
        (answered(301), "blog.example answered 301 without a Location"),
        (
            answered(302, Location=b"http://[\x1b\xe9"),
            r"blog.example answered 302 with a Location that cannot be requested: 'http://[\x1b\xe9'",
        ),
        (DownloadConnectionRefusedError("111"), "blog.example refused the connection"),
        (CannotResolveHostError("no results"), "the DNS has no address for blog.example"),
        (DownloadTimeoutError("it took 30 s.\nmore"), "blog.example timed out: it took 30 s. more"),
        (
            DownloadCancelledError("more than 15 MiB"),
            "the response from blog.example is too large: more than 15 MiB",
        ),
        (ResponseDataLossError(), "the response from blog.example ended before it was complete"),
        (
            downloaded(ConnectionDone()),
            "no response from blog.example: Connection was closed cleanly",
        ),
        (downloaded(ParseError("no", b"x")), "no response from blog.example: ('no', b'x')"),
        (BadAnswer(Response(URL), "redirected in a loop"), "redirected in a loop"),
        (IgnoreRequest("its body is too large."), "its body is too large."),
        (IgnoreRequest(), "IgnoreRequest"),
        (NotAFeed("Not a feed but an image."), "Not a feed but an image."),
        (ValueError("a\n b"), "ValueError: a b"),
        (ValueError(), "ValueError"),
        (None, "NoneType"),
    ],
)
def test_every_failure_is_described_in_a_sentence(error, reason):
    assert reason_of(error, URL) == reason


def test_quotes_are_cut_to_a_length():
    assert len(reason_of(answered(301, Location="ftp://" + "x" * 9000), URL)) < 400
    assert len(reason_of(ValueError("x" * 9000), URL)) < 400
