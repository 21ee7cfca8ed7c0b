"""The product token in a User-Agent: the name that robots.txt knows (RFC 9309 2.2.1)."""

from __future__ import annotations

import re
from typing import Final

_COMPATIBLE: Final = re.compile(r"\bcompatible;\s*([A-Za-z_-]+)")
_FIRST: Final = re.compile(r"\s*([A-Za-z_-]+)")
#: What browsers, and crawlers that look like one, begin with; it names nobody.
_NOBODY: Final = "mozilla"


def token_of(user_agent: str) -> str | None:
    """Return the token by which a User-Agent names its crawler, or None if it names none.

    It is the name after ``compatible;``, as many crawlers write it, or else the first product.
    """
    found = _COMPATIBLE.search(user_agent) or _FIRST.match(user_agent)
    if found is None or found[1].lower() == _NOBODY:
        return None
    return found[1]
