"""Headers, URLs and durations: each value is read or ignored, and each response read or refused."""

from contextlib import suppress
from datetime import timedelta

from tests.fuzz.documents import AT, URL
from tests.fuzz.target import assert_sentence
from tests.wire.test_http1 import REFUSALS, read
from walsh_scrapy.metadata.alternates import (
    MOST_FEEDS,
    declared_feeds,
    feed_alternates,
    feeds_in_head,
    markdown_alternates,
)
from walsh_scrapy.metadata.text import one_line
from walsh_scrapy.policy.backoff import LONGEST_SECONDS, parse_retry_after
from walsh_scrapy.policy.durations import parse_duration
from walsh_scrapy.policy.freshness import Freshness
from walsh_scrapy.policy.hosts import is_private_host
from walsh_scrapy.policy.redirects import resolve_reference
from walsh_scrapy.policy.urls import (
    LONGEST_FOLLOWED,
    canonical_url,
    host_of,
    origin_of,
    registrable_domain,
    robots_url,
    wire_url,
    without_dot_segments,
)
from walsh_scrapy.wire.responsehead import MOST_BYTES


def retry_after(body: bytes) -> None:
    """A Retry-After is a time that can be added to a date, or nothing."""
    seconds = parse_retry_after(body.decode("latin-1"), AT)
    if seconds is not None:
        assert 0 <= seconds <= LONGEST_SECONDS
        assert AT + timedelta(seconds=seconds) >= AT


def freshness(body: bytes) -> None:
    """The headers of a cache, one a line, ask for a time from 0 on."""
    lines = (*body.decode("latin-1").split("\n"), *[None] * 5)
    seconds = Freshness(*lines[:5]).lifetime(AT.timestamp())
    assert 0 <= seconds <= 300 * LONGEST_SECONDS


def duration(body: bytes) -> None:
    """A duration is never negative, or refused by one sentence."""
    try:
        found = parse_duration(body.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        assert_sentence(error, 600)  # escapes of 40 characters
    else:
        assert found >= timedelta(0)


def url(body: bytes) -> None:
    """What is judged, sent and remembered of a URL is one host, whatever the spelling."""
    text = body.decode("utf-8", "surrogateescape")
    host, sent, known = host_of(text), wire_url(text), canonical_url(text)
    assert wire_url(sent) == sent
    assert canonical_url(known) == known
    assert host_of(sent) == host
    assert without_dot_segments(without_dot_segments(text)) == without_dot_segments(text)
    assert host_of(without_dot_segments(text)) == host
    if origin_of(text):
        assert host_of(origin_of(text)) == host_of(robots_url(text)) == host
        assert origin_of(sent) == origin_of(text)
        assert host.isascii()
        assert host == host.lower()
        assert registrable_domain(host).strip(".") in host
    assert registrable_domain(host) or not host  # one that cannot be requested
    is_private_host(host)


def reference(body: bytes) -> None:
    """A Location leads to a web URL of ASCII that is sent as it is judged, or nowhere."""
    target = resolve_reference(URL, body)
    if target is not None:
        assert target.isascii()
        assert target.isprintable()
        assert " " not in target
        assert len(target) <= LONGEST_FOLLOWED
        assert origin_of(target).startswith(("http://", "https://"))
        assert resolve_reference(target, target.encode()) == target


def link_header(body: bytes) -> None:
    """A Link header announces markdown of its own server only."""
    values = body.decode("latin-1").split("\n")
    found = markdown_alternates(values, URL, "en")
    assert all(host_of(each) == "blog.example" for each in found)
    assert len(found) + len(feed_alternates(values, URL)) <= body.count(b"<")


def html_head(body: bytes) -> None:
    """A page declares web URLs in elements of its head, each with a title that can be shown."""
    found = feeds_in_head(body, "text/html", URL)
    assert len(found) <= body.lower().count(b"<")
    for link in found:
        assert origin_of(link.url).startswith(("http://", "https://"))
        assert link.url.isascii()
        assert one_line(link.title) == link.title
    assert len(declared_feeds((*found, *found))) <= min(len(found), MOST_FEEDS)


def response(body: bytes) -> None:
    """A response is read or refused, and in the same way wherever it is split."""
    assert _outcome([body]) == _outcome([body[at : at + 7] for at in range(0, len(body), 7)])


def _outcome(pieces: list[bytes]) -> object:
    # A refusal may come earlier or later in the bytes, with another sentence.
    with suppress(*REFUSALS):
        status, content, _ = read(pieces)
        assert 200 <= status < 1000
        assert len(content) <= sum(map(len, pieces)) <= 16 * MOST_BYTES
        return status, content
    return None
