"""The format of a body: XML or JSON to be read as a feed, or what it is instead (R9)."""

import json
import re
from typing import Final, Literal

from walsh_scrapy.metadata.entries import NotAFeed

_HEAD: Final = 16384  # bytes in which the root element must begin
_RESCUE: Final = 4096  # bytes of junk, such as a PHP warning, after which a feed is still found

# Possessive and atomic throughout, so that the time for an unfinished prolog is linear.
_PROLOG: Final = re.compile(
    rb"(?>\s++|<\?.*?\?>|<!--.*?-->|<!doctype(?:[^\[<>]|<(?!/?\w)[^<>]*>)*(?:\[.*?\]\s*)?>)*+",
    re.DOTALL | re.IGNORECASE,
)
_ELEMENT: Final = re.compile(rb"<(?:[\w.-]+:)?([A-Za-z][\w.-]*)")
_FEED_ROOT: Final = re.compile(rb"<(?:[\w.-]+:)?(?:rss|RDF|feed)(?=[\s>])")
_HTML_DOCTYPE: Final = re.compile(rb"<!doctype\s+html\b", re.IGNORECASE)
FEED_ROOTS: Final = frozenset({b"rss", b"rdf", b"feed"})
_HTML: Final = frozenset(
    b"html head body title meta link script style h1 div p center table frameset".split()
)
_ROOTS: Final = {
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

    The bytes decide, because feeds are served with any media type; `content_type` is only part of
    the message. An HTML page is recognised by its first element and not searched for feeds (R9).
    """
    head = _ascii_head(body).lstrip()
    if not head:
        raise NotAFeed("The response body was empty, where a feed was expected.")
    if head[:1] in {b"{", b"["}:
        return "json"
    what = _other_than_feed(head)
    if what is not None:
        raise NotAFeed.but(what, content_type)
    return "xml"


def _ascii_head(body: bytes) -> bytes:
    """Return the beginning of the body in an encoding in which `<rss` is four bytes."""
    encoding = json.detect_encoding(body[:4])  # by BOM or zero bytes
    if encoding == "utf-8":
        return body[:_HEAD]
    return body[:_HEAD].decode(encoding, "ignore").encode("utf-8", "ignore")


def _other_than_feed(head: bytes) -> str | None:
    """Return what the document is instead of an XML feed; None if it may be one."""
    start = _PROLOG.match(head)
    at = start.end() if start else 0
    if _HTML_DOCTYPE.search(head, 0, at):
        return "an HTML page"
    root = _ELEMENT.match(head, at)
    name = root[1].lower() if root else b""
    if name in FEED_ROOTS:
        return None
    if name == b"html":
        return "an HTML page"
    if name not in _ROOTS and _FEED_ROOT.search(head, at, at + _RESCUE):
        return None
    return _by_root(name) if name else _by_signature(head)


def _by_root(root: bytes) -> str:
    if root in _HTML:
        return "an HTML page"
    return _ROOTS.get(root) or f"XML of another kind (<{root[:40].decode('ascii', 'ignore')}>)"


def _by_signature(head: bytes) -> str:
    for signature, what in _SIGNATURES:
        if head.startswith(signature):
            return what
    printable = sum(byte >= 32 or byte in b"\t\n\r" for byte in head[:512])
    return "plain text" if printable >= 0.95 * len(head[:512]) else "binary data"
