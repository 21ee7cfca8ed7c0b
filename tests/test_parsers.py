"""Every parser reads any bytes, or refuses them by its own error; what it returns makes sense."""

import json
import logging
import re
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scrapy import Request

from tests.helpers import documents
from tests.helpers.bounds import assert_bounded, assert_sentence
from tests.helpers.responses import REFUSALS, read_response
from tests.helpers.robotstxt import check_robots
from walsh_scrapy.feeds.freshness import Freshness, update_hints
from walsh_scrapy.feeds.items import EntryItem, InvalidItem, check_item
from walsh_scrapy.feeds.metadata.entries import NotAFeed
from walsh_scrapy.feeds.metadata.feed import parse_feed
from walsh_scrapy.feeds.metadata.formats import (
    MAX_FEEDS,
    declared_feeds,
    feed_alternates,
    feeds_in_head,
    markdown_alternates,
)
from walsh_scrapy.feeds.metadata.llmstxt import parse_llms
from walsh_scrapy.feeds.sources.loading import load_sources
from walsh_scrapy.feeds.sources.opml import read_opml
from walsh_scrapy.feeds.sources.source import SourcesError
from walsh_scrapy.files import UnreadableFile
from walsh_scrapy.policy import urls
from walsh_scrapy.policy.backoff import MAX_WAIT_SECONDS, parse_retry_after
from walsh_scrapy.policy.blocklist import (
    Blocklist,
    Entry,
    InvalidBlocklist,
    parse_local,
    sound_schema,
)
from walsh_scrapy.policy.durations import parse_duration
from walsh_scrapy.policy.urls import (
    MAX_FOLLOWED_CHARACTERS,
    canonical_url,
    host_of,
    is_private_host,
    origin_of,
    registrable_domain,
    resolve_reference,
    robots_url,
    wire_url,
    without_dot_segments,
)
from walsh_scrapy.policy.wording import one_line
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.wire.http1 import MAX_HEAD_BYTES


@dataclass(frozen=True, slots=True)
class Target:
    """A reader of bytes with what must hold for each input.

    ``check`` reads the bytes. It returns if they were read, or refused by the documented error, and
    if what must hold for the result does. Any exception it raises is a finding.
    """

    check: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    pieces: tuple[bytes, ...] = ()  #: of the language that is read, to be joined in any order
    documents: st.SearchStrategy[bytes] | None = None  #: whole ones, which no pieces would be


# Documents of sites and of the operator: each is read or refused by its own error.

URL = "https://blog.example/a/feed"
AT = datetime(2026, 11, 21, 3, 8, 56, tzinfo=UTC)


def check_blocklist(body: bytes) -> None:
    """An adopted list blocks each of its domains, and so it does when it is read again."""
    with suppress(InvalidBlocklist):
        _assert_blocks(parse_local(body, "own.txt"))
    try:
        adopted = Blocklist.parse(body)
    except InvalidBlocklist as error:
        assert_sentence(error, 2000)
        return
    assert Blocklist.of_text(adopted.text()) == adopted
    _assert_blocks(adopted)
    assert_bounded(dict(adopted.entries), body, 20)


def _assert_blocks(found: Blocklist) -> None:
    for domain in found.entries:
        host = f"[{domain}]" if ":" in domain else domain
        assert found.blocks(f"https://{host}/feed")


def check_schema(body: bytes) -> None:
    """A published schema is used or not; a sound one checks a list without an error of its own."""
    found = sound_schema(body)
    if found is not None:
        with suppress(InvalidBlocklist):
            Blocklist.parse(_LIST, found)


_LIST = b"""{"version": "walsh-research-blocklist/v1", "updated": "2026-05-23T00:00:00Z",
"contact": "j@wal.sh", "policy": "https://wal.sh/bot/", "refresh": "PT6H",
"blocked": [{"domain": "example.com", "added": "2026-05-23", "reason": "email opt-out"}]}"""


def check_feed(body: bytes) -> None:
    """A feed is read, or refused by one sentence; see `_assert_metadata`."""
    try:
        found = parse_feed(body, url=URL, content_type=None, source=URL)
    except NotAFeed as error:
        assert_sentence(error, 500)
    else:
        _assert_metadata(found, "feed", body)
        assert update_hints(found).opens(AT.timestamp()) >= AT.timestamp()


def check_llms(body: bytes) -> None:
    """A page of markdown is read, or refused by one sentence."""
    try:
        found = parse_llms(body, url=URL, content_type="text/markdown", source=URL)
    except NotAFeed as error:
        assert_sentence(error, 500)
    else:
        _assert_metadata(found, "llms", body)


def check_opml(body: bytes) -> None:
    """Subscriptions are read, or the file refused."""
    with suppress(UnreadableFile):
        assert_bounded([outline.tags for outline in read_opml(body).outlines], body, 300)


def check_sources(body: bytes) -> None:
    """A file of the operator declares targets that can be requested, or is refused in one line."""
    logger = logging.getLogger("walsh_scrapy.feeds.sources")
    logger.setLevel(logging.ERROR)
    try:
        _load(body)
    finally:
        logger.setLevel(logging.NOTSET)


def _load(body: bytes) -> None:
    for ending in (".toml", ".txt", ".opml"):
        file = _folder() / f"sources{ending}"
        file.write_bytes(body)
        try:
            declared = load_sources(file)
        except SourcesError as error:
            assert_sentence(error, 2000)
        else:
            assert declared
            assert all(source.url.startswith(("http://", "https://")) for source in declared)
            assert all(source.url.isascii() and source.url.isprintable() for source in declared)
            assert all(Request(source.url).url == source.url for source in declared)
            urls = [source.url for source in declared]
            written = write_sources(_folder() / "again.txt", urls)
            assert [source.url for source in load_sources(written)] == urls


@cache
def _folder() -> Path:
    _folder.kept = TemporaryDirectory()
    return Path(_folder.kept.name)


def _assert_metadata(found, kind, body):
    """Each entry is an item of text that can be stored, on one line, with a key and a web URL."""
    for entry in found.entries:
        assert len(entry.keys.page) == 64
        assert entry.url is None or re.fullmatch(r"(?i)https?://[^\s/?#]\S*", entry.url)
        for text in (entry.title, entry.section, entry.note, *entry.authors, *entry.tags):
            assert text is None or (text and text == " ".join(text.split()))
            assert not re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff]", text or "")
        item = EntryItem.from_entry(entry, feed=found, source=URL, kind=kind)
        json.dumps(item.to_dict(), ensure_ascii=False).encode()
        with suppress(InvalidItem) if kind == "feed" else nullcontext():
            check_item(replace(item, first_seen="2026-05-23T00:00:00Z"))
    if kind == "llms":
        assert len({entry.keys.page for entry in found.entries}) == len(found.entries)
    assert_bounded(found, body, 300)


# Headers, URLs and durations: each value is read or ignored, and each response read or refused.


def check_retry_after(body: bytes) -> None:
    """A Retry-After is a time that can be added to a date, or nothing."""
    for text in (body.decode("latin-1"), body.decode("utf-8", "replace")):
        seconds = parse_retry_after(text, AT)
        if seconds is not None:
            assert 0 <= seconds <= MAX_WAIT_SECONDS
            assert AT + timedelta(seconds=seconds) >= AT


def check_freshness(body: bytes) -> None:
    """The headers of a cache, one a line, ask for a time from 0 on."""
    lines = (*body.decode("latin-1").split("\n"), *[None] * 5)
    seconds = Freshness(*lines[:5]).lifetime(AT.timestamp())
    assert 0 <= seconds <= 300 * MAX_WAIT_SECONDS


def check_duration(body: bytes) -> None:
    """A duration is never negative, or refused by one sentence."""
    try:
        found = parse_duration(body.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        assert_sentence(error, 600)  # escapes of 40 characters
    else:
        assert found >= timedelta(0)


_BLOCKLIST = Blocklist({"b.example": Entry("b.example", "", "")}, timedelta(1))


def check_url(body: bytes) -> None:
    """What is judged, sent and remembered of a URL is one host, whatever the spelling."""
    text = body.decode("utf-8", "surrogateescape")
    host, sent, known = host_of(text), wire_url(text), canonical_url(text)
    resolved = without_dot_segments(text)
    assert wire_url(sent) == sent
    assert canonical_url(known) == canonical_url(sent) == known
    assert without_dot_segments(resolved) == resolved
    assert host_of(sent) == host_of(resolved) == host
    blocked = _BLOCKLIST.blocks(text) is not None
    assert blocked == f".{host}".endswith(".b.example"), "a list sees the host that is asked"
    assert registrable_domain(host) or not host  # one that cannot be requested
    is_private_host(host)
    assert bool(host) == bool(origin_of(text))
    if origin := origin_of(text):
        _assert_one_target(text, origin)
        assert host.isascii()
        assert host == host.lower()
        assert registrable_domain(host).strip(".") in host
        other_form = f"[{host.upper()}]" if ":" in host else host.upper() + "."
        assert host_of(f"HTTPS://someone@{other_form}:8443/x") == host
        assert Request(sent).url == sent, "Scrapy sends what was judged"


def _assert_one_target(text: str, origin: str) -> None:
    """All forms of a URL have its origin, and no dot segment; a query is only encoded."""
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
    query = urls._stripped(text).partition("#")[0].partition("?")[2]
    assert unquote_to_bytes(sent.partition("?")[2]) == unquote_to_bytes(query)


def check_reference(body: bytes) -> None:
    """A Location leads to a web URL of ASCII that is sent as it is judged, or nowhere."""
    target = resolve_reference(URL, body)
    if target is not None:
        assert wire_url(target) == Request(target).url == target
        assert target.isascii()
        assert target.isprintable()
        assert " " not in target
        assert len(target) <= MAX_FOLLOWED_CHARACTERS
        assert origin_of(target).startswith(("http://", "https://"))
        assert resolve_reference(target, target.encode()) == target


def check_link_header(body: bytes) -> None:
    """A Link header announces markdown of its own server only."""
    values = body.decode("latin-1").split("\n")
    values += [f"<{value}>; rel=alternate; type=text/markdown" for value in values]
    alternates = markdown_alternates(values, URL)
    own = ("https://blog.example/", "http://blog.example/")
    assert all(link.startswith(own) for link in alternates)
    max_links = sum(value.count("<") for value in values)
    assert len(alternates) + len(feed_alternates(values, URL)) <= max_links


def check_html_head(body: bytes) -> None:
    """A page declares web URLs in elements of its head, each with a title that can be shown."""
    found = feeds_in_head(body, "text/html", URL)
    assert len(found) <= body.lower().count(b"<")
    for link in found:
        assert origin_of(link.url).startswith(("http://", "https://"))
        assert link.url.isascii()
        assert one_line(link.title) == link.title
    assert len(declared_feeds((*found, *found))) <= min(len(found), MAX_FEEDS)


def check_response(body: bytes) -> None:
    """A response is read or refused, and in the same way wherever it is split."""
    assert _outcome([body]) == _outcome([body[at : at + 7] for at in range(0, len(body), 7)])


def _outcome(pieces: list[bytes]) -> object:
    # A refusal may come earlier or later in the bytes, with another sentence.
    with suppress(*REFUSALS):
        status, content, _ = read_response(pieces)
        assert 200 <= status < 1000
        assert content in b"".join(pieces) or b"chunked" in b"".join(pieces)
        assert len(content) <= sum(map(len, pieces)) <= 16 * MAX_HEAD_BYTES
        return status, content
    return None


# The table of what is fuzzed.


LIST_WORDS = ("contract", "walsh-research-blocklist/v1", "refresh", "PT6H", "blocked", "domain")
SCHEMA_WORDS = ("type", "$ref", "$id", "$schema", "properties", "items", "blocked", "#", "pattern")

TARGETS = {
    "robots": Target(check_robots, (documents.ROBOTS,)),
    "blocklist": Target(
        check_blocklist, (documents.BLOCKLIST,), documents=documents.json_documents(*LIST_WORDS)
    ),
    "schema": Target(
        check_schema, (documents.SCHEMA,), documents=documents.json_documents(*SCHEMA_WORDS)
    ),
    "feeds": Target(
        check_feed, (documents.RSS, documents.ATOM, documents.RDF), pieces=documents.MARKUP_PIECES
    ),
    "jsonfeed": Target(check_feed, (documents.JSON_FEED,)),
    "llms": Target(check_llms, (documents.LLMS,), pieces=documents.MARKDOWN_PIECES),
    "opml": Target(check_opml, (documents.OPML,), pieces=documents.MARKUP_PIECES),
    "sources": Target(
        check_sources,
        (documents.TOML, documents.LIST, documents.OPML),
        pieces=documents.URL_PIECES,
    ),
    "retryafter": Target(check_retry_after, documents.DATES),
    "freshness": Target(check_freshness, (documents.CACHING,)),
    "durations": Target(check_duration, documents.DURATIONS, pieces=documents.DURATION_PIECES),
    "urls": Target(check_url, documents.URLS, pieces=documents.URL_PIECES),
    "references": Target(check_reference, documents.REFERENCES, pieces=documents.URL_PIECES),
    "linkheaders": Target(check_link_header, (documents.LINKS,)),
    "heads": Target(check_html_head, (documents.HEAD,), pieces=documents.MARKUP_PIECES),
    "responses": Target(check_response, documents.RESPONSES, pieces=documents.RESPONSE_PIECES),
}


# Each target reads its seeds, and some hundred documents made by chance.


@pytest.mark.parametrize("name", TARGETS)
def test_each_seed_is_read(name):
    for body in TARGETS[name].seeds:
        TARGETS[name].check(body)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=300)
@given(data=st.data())
def test_any_document_is_read_or_refused(name, data):
    target = TARGETS[name]
    target.check(data.draw(documents.bodies(target.seeds, target.pieces, target.documents)))


def test_examples_are_reproducible_and_have_no_deadline():
    assert settings.default.derandomize
    assert settings.default.database is None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
