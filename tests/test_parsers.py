"""Every parser reads any bytes, or refuses them by its own error; what it returns makes sense."""
# ruff: noqa: RUF001 - look-alikes are what is tested

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

from tests.wire.test_http1 import REFUSALS, read
from walsh_scrapy.items import EntryItem, InvalidItem, check_item
from walsh_scrapy.metadata.alternates import (
    MAX_FEEDS,
    declared_feeds,
    feed_alternates,
    feeds_in_head,
    markdown_alternates,
)
from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.metadata.feed import parse_feed
from walsh_scrapy.metadata.llmstxt import parse_llms
from walsh_scrapy.metadata.text import one_line
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
from walsh_scrapy.policy.freshness import Freshness
from walsh_scrapy.policy.robots import RobotsTxt
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
from walsh_scrapy.sources.files import UnreadableFile
from walsh_scrapy.sources.loading import load_sources
from walsh_scrapy.sources.opml import read_opml
from walsh_scrapy.sources.source import SourcesError
from walsh_scrapy.testing.crawl import write_sources
from walsh_scrapy.wire.http1 import MAX_HEAD_BYTES

_PARTS = re.compile(rb"(?=<)|(?<=[>\n])")


@dataclass(frozen=True, slots=True)
class Target:
    """A reader of bytes with what must hold for each input.

    ``check`` reads the bytes. It returns if they were read, or refused by the documented error, and
    if what must hold for the result does. Any exception it raises is a finding.
    """

    check: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    pieces: tuple[bytes, ...] = ()  #: of the language that is read, to be joined in any order
    made: st.SearchStrategy[bytes] | None = None  #: whole documents, which no pieces would be


def json_values(*words: str) -> st.SearchStrategy[object]:
    """Return values of JSON of any shape, with these words among their keys and texts."""
    texts = st.text(max_size=8) | (st.sampled_from(words) if words else st.nothing())
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=5),
    )


def json_documents(*words: str) -> st.SearchStrategy[bytes]:
    """Return documents of JSON with these words."""
    return json_values(*words).map(json.dumps).map(str.encode)


def encoded(*texts: str) -> tuple[bytes, ...]:
    """Return texts as bytes; halves of surrogate pairs as if UTF-8 had them."""
    return tuple(text.encode("utf-8", "surrogatepass") for text in texts)


@st.composite
def bodies(draw: st.DrawFn, target: Target) -> bytes:
    """Return any bytes, text or pieces: alone, or in the middle of a seed."""
    text = st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
    lines_and_tags = [each for seed in target.seeds for each in _PARTS.split(seed)]
    piece = st.sampled_from([*target.pieces, *lines_and_tags]) | st.binary(max_size=9)
    mixed = st.lists(piece, max_size=40).map(b"".join)
    made = mixed if target.made is None else target.made
    noise = draw(st.binary(max_size=300) | text | mixed | made)
    seed = draw(st.sampled_from((b"", *target.seeds)))
    start = draw(st.integers(0, len(seed)))
    end = draw(st.integers(start, min(len(seed), start + 30)))
    return seed[:start] + noise + seed[end:]


def assert_sentence(error: Exception, longest: int) -> None:
    """Raise AssertionError if an error is no single line of so many characters at most."""
    text = str(error)
    assert text
    assert len(text.splitlines()) == 1, text
    assert len(text) <= longest, f"{len(text):,} characters"


def assert_bounded(result: object, body: bytes, times: int) -> None:
    """Raise AssertionError if a result is longer, as text, than so many times its document."""
    size = len(repr(result))
    assert size <= times * len(body) + 10_000, f"{size:,} characters of {len(body):,} bytes"


# Documents of sites and of the operator: each is read or refused by its own error.

URL = "https://blog.example/a/feed"
TOKEN = "Walsh-Research"
AT = datetime(2026, 11, 21, 3, 8, 56, tzinfo=UTC)
PATHS = ("/", "/robots.txt", "/a/b.xml?c=d/e", "/caf%C3%A9/%2F%7e", "/index.php?id=1&x=%zz")


def robots(body: bytes) -> None:
    """Any bytes are a robots.txt; all of its answers make sense."""
    file = RobotsTxt.parse(body)
    for token in (TOKEN, "Other"):
        rules = file.rules_for(token)
        for path in PATHS:
            verdict = rules.verdict(f"https://blog.example{path}")
            assert (verdict.line is None) == (verdict.rule is None)
            assert verdict.allowed or verdict.rule or verdict.undecided
        opens = rules.opens(AT)
        assert opens >= AT
        assert rules.opens(opens) == opens
        assert rules.interval(AT) is None or rules.interval(AT) > 0
        assert rules.crawl_delay is None or 0 <= rules.crawl_delay < float("inf")
        assert_bounded((rules.comments, rules.warnings), body, 20)


def blocklist(body: bytes) -> None:
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


def schema(body: bytes) -> None:
    """A published schema is used or not; a sound one checks a list without an error of its own."""
    found = sound_schema(body)
    if found is not None:
        with suppress(InvalidBlocklist):
            Blocklist.parse(_LIST, found)


_LIST = b"""{"version": "walsh-research-blocklist/v1", "updated": "2026-05-23T00:00:00Z",
"contact": "j@wal.sh", "policy": "https://wal.sh/bot/", "refresh": "PT6H",
"blocked": [{"domain": "example.com", "added": "2026-05-23", "reason": "email opt-out"}]}"""


def feed(body: bytes) -> None:
    """A feed is read, or refused by one sentence; see `_assert_metadata`."""
    try:
        found = parse_feed(body, url=URL, content_type=None, source=URL)
    except NotAFeed as error:
        assert_sentence(error, 500)
    else:
        _assert_metadata(found, "feed", body)
        assert found.hints.opens(AT.timestamp()) >= AT.timestamp()


def llms(body: bytes) -> None:
    """A page of markdown is read, or refused by one sentence."""
    try:
        found = parse_llms(body, url=URL, content_type="text/markdown", source=URL)
    except NotAFeed as error:
        assert_sentence(error, 500)
    else:
        _assert_metadata(found, "llms", body)


def opml(body: bytes) -> None:
    """Subscriptions are read, or the file refused."""
    with suppress(UnreadableFile):
        assert_bounded([outline.tags for outline in read_opml(body).outlines], body, 300)


def sources(body: bytes) -> None:
    """A file of the operator declares targets that can be requested, or is refused in one line."""
    logger = logging.getLogger("walsh_scrapy.sources")
    logger.setLevel(logging.ERROR)
    try:
        _load(body)
    finally:
        logger.setLevel(logging.NOTSET)


def _load(body: bytes) -> None:
    for ending in (".toml", ".json", ".txt", ".opml"):
        file = _folder() / f"sources{ending}"
        file.write_bytes(body)
        try:
            found = load_sources(file)
        except SourcesError as error:
            assert_sentence(error, 2000)
        else:
            assert found
            assert all(each.url.startswith(("http://", "https://")) for each in found)
            assert all(each.url.isascii() and each.url.isprintable() for each in found)
            assert all(Request(each.url).url == each.url for each in found)
            written = write_sources(_folder() / "again.txt", [each.url for each in found])
            assert [each.url for each in load_sources(written)] == [each.url for each in found]


@cache
def _folder() -> Path:
    _folder.kept = TemporaryDirectory()
    return Path(_folder.kept.name)


def _assert_metadata(found, kind, body):
    """Each entry is an item of text that can be stored, on one line, with a key and a web URL."""
    for entry in found.entries:
        assert len(entry.key) == 64
        assert entry.url is None or re.fullmatch(r"(?i)https?://[^\s/?#]\S*", entry.url)
        for text in (entry.title, entry.section, entry.note, *entry.authors, *entry.tags):
            assert text is None or (text and text == " ".join(text.split()))
            assert not re.search("[\x00-\x1f\x7f-\x9f\ud800-\udfff]", text or "")
        item = EntryItem.from_entry(entry, feed=found, source=URL, kind=kind)
        json.dumps(item.to_dict(), ensure_ascii=False).encode()
        with suppress(InvalidItem) if kind == "feed" else nullcontext():
            check_item(replace(item, first_seen="2026-05-23T00:00:00Z"))
    if kind == "llms":
        assert len({entry.key for entry in found.entries}) == len(found.entries)
    assert_bounded(found, body, 300)


# Headers, URLs and durations: each value is read or ignored, and each response read or refused.


def retry_after(body: bytes) -> None:
    """A Retry-After is a time that can be added to a date, or nothing."""
    for text in (body.decode("latin-1"), body.decode("utf-8", "replace")):
        seconds = parse_retry_after(text, AT)
        if seconds is not None:
            assert 0 <= seconds <= MAX_WAIT_SECONDS
            assert AT + timedelta(seconds=seconds) >= AT


def freshness(body: bytes) -> None:
    """The headers of a cache, one a line, ask for a time from 0 on."""
    lines = (*body.decode("latin-1").split("\n"), *[None] * 5)
    seconds = Freshness(*lines[:5]).lifetime(AT.timestamp())
    assert 0 <= seconds <= 300 * MAX_WAIT_SECONDS


def duration(body: bytes) -> None:
    """A duration is never negative, or refused by one sentence."""
    try:
        found = parse_duration(body.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        assert_sentence(error, 600)  # escapes of 40 characters
    else:
        assert found >= timedelta(0)


_LIST_VALUES = Blocklist({"b.example": Entry("b.example", "", "")}, timedelta(1))


def url(body: bytes) -> None:
    """What is judged, sent and remembered of a URL is one host, whatever the spelling."""
    text = body.decode("utf-8", "surrogateescape")
    host, sent, known = host_of(text), wire_url(text), canonical_url(text)
    resolved = without_dot_segments(text)
    assert wire_url(sent) == sent
    assert canonical_url(known) == canonical_url(sent) == known
    assert without_dot_segments(resolved) == resolved
    assert host_of(sent) == host_of(resolved) == host
    blocked = _LIST_VALUES.blocks(text) is not None
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


def reference(body: bytes) -> None:
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
    assert len(declared_feeds((*found, *found))) <= min(len(found), MAX_FEEDS)


def response(body: bytes) -> None:
    """A response is read or refused, and in the same way wherever it is split."""
    assert _outcome([body]) == _outcome([body[at : at + 7] for at in range(0, len(body), 7)])


def _outcome(pieces: list[bytes]) -> object:
    # A refusal may come earlier or later in the bytes, with another sentence.
    with suppress(*REFUSALS):
        status, content, _ = read(pieces)
        assert 200 <= status < 1000
        assert content in b"".join(pieces) or b"chunked" in b"".join(pieces)
        assert len(content) <= sum(map(len, pieces)) <= 16 * MAX_HEAD_BYTES
        return status, content
    return None


# The table of what is fuzzed.


def read_seed(name):
    return (Path(__file__).parent / name).read_bytes()


ROBOTS = read_seed("policy/robots.txt")
BLOCKLIST = read_seed("policy/blocklist.json")
SCHEMA = read_seed("policy/schema.json")
RSS = read_seed("metadata/rss.xml")
ATOM = read_seed("metadata/atom.xml")
RDF = read_seed("metadata/rdf.xml")
JSON_FEED = read_seed("metadata/feed.json")
LLMS = read_seed("metadata/page.md")
OPML = read_seed("metadata/list.opml")
TOML = b"""[[source]]
url = "https://b\xc3\xbccher.example:443/feed.xml#top"
name = "B"
kind = "llms"
tags = ["a", "b"]
every = "P2DT3H"
"""
LIST = b"""# feeds
https://a.example/feed # the first
http://[2001:db8::1]:8080/a/../b
"""
SOURCES_JSON = b'{"source": ["https://a.example/f", {"url": "//b.example/", "every": "P1D"}]}'
URLS = (
    b"https://user@B\xc3\xbccher.Example.:443/a/%2E%2e/b?q=/../#top",
    b"http://0x7f.1/",
    b"//[2001:db8::1]:80\\a",
    b" HTTP:/fa\xc3\x9f.de:0080/./.. /",
    b"http://a%2eb.example./;x?y",
    b"../c%zz d\xff",
)
REFERENCES = (*URLS, b"//:/x", b"http://b.example\x11?")
DURATIONS = (b"P1W", b"P1DT12H30M1.5S", b"PT0,5H")
LINKS = b"""</page.md>; rel="alternate"; type="text/markdown", <b>; rel=next
<//blog.example:443/f>; type="application/atom+xml"; rel="x alternate"; title="a\\"<,\""""
HEAD = b"""<!doctype html><html><head><base href="/blog/"><noscript><img src=x></noscript>
<link rel="alternate" type="application/rss+xml" title="A &amp; B" href="feed/">
<LINK REL='x Alternate' HREF=//b.example/feed.json TYPE=application/json></head><body><p>x"""
CACHING = b"""max-age=3600, private="x"
Sun, 06 Nov 2027 08:49:37 GMT
Sat Nov 21 03:08:56 2026
60
120"""
DATES = (
    b"120",
    b"Sun, 06 Nov 1994 08:49:37 GMT",
    b"Sunday, 06-Nov-94 08:49:37 GMT",
    b"Sun Nov  6 08:49:37 1994",
    b'60, "1.5 min"',
    b"1779537690000",
)
EARLY = b"HTTP/1.1 103 Early Hints\r\n\r\n"
CHUNKED = b"HTTP/1.0 200\nno colon\nTransfer-Encoding: chunked\n\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n"
RESPONSES = (
    b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\nETag: "x"\r\n folded\r\n\r\nabc',
    EARLY + CHUNKED,
    b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\nContent-Length: 9\r\n\r\n",
)

URL_PIECES = encoded(
    *("http", "HTTP", "https", "ftp", "feed", "mailto", ":", "://", "//", "/", "\\", "?", "#", "@"),
    *("[", "]", "%", "%2e", "%2f", "%25", "%61", "%5c", "%C2%AD", ".", "..", "a", "A", "b.example"),
    *("B.Example", "127", "127.1", "0x7f", "1", "80", ":80", ":443", ":65536", "::1", "user"),
    *("xn--", "bücher", "ß", "é", "ｅ", "．", "。", "℀", "❤", "\u00ad", "\u200d", "\t", "\n", " "),
    *("-", "_", "*", "\ud800", "\x00", "http://a/", "/../", "/./"),
)
MARKDOWN_PIECES = encoded(
    *("[", "]", "(", ")", "!", "<", ">", "`", "```\n", "*", "**", "_", "#", "# ", "## ", "- "),
    *("1. ", "> ", "    ", "\t", "\n", "\n\n", "\r", " ", ": ", "---\n", "===\n", "|", "\\", "&"),
    *("&amp;", "<!--", "-->", "<a href='", "'>", "</a>", "<div>", "<br>", "<https://", "https://"),
    *("a", "ä", "\u2028", "\x00", "\ufffd", "\ud800", "://", "/b", "?c", "#d", "@", "mailto:"),
    *("javascript:", "a.example", "[a](b)", "[r]: /r\n", "[r]", "![", "](", "][", "'t'", "HTTP://"),
    *("x" * 301, "word " * 150, "x" * 5000),
)
MARKUP_PIECES = encoded(
    *("<rss>", "<feed xmlns='http://www.w3.org/2005/Atom'>", "<channel>", "</channel>", "<item>"),
    *("</item>", "<entry>", "</entry>", "<title>", "</title>", "<link>", "</link>", "<opml>"),
    *("</opml>", "<outline ", "<outline>", "</outline>", 'xmlUrl="x"', "text=", "<head", "</head>"),
    *("<body>", "<svg>", "<base href=", "<link rel=alternate href=/f type=application/rss+xml>"),
    *("<b>" * 300, "a=b " * 300, "<!--", "-->", "<?xml ", "<?", "<!DOCTYPE a [", "]>", "<![CDATA["),
    *("]]>", "&amp;", "&nbsp;", "&#0;", "&", "<", ">", "/>", "'", '"', "\x00"),
)
RESPONSE_PIECES = (
    *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200\n", b"HTTP/1.1 103 Early Hints\r\n", b"\r\n", b"\n"),
    *(b"Content-Length: 3\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Connection: close\r\n", b" folded\r\n", b"no colon\r\n", b"3\r\nabc\r\n0\r\n\r\n", b"abc"),
)
DURATION_PIECES = tuple(bytes([piece]) for piece in b"PTWDHMS0123456789.,-")
LIST_WORDS = ("contract", "walsh-research-blocklist/v1", "refresh", "PT6H", "blocked", "domain")
SCHEMA_WORDS = ("type", "$ref", "$id", "$schema", "properties", "items", "blocked", "#", "pattern")

TARGETS = {
    "robots": Target(robots, (ROBOTS,)),
    "blocklist": Target(blocklist, (BLOCKLIST,), made=json_documents(*LIST_WORDS)),
    "schema": Target(schema, (SCHEMA,), made=json_documents(*SCHEMA_WORDS)),
    "feeds": Target(feed, (RSS, ATOM, RDF), pieces=MARKUP_PIECES),
    "jsonfeed": Target(feed, (JSON_FEED,)),
    "llms": Target(llms, (LLMS,), pieces=MARKDOWN_PIECES),
    "opml": Target(opml, (OPML,), pieces=MARKUP_PIECES),
    "sources": Target(sources, (TOML, LIST, SOURCES_JSON, OPML), pieces=URL_PIECES),
    "retryafter": Target(retry_after, DATES),
    "freshness": Target(freshness, (CACHING,)),
    "durations": Target(duration, DURATIONS, pieces=DURATION_PIECES),
    "urls": Target(url, URLS, pieces=URL_PIECES),
    "references": Target(reference, REFERENCES, pieces=URL_PIECES),
    "linkheaders": Target(link_header, (LINKS,)),
    "heads": Target(html_head, (HEAD,), pieces=MARKUP_PIECES),
    "responses": Target(response, RESPONSES, pieces=RESPONSE_PIECES),
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
    TARGETS[name].check(data.draw(bodies(TARGETS[name])))


def test_the_gate_draws_the_same_examples_each_time_and_times_none():
    assert settings.default.derandomize
    assert settings.default.database is None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
