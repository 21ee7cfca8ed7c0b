"""Links of entries: absolute, http or https, or none (R6)."""

import re
from typing import Final
from urllib.parse import quote, urljoin, urlsplit

# Most links are plain: nothing of what is looked for below is in them.
_PLAIN: Final = re.compile(r"https?://[a-z0-9.-]*[a-z0-9](?::[0-9]+)?(?:[/?#][!-~]*)?", re.ASCII)
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)
_USER_INFO: Final = re.compile(r"\A//[^/?#\\]*@")  # a name and a password are nobody's to keep
_SPACE: Final = re.compile(r"\s")
_INSIDE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def is_web(link: object) -> bool:
    """Tell whether the text is an absolute http or https URL."""
    return isinstance(link, str) and _WEB.match(link.strip()) is not None


def web_url(link: object, base: str) -> str | None:
    """Return the link resolved against `base`; None if it leads nowhere on the web.

    Spaces inside are encoded, control characters dropped and the scheme is in lower case, as in
    browsers; the rest stays as published.
    """
    if not isinstance(link, str):
        return None
    if _PLAIN.fullmatch(link):
        return link
    link = _INSIDE.sub("", link).strip()
    if not link:
        return None
    try:
        url = link if _WEB.match(link) else urljoin(base, link)
        known = _WEB.match(url) and urlsplit(url).hostname
    except ValueError:
        return None
    if not known:
        return None
    scheme, _, rest = _SPACE.sub(lambda space: quote(space[0]), url).partition(":")
    return f"{scheme.lower()}:{_USER_INFO.sub('//', rest, count=1)}"
