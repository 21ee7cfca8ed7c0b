"""The media type of a Content-Type header: which bodies are read at all (R6, R9)."""

from __future__ import annotations

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
