"""The media type of a body, which says if it is read at all (R6, R9), and its character encoding.

Valid UTF-8 is read as UTF-8, whatever is declared. Servers declare `iso-8859-1` for everything, and
feeds copy their first line from each other, but text in another encoding is hardly ever valid UTF-8
by accident.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Final

from w3lib.encoding import http_content_type_encoding, resolve_encoding

_FEEDS = ("application/atom+xml", "application/feed+json", "application/rss+xml")
_PAGES = ("application/xhtml+xml", "text/html")
_NEVER = ("audio/", "font/", "image/", "model/", "video/")
_NEVER_EXACTLY = frozenset(
    {
        "application/gzip",
        "application/java-archive",
        "application/javascript",
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
        "text/javascript",
    }
)


def may_be_feed(content_type: str) -> bool:
    """Return True if a body with this Content-Type may be a feed.

    Servers send feeds with many media types, such as text/html and application/octet-stream, so
    only types that are never used for feeds are excluded. `image/svg+xml` is one of these.
    """
    media_type = _media_type(content_type)
    return not media_type.startswith(_NEVER) and media_type not in _NEVER_EXACTLY


def is_feed(content_type: str) -> bool:
    """Return True if the media type is that of RSS, Atom or JSON Feed."""
    return _media_type(content_type) in _FEEDS


def is_json(content_type: str) -> bool:
    """Return True if the media type is that of any JSON document."""
    return _media_type(content_type) == "application/json"


def is_html(content_type: str) -> bool:
    """Return True if the media type is that of an HTML page."""
    return _media_type(content_type) in _PAGES


def is_markdown(content_type: str) -> bool:
    """Return True if the media type is that of markdown."""
    return _media_type(content_type) in ("text/markdown", "text/x-markdown")


def may_be_llms(content_type: str) -> bool:
    """Return True if a body may be an llms.txt: markdown, plain text, or without a media type."""
    return is_markdown(content_type) or _media_type(content_type) in ("text/plain", "")


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


_DECLARED: Final = re.compile(rb"\s*<\?xml[^>]{0,200}?\sencoding\s*=\s*[\"']([\w.:-]{1,40})[\"']")
_FALLBACK: Final = "cp1252"
# Codecs of Python that no web page uses. Two of them need hours for a body of 15 MiB.
_NEVER_DECODED: Final = frozenset(
    {"idna", "punycode", "raw_unicode_escape", "undefined", "unicode_escape"}
)
_ESCAPE: Final = b"\x1b"  # ISO-2022 encodings are ASCII with escape sequences


def to_utf8(body: bytes, content_type: str | None) -> bytes:
    """Return the body in UTF-8 without a BOM.

    Tried in this order: UTF-8 as it stands, the charset of `content_type`, the encoding of the XML
    declaration, windows-1252. Bytes that cannot be decoded become U+FFFD.
    """
    wide = json.detect_encoding(body[:4])  # by BOM or zero bytes
    if wide != "utf-8":
        return body.decode(wide, "replace").encode("utf-8", "replace")
    if _ESCAPE not in body and _is_utf8(body):
        return body
    for encoding in _declared_encodings(body, content_type):
        try:
            return body.decode(encoding).encode()
        except (UnicodeError, LookupError):  # Python has codecs that decode no text, as base64
            continue
    return body.decode(_FALLBACK, "replace").encode()


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _declared_encodings(body: bytes, content_type: str | None) -> Iterator[str]:
    declared = _DECLARED.match(body)
    for name in (
        http_content_type_encoding(content_type),
        declared[1].decode("ascii", "ignore") if declared else None,
        "utf-8",
    ):
        encoding = resolve_encoding(name) if name else None
        if encoding and codecs.lookup(encoding).name not in _NEVER_DECODED:
            yield encoding
