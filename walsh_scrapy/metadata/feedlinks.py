"""The feeds that a page declares in its HTML head: `<link rel="alternate">` (HTML 4.6.7).

Only `scrapy discover` and `scrapy sources add` read them, for a URL that the operator named. A
crawl never does (R9, decision 16).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from lxml.etree import HTMLPullParser, LxmlError  # type: ignore[import-untyped]

from walsh_scrapy.metadata.encoding import to_utf8
from walsh_scrapy.metadata.mediatypes import is_feed, is_json
from walsh_scrapy.metadata.text import LONGEST_TITLE, one_line
from walsh_scrapy.policy.references import resolve_reference
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.policy.wording import cut

#: Bytes of a page in which its head is looked for.
HEAD_BYTES: Final = 128 * 1024
#: Most feeds of one page that are kept.
MOST_FEEDS: Final = 10
_LONGEST_TYPE: Final = 60
_COMMENTS: Final = re.compile(r"\bcomments?\b", re.IGNORECASE)


class FeedLink(NamedTuple):
    """A feed that a page declares."""

    url: str
    title: str | None = None
    media_type: str = ""

    @property
    def is_of_comments(self) -> bool:
        """True if it has the comments of a site, and not its entries, as its URL or title says."""
        url = urlsplit(self.url)
        return bool(_COMMENTS.search(f"{url.path} {url.query} {self.title or ''}"))


def feeds_in_head(page: bytes, content_type: str, url: str) -> tuple[FeedLink, ...]:
    """Return the feeds that the head of an HTML page declares, in its order.

    Nothing behind the head or the first `HEAD_BYTES` is read. `url` is that of the page; a
    `<base href>` counts.
    """
    found: list[FeedLink] = []
    base = url
    for tag, attributes in _elements_of_head(to_utf8(page[:HEAD_BYTES], content_type)):
        if tag == "base" and base == url and (href := attributes.get("href")):
            base = _joined(url, href)
        elif tag == "link" and "alternate" in attributes.get("rel", "").lower().split():
            found += feed_link(
                base,
                attributes.get("href", "").encode(errors="replace"),
                attributes.get("title"),
                attributes.get("type", ""),
            )
    return tuple(found)


def feed_link(
    base: str, reference: bytes, title: str | None, media_type: str
) -> Iterator[FeedLink]:
    """Yield the feed that a link of the page `base` leads to, if it leads to one.

    `application/json` is the type of many documents, such as those of WordPress's REST interface,
    so such a link counts only if its path names a feed.
    """
    if not (is_feed(media_type) or is_json(media_type)) or not reference.strip():
        return
    url = resolve_reference(base, reference.strip())
    if url and (is_feed(media_type) or _names_feed(urlsplit(url).path.lower())):
        name = cut(one_line(title) or "", LONGEST_TITLE) or None
        yield FeedLink(url, name, cut(one_line(media_type) or "", _LONGEST_TYPE))


def declared_feeds(links: Iterable[FeedLink]) -> tuple[FeedLink, ...]:
    """Return each feed once, those of comments after the others, at most `MOST_FEEDS`."""
    unique: dict[str, FeedLink] = {}
    for link in links:
        unique.setdefault(canonical_url(link.url), link)
    return tuple(sorted(unique.values(), key=lambda link: link.is_of_comments)[:MOST_FEEDS])


def _names_feed(path: str) -> bool:
    return "feed" in path and "/wp-json/" not in path


def _joined(url: str, href: str) -> str:
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
    except LxmlError:  # what comes before it counts
        return
