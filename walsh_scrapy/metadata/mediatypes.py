"""Which bodies are not worth a byte: what a Content-Type says cannot be read (R6, R9)."""

from __future__ import annotations

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
    media_type = content_type.partition(";")[0].strip().lower()
    return not media_type.startswith(_NEVER) and media_type not in _NEVER_EXACTLY
