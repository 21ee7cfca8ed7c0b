"""Whom a User-Agent names: its product token."""

import re
from typing import Final

_COMPATIBLE: Final = re.compile(r"\bcompatible;\s*([A-Za-z_-]+)")
_FIRST: Final = re.compile(r"([A-Za-z][A-Za-z_-]*)")
_BEFORE_PAGE: Final = re.compile(r"([A-Za-z_-]+)/[\w.]+[;,]?\s*\(?\+?https?://")
_MOZILLA: Final = "mozilla"


def token_of(user_agent: str) -> str | None:
    """Return the product token: after `compatible;`, else its first word; None without one.

    Where that is the Mozilla of all browsers, the product right before a page counts.
    """
    found = _COMPATIBLE.search(user_agent) or _FIRST.search(user_agent)
    if found and found[1].lower() == _MOZILLA:
        found = _BEFORE_PAGE.search(user_agent) or found
    return found[1] if found else None
