"""What a page announces in its headers: the same in markdown, or a feed (R9; RFC 8288)."""

import re
from collections.abc import Callable, Iterable
from typing import Final

from walsh_scrapy.metadata.mediatypes import is_feed, is_markdown
from walsh_scrapy.policy.urls import followed, host_of

#: Characters of one header that are read: Scrapy sets headers no bound.
_LONGEST: Final = 16_384
_VALUE: Final = r'"(?:[^"\\]|\\.)*+"|[^\s";,]*+'
_PARAMETER: Final = re.compile(rf"\s*;\s*([\w*-]++)\s*(?:=\s*({_VALUE}))?", re.ASCII)
_TARGET: Final = re.compile(r"<([^<>]*)>")


def markdown_alternates(values: Iterable[str], url: str) -> tuple[str, ...]:
    """Return the addresses at which `Link` headers of `url` say the page is to be had as markdown.

    `Link: </page.md>; rel="alternate"; type="text/markdown"`. Only those on the page's own host:
    nobody declared another.
    """
    return _alternates(values, url, is_markdown)


def feed_alternates(values: Iterable[str], url: str) -> tuple[str, ...]:
    """Return the addresses of the feeds that `Link` headers of `url` announce, on its own host."""
    return _alternates(values, url, is_feed)


def _alternates(
    values: Iterable[str], url: str, is_wanted: Callable[[str], bool]
) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for value in values:
        for target, parameters in _links(value[:_LONGEST]):
            is_alternate = "alternate" in parameters.get("rel", "").lower().split()
            if is_alternate and is_wanted(parameters.get("type", "")):
                address = followed(url, target.encode("latin-1", "replace"))
                if address and host_of(address) == host_of(url):
                    found[address] = None
    return tuple(found)


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
