"""Headers, URLs and durations: each value is read or ignored, and each response read or refused."""

import re
from contextlib import suppress
from datetime import timedelta

from scrapy import Request
from w3lib.url import safe_url_string

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
from walsh_scrapy.policy import urls
from walsh_scrapy.policy.backoff import LONGEST_SECONDS, parse_retry_after
from walsh_scrapy.policy.blocklist import Blocklist, Entry
from walsh_scrapy.policy.durations import parse_duration
from walsh_scrapy.policy.freshness import Freshness
from walsh_scrapy.policy.urls import (
    LONGEST_FOLLOWED,
    canonical_url,
    host_of,
    is_plain,
    is_private_host,
    origin_of,
    registrable_domain,
    resolve_reference,
    robots_url,
    wire_url,
    without_dot_segments,
)
from walsh_scrapy.wire.http1 import MOST_BYTES


def retry_after(body: bytes) -> None:
    """A Retry-After is a time that can be added to a date, or nothing."""
    for text in (body.decode("latin-1"), body.decode("utf-8", "replace")):
        seconds = parse_retry_after(text, AT)
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


_LIST = Blocklist({"b.example": Entry("b.example", "", "")}, timedelta(1))


def url(body: bytes) -> None:
    """What is judged, sent and remembered of a URL is one host, whatever the spelling."""
    text = body.decode("utf-8", "surrogateescape")
    host, sent, known = host_of(text), wire_url(text), canonical_url(text)
    resolved = without_dot_segments(text)
    assert wire_url(sent) == sent
    assert canonical_url(known) == canonical_url(sent) == known
    assert without_dot_segments(resolved) == resolved
    assert host_of(sent) == host_of(resolved) == host
    blocked = _LIST.blocks(text) is not None
    assert blocked == f".{host}".endswith(".b.example"), "a list sees the host that is asked"
    assert registrable_domain(host) or not host  # one that cannot be requested
    is_private_host(host)
    parsed = urls._parse(text)
    assert host == (parsed.authority.host if parsed else ""), "by the fast path as by the parser"
    if is_plain(text):
        assert wire_url("HTTP" + text[4:]) == safe_url_string(text) == text
    if origin := origin_of(text):
        _assert_one_target(text, origin)
        assert host.isascii()
        assert host == host.lower()
        assert registrable_domain(host).strip(".") in host
        other_form = f"[{host.upper()}]" if ":" in host else host.upper() + "."
        assert host_of(f"HTTPS://someone@{other_form}:8443/x") == host
        with suppress(UnicodeEncodeError):  # lone surrogates cannot be requested
            assert not sent.startswith("http") or host_of(safe_url_string(sent)) == host


def _assert_one_target(text: str, origin: str) -> None:
    """All forms of a URL have its origin, and no dot segment; no query is changed."""
    sent, known, resolved = wire_url(text), canonical_url(text), without_dot_segments(text)
    for form in (sent, known, resolved, robots_url(text), origin):
        assert origin_of(form) == origin
        assert host_of(form) == host_of(text)
    assert wire_url(resolved) == sent
    for form in (sent, known):
        assert without_dot_segments(form) == form
        path = re.split("[?#]", form.partition("://")[2])[0]
        names = [re.sub("%2e", ".", name, flags=re.IGNORECASE) for name in path.split("/")]
        assert not {".", ".."}.intersection(names[1:])
    query = text.partition("#")[0].partition("?")[2].rstrip(urls._STRIPPED)
    assert sent.partition("?")[2] == query.translate(urls._REMOVED)


def reference(body: bytes) -> None:
    """A Location leads to a web URL of ASCII that is sent as it is judged, or nowhere."""
    target = resolve_reference(URL, body)
    if target is not None:
        assert wire_url(target) == Request(target).url == target
        assert target.isascii()
        assert target.isprintable()
        assert " " not in target
        assert len(target) <= LONGEST_FOLLOWED
        assert origin_of(target).startswith(("http://", "https://"))
        assert resolve_reference(target, target.encode()) == target


def link_header(body: bytes) -> None:
    """A Link header announces markdown of its own server only."""
    values = body.decode("latin-1").split("\n")
    values += [f"<{value}>; rel=alternate; type=text/markdown" for value in values]
    found = markdown_alternates(values, URL)
    assert all(each.startswith(("https://blog.example/", "http://blog.example/")) for each in found)
    most = sum(value.count("<") for value in values)
    assert len(found) + len(feed_alternates(values, URL)) <= most


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
        assert content in b"".join(pieces) or b"chunked" in b"".join(pieces)
        assert len(content) <= sum(map(len, pieces)) <= 16 * MOST_BYTES
        return status, content
    return None
