"""RSS, Atom and JSON Feed: bytes to entries (R6)."""

from walsh_scrapy.metadata.feeds.parse import Entry, Feed, NotAFeed, parse_feed

__all__ = ["Entry", "Feed", "NotAFeed", "parse_feed"]
