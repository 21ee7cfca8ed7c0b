"""``scrapy crawl feeds``: RSS, Atom and JSON feeds, their metadata only."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from walsh_scrapy.items import EntryItem
from walsh_scrapy.metadata.document import Document, may_be_feed
from walsh_scrapy.metadata.entries import NotAFeed
from walsh_scrapy.runtime.negotiation import content_type_of
from walsh_scrapy.runtime.reading import read
from walsh_scrapy.spider import SourcesSpider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.http import Response

    from walsh_scrapy.metadata.entries import Feed
    from walsh_scrapy.sources import Kind, Source


class FeedsSpider(SourcesSpider):
    """Turns each feed into one item for each entry."""

    name = "feeds"
    kind: ClassVar[Kind] = "feed"
    accept: ClassVar[str] = (
        "application/atom+xml, application/rss+xml, application/feed+json, application/rdf+xml, "
        "application/xml;q=0.9, text/xml;q=0.9, application/json;q=0.8, */*;q=0.1"
    )

    readable = staticmethod(may_be_feed)

    def document(self, response: Response, source: Source) -> Document:
        """Return the feed in a response, as it is to be read."""
        from walsh_scrapy.metadata.feeds import parse_feed

        content_type = content_type_of(response.headers)
        return Document(parse_feed, response.body, response.url, content_type, source.url)

    def parse(self, response: Response, source: Source) -> Iterator[Feed | EntryItem]:
        """Yield the feed, which has the update hints, and its entries; raise NotAFeed."""
        if unread := self.unread(response):
            raise NotAFeed(f"{unread} is no feed, so its body was not downloaded")
        feed = read(response, self.document(response, source))
        yield feed
        for entry in feed.entries:
            yield EntryItem.of_feed(entry, feed=feed, source=source.url)
