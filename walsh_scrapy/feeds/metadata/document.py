"""The document of a response: its media type, its format and its maximum number of entries (R9).

The media type decides if a body is read at all (R6). The bytes show whether a body is XML or JSON
that is read as a feed, or something else.

A document may add only so much to the state, so that no site can fill it. The maximum
lengths of texts are in `metadata.text`, the maximum number of links in `metadata.llmstxt`. Of a
feed with too many entries, only the newest entries are read.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from walsh_scrapy.feeds.metadata.entries import Feed, NotAFeed

_FEED_TYPES = (
    "application/atom+xml",
    "application/feed+json",
    "application/rdf+xml",
    "application/rss+xml",
)
_PAGE_TYPES = ("application/xhtml+xml", "text/html")
_NEVER_FEED_PREFIXES = ("audio/", "font/", "image/", "model/", "video/")
_NEVER_FEED_TYPES = frozenset(
    {
        "application/gzip",
        "application/java-archive",
        "application/msword",
        "application/pdf",
        "application/vnd.ms-excel",
        "application/wasm",
        "application/x-tar",
        "application/zip",
        "multipart/form-data",
        "text/calendar",
        "text/css",
        "text/csv",
    }
)


def may_be_feed(content_type: str) -> bool:
    """Return True if a body with this Content-Type may be a feed.

    Servers send feeds with many media types, such as text/html and application/octet-stream. So
    only types that no feed has are excluded, such as `image/svg+xml`.
    """
    media_type = _media_type(content_type)
    return not media_type.startswith(_NEVER_FEED_PREFIXES) and media_type not in _NEVER_FEED_TYPES


def is_feed(content_type: str) -> bool:
    """Return True for a media type of RSS, Atom or JSON Feed."""
    return _media_type(content_type) in _FEED_TYPES


_ROOT_END: Final = re.compile(rb"</(?:[\w.-]+:)?(?:rss|rdf|feed)\s*>", re.IGNORECASE)
_OBJECT: Final = re.compile(rb"[\xef\xbb\xbf\xff\xfe\s]*\{.*\}\s*", re.DOTALL)


def may_have_ended(body: bytes) -> bool:
    """Return True if the end of a feed seems to be in the body; a quick check in any encoding.

    The parser makes the final decision.
    """
    text = body.replace(b"\0", b"")  # UTF-16 and UTF-32
    return bool(_ROOT_END.search(text) or _OBJECT.fullmatch(text))


def is_json(content_type: str) -> bool:
    """Return True for the media type of JSON documents of any kind."""
    return _media_type(content_type) == "application/json"


def is_html(content_type: str) -> bool:
    """Return True for a media type of HTML pages."""
    return _media_type(content_type) in _PAGE_TYPES


def is_markdown(content_type: str) -> bool:
    """Return True for a media type of markdown."""
    return _media_type(content_type) in ("text/markdown", "text/x-markdown")


def may_be_llms(content_type: str) -> bool:
    """Return True if a body may be an llms.txt: markdown, plain text, or without a media type."""
    return is_markdown(content_type) or _media_type(content_type) in ("text/plain", "")


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


_HEAD_BYTES: Final = 262_144  #: The root element must begin in these bytes.
_MAX_JUNK_BYTES: Final = 4096  #: Junk that may come before a feed, such as a PHP warning.

# Possessive and atomic throughout, so that the time for an unfinished prolog is linear.
_PROLOG: Final = re.compile(
    rb"(?>\s++|<\?.*?\?>|<!--.*?-->|<!doctype(?:[^\[<>]|<(?!/?\w)[^<>]*>)*(?:\[.*?\]\s*)?>)*+",
    re.DOTALL | re.IGNORECASE,
)
_ELEMENT: Final = re.compile(rb"<(?:[\w.-]+:)?([A-Za-z][\w.-]*)")
_FEED_ROOT: Final = re.compile(rb"<(?:[\w.-]+:)?(?:rss|RDF|feed)(?=[\s>])")
_HTML_DOCTYPE: Final = re.compile(rb"<!doctype\s+html\b", re.IGNORECASE)
FEED_ROOTS: Final = frozenset({b"rss", b"rdf", b"feed"})
_HTML_ROOTS: Final = frozenset(
    b"html head body title meta link script style h1 div p center table frameset".split()
)
_OTHER_ROOTS: Final = {
    b"opml": "a list of feeds (OPML); declare it as a sources file",
    b"urlset": "a sitemap",
    b"sitemapindex": "a sitemap index",
    b"svg": "an image (SVG)",
    b"entry": "a single Atom entry",
    b"error": "an error message (XML)",
}
_SIGNATURES: Final = (
    (b"\x89PNG", "an image (PNG)"),
    (b"\xff\xd8\xff", "an image (JPEG)"),
    (b"GIF8", "an image (GIF)"),
    (b"RIFF", "an image or sound (RIFF)"),
    (b"\x00\x00\x01\x00", "an image (ICO)"),
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data that the server did not announce as Content-Encoding"),
    (b"ID3", "sound (MP3)"),
)


def format_of(body: bytes, content_type: str | None) -> Literal["xml", "json"]:
    """Return the format of a feed; raise NotAFeed if the body cannot be one.

    The bytes decide, because feeds are served with any media type. `content_type` is only used in
    the error message. An HTML page is recognised by its first element and not searched for feeds
    (R9).
    """
    head = _ascii_head(body).lstrip()
    if not head:
        raise NotAFeed("The response body was empty, where a feed was expected.")
    if head[:1] in {b"{", b"["}:
        return "json"
    other_format = _other_format(head)
    if other_format is not None:
        raise NotAFeed.of_format(other_format, content_type)
    return "xml"


def _ascii_head(body: bytes) -> bytes:
    """Return the beginning of the body in UTF-8 or in another encoding that extends ASCII."""
    encoding = json.detect_encoding(body[:4])  # by BOM or zero bytes
    if encoding == "utf-8":
        return body[:_HEAD_BYTES]
    return body[:_HEAD_BYTES].decode(encoding, "ignore").encode("utf-8", "ignore")


def _other_format(head: bytes) -> str | None:
    """Return what a body is that is not an XML feed; None if the body may be an XML feed."""
    prolog = _PROLOG.match(head)
    root_start = prolog.end() if prolog else 0
    if _HTML_DOCTYPE.search(head, 0, root_start):
        return "an HTML page"
    root = _ELEMENT.match(head, root_start)
    name = root[1].lower() if root else b""
    if name in FEED_ROOTS:
        return None
    may_follow_junk = name != b"html" and name not in _OTHER_ROOTS
    if may_follow_junk and _FEED_ROOT.search(head, root_start, root_start + _MAX_JUNK_BYTES):
        return None
    return _describe_root(name) if name else _describe_signature(head)


def _describe_root(root: bytes) -> str:
    if root in _HTML_ROOTS:
        return "an HTML page"
    return (
        _OTHER_ROOTS.get(root) or f"XML of another kind (<{root[:40].decode('ascii', 'ignore')}>)"
    )


def _describe_signature(head: bytes) -> str:
    for signature, name in _SIGNATURES:
        if head.startswith(signature):
            return name
    printable = sum(byte >= 32 or byte in b"\t\n\r" for byte in head[:512])
    return "plain text" if printable >= 0.95 * len(head[:512]) else "binary data"


MAX_ENTRIES: Final = 10_000  #: Of a document with more entries, the newest are kept.

T = TypeVar("T")


def newest(entries: Sequence[T], date: Callable[[T], str | None]) -> tuple[T, ...]:
    """Return the newest `MAX_ENTRIES` entries in document order.

    `date` returns the date of an entry as RFC 3339 in UTC. Entries without a date are treated as
    the oldest. Of entries with the same date the first are kept, because most feeds begin with the
    newest entry.
    """
    if len(entries) <= MAX_ENTRIES:
        return tuple(entries)
    dates = [date(entry) or "" for entry in entries]
    order = sorted(range(len(entries)), key=dates.__getitem__, reverse=True)  # stable
    return tuple(entries[index] for index in sorted(order[:MAX_ENTRIES]))


@dataclass(frozen=True, slots=True)
class Document:
    """A document that is still to be read."""

    kind: Literal["feed", "llms"]
    body: bytes
    url: str  #: the final URL of the response
    content_type: str | None
    source: str  #: the declared URL
    is_cut_off: bool = False  #: the response was incomplete: a feed without its end is refused

    def read(self) -> Feed:
        """Return the feed, or the links of a page; raise NotAFeed if there is neither."""
        # Imported only where documents are read: a crawl leaves that to another process.
        if self.kind == "feed":
            from walsh_scrapy.feeds.metadata.feed import parse_feed as parse  # noqa: PLC0415
        else:
            from walsh_scrapy.feeds.metadata.llmstxt import parse_llms as parse  # noqa: PLC0415
        feed = parse(self.body, url=self.url, content_type=self.content_type, source=self.source)
        if self.is_cut_off and not feed.is_complete:
            raise NotAFeed(f"{self.url} was cut off before its end.")
        return feed
