"""The document of a response, as another process reads it."""

from dataclasses import dataclass
from typing import Literal

from walsh_scrapy.feeds.metadata.entries import Feed, NotAFeed


@dataclass(frozen=True, slots=True)
class Document:
    """A document that is still to be read."""

    kind: Literal["feed", "llms"]
    body: bytes
    url: str  #: the final URL of the response
    content_type: str | None
    source: str  #: the declared URL
    is_cut_off: bool = False  #: the response was incomplete: a feed without its end is refused

    def read(self) -> Feed:
        """Return the feed, or the links of a page; raise NotAFeed if there is neither."""
        # Imported only where documents are read: a crawl leaves that to another process.
        if self.kind == "feed":
            from walsh_scrapy.feeds.metadata.feed import parse_feed as parse  # noqa: PLC0415
        else:
            from walsh_scrapy.feeds.metadata.llmstxt import parse_llms as parse  # noqa: PLC0415
        feed = parse(self.body, url=self.url, content_type=self.content_type, source=self.source)
        if self.is_cut_off and not feed.is_complete:
            raise NotAFeed("The document was cut off before its end.")
        return feed
