"""From the bytes of a feed to its entries (R6, decision 19).

    feed = parse_feed(body, url=response_url, content_type="application/rss+xml", source=declared)
    for entry in feed.entries:
        entry.url, entry.title, entry.published, entry.key

feedparser reads RSS, RDF and Atom; `jsonfeed` reads JSON Feed. No document can make them read a
clock, use the network or open a file, but for that of a time zone of the tz database.
"""

from dataclasses import replace

from walsh_scrapy.metadata.entries import Feed, FeedEntry, NotAFeed, with_keys
from walsh_scrapy.metadata.feeds.formats import format_of
from walsh_scrapy.metadata.feeds.jsonfeed import read_json
from walsh_scrapy.metadata.feeds.xmlfeed import read_xml

__all__ = ["Feed", "FeedEntry", "NotAFeed", "parse_feed"]


def parse_feed(body: bytes, *, url: str, content_type: str | None, source: str) -> Feed:
    """Return the feed in a response body, its entries in document order.

    `url` is the final URL of the response: relative links and `xml:base` resolve against it.
    `content_type` is the Content-Type header, None if there was none. `source` is the declared
    URL: it is part of the key of an entry that has neither a link nor an id that is a URI.
    An entry may be twice in it, with the same `key`.

    Raises NotAFeed, and nothing else, if the body is no feed.
    """
    read = read_json if format_of(body, content_type) == "json" else read_xml
    feed = read(body, url=url, content_type=content_type)
    return replace(feed, entries=with_keys(feed.entries, source))
