"""What came: something to be read as a feed, or else a sentence about what it is instead."""

import json
import re
from typing import Final, Literal

from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.metadata.text import one_line

_HEAD: Final = 16384  # bytes in which the root element must begin
_RESCUE: Final = 4096  # bytes of junk, such as a PHP warning, before which a feed is still found

# Possessive and atomic throughout: an unfinished prolog costs one pass and no more.
_PROLOG: Final = re.compile(
    rb"(?>\s++|<\?.*?\?>|<!--.*?-->|<!doctype(?:[^\[<>]|<(?!/?\w)[^<>]*>)*(?:\[.*?\]\s*)?>)*+",
    re.DOTALL | re.IGNORECASE,
)
_ELEMENT: Final = re.compile(rb"<(?:[\w.-]+:)?([A-Za-z][\w.-]*)")
_FEED_ROOT: Final = re.compile(rb"<(?:[\w.-]+:)?(?:rss|RDF|feed)(?=[\s>])")
_HTML_DOCTYPE: Final = re.compile(rb"<!doctype\s+html\b", re.IGNORECASE)
_FEED_ROOTS: Final = frozenset({b"rss", b"rdf", b"feed"})
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
_MAGIC: Final = (
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


def form_of(body: bytes, content_type: str | None) -> Literal["xml", "json"]:
    """Return how to read a body; raise NotAFeed if it cannot be a feed at all.

    The bytes decide, since feeds are served under every media type. An HTML page is refused by its
    first element and never searched for one (R9).
    """
    head = _ascii_head(body).lstrip()
    if not head:
        raise NotAFeed("The response body was empty, where a feed was expected.")
    if head[:1] in {b"{", b"["}:
        return "json"
    what = _foreign(head)
    if what is not None:
        raise not_a_feed(what, content_type)
    return "xml"


def not_a_feed(what: str, content_type: str | None = None) -> NotAFeed:
    """Return the error for something else that came: `an HTML page`, `a sitemap`."""
    announced = (one_line(content_type) or "")[:80]
    return NotAFeed(f"Not a feed but {what}{f' (served as {announced})' if announced else ''}.")


def _ascii_head(body: bytes) -> bytes:
    """Return the beginning of the body in an encoding in which `<rss` is four bytes."""
    encoding = json.detect_encoding(body[:4])  # BOM or zero bytes: XML and JSON agree on these
    if encoding == "utf-8":
        return body[:_HEAD]
    return body[:_HEAD].decode(encoding, "ignore").encode("utf-8", "ignore")


def _foreign(head: bytes) -> str | None:
    """Return what the document is instead of an XML feed; None if it may be one."""
    start = _PROLOG.match(head)
    at = start.end() if start else 0
    if _HTML_DOCTYPE.search(head, 0, at):
        return "an HTML page"
    root = _ELEMENT.match(head, at)
    name = root[1].lower() if root else b""
    if name in _FEED_ROOTS:
        return None
    if name == b"html":
        return "an HTML page"
    if name not in _ROOTS and _FEED_ROOT.search(head, at, at + _RESCUE):
        return None
    return _named(name) if name else _unmarked(head)


def _named(root: bytes) -> str:
    if root in _HTML:
        return "an HTML page"
    return _ROOTS.get(root) or f"XML of another kind (<{root[:40].decode('ascii', 'ignore')}>)"


def _unmarked(head: bytes) -> str:
    for magic, what in _MAGIC:
        if head.startswith(magic):
            return what
    printable = sum(byte >= 32 or byte in b"\t\n\r" for byte in head[:512])
    return "plain text" if printable >= 0.95 * len(head[:512]) else "binary data"
