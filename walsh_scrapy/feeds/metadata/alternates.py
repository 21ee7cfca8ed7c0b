"""Other forms of a page: the feeds in its head, its `Link` headers, its llms.txt (R9, RFC 8288).

A crawl reads only the headers, to find the page as markdown. Only the commands that an operator
calls for one page look for its feeds, because a crawl fetches nothing but declared sources.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

from lxml.etree import HTMLPullParser, LxmlError  # type: ignore[import-untyped]

from walsh_scrapy.feeds.metadata.document import is_feed, is_json, is_markdown
from walsh_scrapy.feeds.metadata.encoding import to_utf8
from walsh_scrapy.feeds.metadata.text import MAX_TITLE_CHARACTERS
from walsh_scrapy.policy.urls import (
    MAX_ANNOUNCED,
    canonical_url,
    resolve_reference,
    wire_url,
)
from walsh_scrapy.policy.wording import cut, one_line

#: The head of a page is looked for in this many bytes at its beginning.
HEAD_BYTES: Final = 128 * 1024
#: Feeds of one page beyond this number are dropped.
MAX_FEEDS: Final = 10
_MAX_TYPE_CHARACTERS: Final = 60
_COMMENTS: Final = re.compile(r"\bcomments?\b", re.IGNORECASE)


class FeedLink(NamedTuple):
    """A feed that a page declares."""

    url: str
    title: str | None = None
    media_type: str = ""

    @property
    def is_of_comments(self) -> bool:
        """True if the feed has comments instead of entries, judged by its URL and its title."""
        url = urlsplit(self.url)
        return bool(_COMMENTS.search(f"{url.path} {url.query} {self.title or ''}"))


def feeds_in_head(page: bytes, content_type: str, url: str) -> tuple[FeedLink, ...]:
    """Return the feeds that the head of an HTML page declares, in its order.

    Only the first `HEAD_BYTES` are read, up to the end of the head. Links are resolved against
    `url`, the URL of the page, or against the page's `<base href>`.
    """
    links: list[FeedLink] = []
    base = url
    for tag, attributes in _elements_of_head(to_utf8(page[:HEAD_BYTES], content_type)):
        if tag == "base" and base == url and (href := attributes.get("href")):
            base = _base_url(url, href)
        elif tag == "link" and "alternate" in attributes.get("rel", "").lower().split():
            links += feed_link(
                base,
                attributes.get("href", "").encode(errors="replace"),
                attributes.get("title"),
                attributes.get("type", ""),
            )
    return tuple(links)


def feed_link(
    base: str, reference: bytes, title: str | None, media_type: str
) -> Iterator[FeedLink]:
    """Yield the feed that a link of the page `base` leads to; nothing if it leads to no feed.

    Many documents have the type `application/json`, for example in WordPress's REST interface. So a
    link of this type is taken for a feed only if its path contains `feed`.
    """
    if not (is_feed(media_type) or is_json(media_type)) or not reference.strip():
        return
    url = resolve_reference(base, reference.strip())
    path = urlsplit(url).path.lower() if url else ""
    if url and (is_feed(media_type) or ("feed" in path and "/wp-json/" not in path)):
        name = cut(one_line(title) or "", MAX_TITLE_CHARACTERS) or None
        yield FeedLink(url, name, cut(one_line(media_type) or "", _MAX_TYPE_CHARACTERS))


def declared_feeds(links: Iterable[FeedLink]) -> tuple[FeedLink, ...]:
    """Return each feed once and at most `MAX_FEEDS`; feeds of comments come last."""
    unique: dict[str, FeedLink] = {}
    for link in links:
        unique.setdefault(canonical_url(link.url), link)
    return tuple(sorted(unique.values(), key=lambda link: link.is_of_comments)[:MAX_FEEDS])


def _base_url(url: str, href: str) -> str:
    try:
        return urljoin(url, href.strip())
    except ValueError:
        return url


def _elements_of_head(page: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and attributes of each element of the head, as browsers read HTML."""
    parser = HTMLPullParser(events=("start", "end"), encoding="utf-8", no_network=True)
    try:
        parser.feed(page)
        for event, element in parser.read_events():
            if (event, element.tag) in (("start", "body"), ("end", "head")):
                return
            parent = element.getparent()
            if event == "start" and parent is not None and parent.tag == "head":
                yield element.tag, element.attrib
    except LxmlError:  # keep the elements before the error
        return


#: Characters of one header that are read, because Scrapy does not limit headers.
_MAX_HEADER_CHARACTERS: Final = 16_384
_PARAMETER_VALUE: Final = r'"(?:[^"\\]|\\.)*+"|[^\s";,]*+'
_PARAMETER: Final = re.compile(rf"\s*;\s*([\w*-]++)\s*(?:=\s*({_PARAMETER_VALUE}))?", re.ASCII)
_QUOTED_PAIR: Final = re.compile(r"\\(.)")
_TARGET: Final = re.compile(r"<([^<>]*)>")


def markdown_alternates(values: Iterable[str], url: str) -> tuple[str, ...]:
    """Return the URLs at which the page `url` is available as markdown, from its `Link` headers.

    An example of a header: `</page.md>; rel="alternate"; type="text/markdown"`. URLs on another
    host or port are dropped, because the operator did not declare that server (R6). The standard
    ports of http and https are treated as one. The URLs come in the order of the headers.
    """
    urls: dict[str, None] = {}
    page_server = _server(wire_url(url))
    for target, parameters in _parse_alternates(values):
        if is_markdown(parameters.get("type", "")):
            alternate = resolve_reference(url, target.encode("latin-1", "replace"))
            if alternate and _server(alternate) == page_server:
                urls[alternate] = None
    return tuple(urls)


def feed_alternates(values: Iterable[str], url: str) -> tuple[FeedLink, ...]:
    """Return the feeds that the `Link` headers of `url` announce, on any server."""
    return tuple(
        link
        for target, parameters in _parse_alternates(values)
        for link in feed_link(
            url,
            target.encode("latin-1", "replace"),
            parameters.get("title"),
            parameters.get("type", ""),
        )
    )


def _parse_alternates(values: Iterable[str]) -> Iterable[tuple[str, dict[str, str]]]:
    for value in values:
        for target, parameters in _parse_links(value[:_MAX_HEADER_CHARACTERS]):
            if "alternate" in parameters.get("rel", "").lower().split():
                yield target, parameters


def _server(url: str) -> str:
    """Return the host of a normalized URL, with its port unless that is a standard port."""
    return urlsplit(url).netloc


def _parse_links(value: str) -> Iterable[tuple[str, dict[str, str]]]:
    """Yield the target and the parameters of each link; a `<` inside quotes begins no target."""
    end = 0
    while target := _TARGET.search(value, end):
        parameters: dict[str, str] = {}
        end = target.end()
        while parameter := _PARAMETER.match(value, end):
            end = parameter.end()
            text = parameter[2] or ""
            if text.startswith('"'):
                text = _QUOTED_PAIR.sub(r"\1", text[1:-1])
            parameters.setdefault(parameter[1].lower(), text)  # the first value wins (RFC 8288 3.3)
        if "anchor" not in parameters:  # with an anchor, the link is another page's (RFC 8288 3.2)
            yield target[1].strip(), parameters


#: The path of a host's llms.txt.
LLMSTXT_PATH: Final = "/llms.txt"
_DUMP_NAME: Final = "llms-full.txt"
#: The Accept headers of the requests for an llms.txt and for a page.
ACCEPT_LLMSTXT: Final = "text/plain, text/markdown"
ACCEPT_MARKDOWN: Final = "text/markdown"
#: Statuses of a page after which its llms.txt is requested instead, because the page does not exist
#: or is not available as markdown (406). 408 and 429 say nothing about the page.
ABSENT: Final = [status for status in range(400, 500) if status not in (408, 429)]


def is_llmstxt(url: str) -> bool:
    """Return True for the URL of an llms.txt at the root of a host or in a folder (llmstxt.org)."""
    return urlsplit(url).path.endswith(LLMSTXT_PATH)


def is_dump(url: str) -> bool:
    """Return True for the URL of an `llms-full.txt`, which is content and is never requested (R6).

    Any spelling of the name is recognized, because servers decode percent signs and ignore case,
    trailing slashes and parameters.
    """
    if _DUMP_NAME not in unquote(url).lower():
        return False
    names = unquote(urlsplit(url).path).lower().replace("\\", "/").split("/")
    return any(name.partition(";")[0].strip(" .") == _DUMP_NAME for name in names)


def announced(links: Iterable[str], url: str) -> tuple[str, ...]:
    """Return the URLs on the server of the page `url` that it announces as its markdown form.

    ``links`` are the `Link` headers of the response. At most `MAX_ANNOUNCED` URLs are returned.
    """
    alternates = markdown_alternates(links, url)
    announced_urls = [link for link in alternates if link != url and not is_dump(link)]
    return tuple(announced_urls[:MAX_ANNOUNCED])
