"""Alternates of a page in its `Link` headers: the page as markdown, or a feed (R9, RFC 8288)."""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from walsh_scrapy.metadata.feedlinks import FeedLink, feed_link
from walsh_scrapy.metadata.mediatypes import is_markdown
from walsh_scrapy.policy.references import resolve_reference
from walsh_scrapy.policy.urls import wire_url

#: Characters of one header that are read, because Scrapy does not limit headers.
_LONGEST: Final = 16_384
_VALUE: Final = r'"(?:[^"\\]|\\.)*+"|[^\s";,]*+'
_PARAMETER: Final = re.compile(rf"\s*;\s*([\w*-]++)\s*(?:=\s*({_VALUE}))?", re.ASCII)
_QUOTED_PAIR: Final = re.compile(r"\\(.)")
_TARGET: Final = re.compile(r"<([^<>]*)>")


def markdown_alternates(values: Iterable[str], url: str, language: str = "") -> tuple[str, ...]:
    """Return the URLs at which the page `url` is available as markdown, from its `Link` headers.

    An example of a header: `</page.md>; rel="alternate"; type="text/markdown"`. Returned are only
    URLs on the page's own host and port; the standard ports of http and https count as one. Other
    servers were not declared (R6), and another port is another server. The order is that of the
    headers, but URLs in another language (`hreflang`) than `language`, the page's own
    `Content-Language`, come last.
    """
    found: dict[str, bool] = {}
    own_server = _server(wire_url(url))
    for target, parameters in _alternates(values):
        if is_markdown(parameters.get("type", "")):
            address = resolve_reference(url, target.encode("latin-1", "replace"))
            if address and _server(address) == own_server:
                is_foreign = _is_foreign(parameters.get("hreflang", ""), language)
                found[address] = found.get(address, True) and is_foreign
    return tuple(sorted(found, key=found.__getitem__))


def feed_alternates(values: Iterable[str], url: str) -> tuple[FeedLink, ...]:
    """Return the feeds that the `Link` headers of `url` announce, on whatever server."""
    return tuple(
        link
        for target, parameters in _alternates(values)
        for link in feed_link(
            url,
            target.encode("latin-1", "replace"),
            parameters.get("title"),
            parameters.get("type", ""),
        )
    )


def _alternates(values: Iterable[str]) -> Iterable[tuple[str, dict[str, str]]]:
    for value in values:
        for target, parameters in _links(value[:_LONGEST]):
            if "alternate" in parameters.get("rel", "").lower().split():
                yield target, parameters


def _server(url: str) -> str:
    """Return the host, and the port if it is not a standard one, of a URL as it is sent."""
    return urlsplit(url).netloc


def _is_foreign(language: str, own: str) -> bool:
    """Return True if a BCP 47 tag names another language than `own`, and both are known."""
    first, of_page = (tag.strip().lower().partition("-")[0] for tag in (language, own))
    return first not in ("", "x", of_page)


def _links(value: str) -> Iterable[tuple[str, dict[str, str]]]:
    """Yield each target with its parameters; a `<` in a quoted parameter begins no target."""
    end = 0
    while target := _TARGET.search(value, end):
        parameters: dict[str, str] = {}
        end = target.end()
        while parameter := _PARAMETER.match(value, end):
            end = parameter.end()
            text = parameter[2] or ""
            if text.startswith('"'):
                text = _QUOTED_PAIR.sub(r"\1", text[1:-1])
            parameters.setdefault(parameter[1].lower(), text)  # the first one counts (RFC 8288 3.3)
        if "anchor" not in parameters:  # it makes it a link of another page (RFC 8288 3.2)
            yield target[1].strip(), parameters
