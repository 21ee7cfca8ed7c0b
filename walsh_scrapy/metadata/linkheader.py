"""What a page announces in its headers: the same in markdown, or a feed (R9; RFC 8288)."""

import re
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import urlsplit

from walsh_scrapy.metadata.mediatypes import is_feed, is_markdown
from walsh_scrapy.policy.references import resolve_reference
from walsh_scrapy.policy.urls import wire_url

#: Characters of one header that are read: Scrapy sets headers no bound.
_LONGEST: Final = 16_384
_VALUE: Final = r'"(?:[^"\\]|\\.)*+"|[^\s";,]*+'
_PARAMETER: Final = re.compile(rf"\s*;\s*([\w*-]++)\s*(?:=\s*({_VALUE}))?", re.ASCII)
_TARGET: Final = re.compile(r"<([^<>]*)>")


def markdown_alternates(values: Iterable[str], url: str, language: str = "") -> tuple[str, ...]:
    """Return the addresses at which `Link` headers of `url` say the page is to be had as markdown.

    `Link: </page.md>; rel="alternate"; type="text/markdown"`. Only those on the page's own host
    and port, or on the standard port of http or https where the page is on one: nobody declared
    another, and another port is another server. In their order, but what is said to be in another
    language (`hreflang`) than the page's `Content-Language` comes last.
    """
    return _alternates(values, url, is_markdown, language)


def feed_alternates(values: Iterable[str], url: str) -> tuple[str, ...]:
    """Return the addresses of the feeds that `Link` headers of `url` announce, at home as above."""
    return _alternates(values, url, is_feed)


def _alternates(
    values: Iterable[str], url: str, is_wanted: Callable[[str], bool], language: str = ""
) -> tuple[str, ...]:
    found: dict[str, bool] = {}
    home = _server(wire_url(url))
    for value in values:
        for target, parameters in _links(value[:_LONGEST]):
            is_alternate = "alternate" in parameters.get("rel", "").lower().split()
            if is_alternate and is_wanted(parameters.get("type", "")):
                address = resolve_reference(url, target.encode("latin-1", "replace"))
                if address and _server(address) == home:
                    is_foreign = _is_foreign(parameters.get("hreflang", ""), language)
                    found[address] = found.get(address, True) and is_foreign
    return tuple(sorted(found, key=found.__getitem__))


def _server(url: str) -> str:
    """Return host and port, no standard one, of an address spelled as it is asked for."""
    return urlsplit(url).netloc


def _is_foreign(language: str, own: str) -> bool:
    """Tell whether a BCP 47 tag names another language than the page's own, if that is known."""
    first, of_page = (tag.strip().lower().partition("-")[0] for tag in (language, own))
    return first not in ("", "x", of_page)


def _links(value: str) -> Iterable[tuple[str, dict[str, str]]]:
    """Give each target with its parameters; a `<` inside a quoted one is no target."""
    end = 0
    while target := _TARGET.search(value, end):
        parameters: dict[str, str] = {}
        end = target.end()
        while parameter := _PARAMETER.match(value, end):
            end = parameter.end()
            text = (parameter[2] or "").strip('"')
            parameters.setdefault(parameter[1].lower(), text)  # the first counts (3.3)
        if "anchor" not in parameters:  # that would be a link of another page (3.2)
            yield target[1].strip(), parameters
