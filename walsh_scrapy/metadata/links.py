"""Links of entries: an absolute http or https URL, or None (R6)."""

import re
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

from walsh_scrapy.policy.wording import DIRECTION_MARKS

# Most links: nothing in them has to be resolved, encoded or removed.
_PLAIN: Final = re.compile(r"https?://[a-z0-9.-]*[a-z0-9](?::[0-9]+)?(?:[/?#][!-~]*)?", re.ASCII)
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_USER_INFO: Final = re.compile(r"\A//[^/?#\\]*@")  # a user name and a password are not kept
# Spaces, and marks that show a URL in another order than it has.
_ENCODED: Final = re.compile(rf"[\s{DIRECTION_MARKS}]")
_UNWRITABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def is_web_url(link: object) -> bool:
    """Return True if the value is text that begins as an absolute http or https URL does."""
    return isinstance(link, str) and _WEB.match(link.strip()) is not None


def web_url(link: object, base: str) -> str | None:
    """Return the link resolved against `base`; None if that is no http or https URL with a host.

    As browsers do, it encodes spaces and marks of direction, removes control characters and writes
    the scheme in lower case. It also removes user name and password. The rest stays as published.
    """
    if not isinstance(link, str):
        return None
    if _PLAIN.fullmatch(link):
        return link
    link = _UNWRITABLE.sub("", link).strip()
    if not link:
        return None
    try:
        url = link if _WEB.match(link) else urljoin(base, link)
        host = urlsplit(url).hostname if _WEB.match(url) else None
    except ValueError:
        return None
    if not host:
        return None
    scheme, _, rest = _ENCODED.sub(lambda found: quote(found[0]), url).partition(":")
    return f"{scheme.lower()}:{_USER_INFO.sub('//', rest, count=1)}"
