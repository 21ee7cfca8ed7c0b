"""Feeds: bytes to entries (R6, decision 19). RSS, RDF and Atom through feedparser; JSON Feed by us.

    feed = parse_feed(body, url=response_url, content_type="application/rss+xml", source=declared)
    for entry in feed.entries:
        entry.url, entry.title, entry.published, entry.key

Nothing here reads a clock, opens a file or asks the network, whatever the document says.
"""

from dataclasses import replace

from walsh_scrapy.metadata.entries import Entry, Feed, NotAFeed
from walsh_scrapy.metadata.feeds.jsonfeed import read_json
from walsh_scrapy.metadata.feeds.sniff import form_of
from walsh_scrapy.metadata.feeds.xmlfeed import read_xml
from walsh_scrapy.metadata.keys import with_keys

__all__ = ["Entry", "Feed", "NotAFeed", "parse_feed"]


def parse_feed(body: bytes, *, url: str, content_type: str | None, source: str) -> Feed:
    """Return the feed in a response body, its entries in document order.

    `url` is the final URL of the response: relative links resolve against it, and `xml:base`.
    `source` is the declared URL: it tells entries apart that have nothing unique in the world.
    Entries with the same `key` are the same entry written twice.

    Raises NotAFeed, and nothing else, if the body is something else.
    """
    read = read_json if form_of(body, content_type) == "json" else read_xml
    feed = read(body, url=url, content_type=content_type)
    return replace(feed, entries=with_keys(feed.entries, source))
