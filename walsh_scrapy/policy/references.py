"""Targets of Location and Link headers, as browsers resolve them (decision 16; RFC 3986 5.2)."""

import re
from typing import Final
from urllib.parse import urljoin

from w3lib.url import safe_url_string

from walsh_scrapy.policy.urls import (
    LONGEST_FOLLOWED,
    origin_of,
    replace_backslashes,
    strip_controls,
    wire_url,
)

_BEYOND_ASCII: Final = re.compile(rb"[\x80-\xff]")


def resolve_reference(base: str, reference: bytes) -> str | None:
    r"""Return the http or https URL to request for a reference in a header of the page `base`.

    Bytes beyond ASCII are percent-encoded as they are, whatever their encoding: `/caf\xe9` becomes
    `/caf%E9`. None if no request can go there, or if the URL is longer than `LONGEST_FOLLOWED`
    characters. Never raises.

    >>> resolve_reference("http://a.example/dir/page", b"//b.example/x y")
    'http://b.example/x%20y'
    """
    text = _BEYOND_ASCII.sub(lambda byte: b"%%%02X" % byte[0][0], reference).decode("ascii")
    try:
        absolute = _join(base, replace_backslashes(strip_controls(text)))
        target = safe_url_string(wire_url(absolute))
    except ValueError:
        return None
    origin = origin_of(absolute)
    # Without its last `?` or `:` a text that no request can go to may become one with a host.
    is_web = origin.startswith(("http://", "https://")) and origin == origin_of(target)
    return target if is_web and len(target) <= LONGEST_FOLLOWED else None


def _join(base: str, reference: str) -> str:
    """Return an absolute URL.

    `urljoin` reads some references as paths that browsers read as hosts (WHATWG URL 4.4): in them
    the base's own scheme in front changes nothing, and two slashes or more are followed by a host.
    """
    scheme = f"{base.partition(':')[0]}:"
    rest = reference[len(scheme) :] if reference.lower().startswith(scheme) else reference
    return scheme + rest if rest.startswith("//") else urljoin(base, reference)
