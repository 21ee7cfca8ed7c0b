"""RSS, Atom and JSON Feed: from the bytes of a feed to its entries (R6)."""

from walsh_scrapy.metadata.feeds.reader import Entry, Feed, NotAFeed, parse_feed

__all__ = ["Entry", "Feed", "NotAFeed", "parse_feed"]
