"""Which bodies are worth reading: what a Content-Type says of them (R6, R9)."""

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
    """Tell whether a body of this Content-Type can be a feed.

    Servers call feeds many things, text/html and application/octet-stream among them, so only
    what can be none is ruled out. ``image/svg+xml`` is an image, whatever its suffix.
    """
    media_type = _media_type(content_type)
    return not media_type.startswith(_NEVER) and media_type not in _NEVER_EXACTLY


def is_feed(content_type: str) -> bool:
    """Tell whether a body says of itself that it is a feed."""
    return _media_type(content_type) in _FEEDS


def is_html(content_type: str) -> bool:
    """Tell whether a body says of itself that it is an HTML page."""
    return _media_type(content_type) in _PAGES


def is_markdown(content_type: str) -> bool:
    """Tell whether a body says of itself that it is markdown."""
    return _media_type(content_type) in ("text/markdown", "text/x-markdown")


def may_be_llms(content_type: str) -> bool:
    """Tell whether an answer for ``/llms.txt`` can be one: markdown, plain text, or unsaid."""
    return is_markdown(content_type) or _media_type(content_type) in ("text/plain", "")


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
