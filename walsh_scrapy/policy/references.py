"""Where a Location or Link header leads, read as browsers read it (decision 16; RFC 3986 5.2)."""

import re
from typing import Final
from urllib.parse import urljoin

from w3lib.url import safe_url_string

from walsh_scrapy.policy.urls import LONGEST_FOLLOWED, origin_of, slashed, trimmed, wire_url

_BEYOND_ASCII: Final = re.compile(rb"[\x80-\xff]")


def followed(url: str, location: bytes) -> str | None:
    r"""Return the http or https URL that a header of ``url`` leads to, as it is asked for.

    Bytes beyond ASCII are asked for as they are, whatever their encoding: `/caf\xe9` is `/caf%E9`.
    None where it leads nowhere that can be asked, or to an address so long that no state could keep
    it. Never raises.
    """
    text = _BEYOND_ASCII.sub(lambda byte: b"%%%02X" % byte[0][0], location).decode("ascii")
    try:
        target = safe_url_string(wire_url(_joined(url, slashed(trimmed(text)))))
    except ValueError:
        return None
    is_web = origin_of(target).startswith(("http://", "https://"))
    return target if is_web and len(target) <= LONGEST_FOLLOWED else None


def _joined(url: str, reference: str) -> str:
    """Return an absolute URL; `urljoin` takes authorities for paths that browsers know as such.

    To them `http:` of a page that is http itself says nothing, and two slashes or more, of either
    kind, are followed by a host (WHATWG URL 4.4).
    """
    scheme = f"{url.partition(':')[0]}:"
    rest = reference[len(scheme) :] if reference.lower().startswith(scheme) else reference
    return scheme + rest if rest.startswith("//") else urljoin(url, reference)
