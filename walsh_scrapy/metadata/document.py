"""The document of a response, and whether reading it may take long (decision 34)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from walsh_scrapy.metadata.encoding import to_utf8
from walsh_scrapy.metadata.entries import Feed

# What is cheap takes at most half a second, the worst that `benchmarks.hostile` finds included.
_CHEAP_BYTES: Final = 131_072
_CHEAP_URL: Final = 512  # characters; each relative link is joined to it
#: How many there may be of what takes time: elements, JSON objects, links, lines, emphasis.
_CHEAP_MARKS: Final = {
    **dict.fromkeys((b"<", b"{", b"[", b"://", b"\n"), 2500),
    **dict.fromkeys((b"*", b"_"), 10_000),
}


@dataclass(frozen=True, slots=True)
class Document:
    """A document that is still to be read, and how."""

    #: `parse_feed`, `parse_llms` or another function with their arguments that can be imported
    reader: Callable[..., Feed]
    body: bytes
    url: str  #: the final URL of the response
    content_type: str | None
    source: str  #: the declared URL

    @property
    def is_costly(self) -> bool:
        """True if reading it may take more than half a second."""
        if len(self.body) > _CHEAP_BYTES or len(self.url) > _CHEAP_URL:
            return True
        text = to_utf8(self.body, self.content_type)  # the readers see no other marks than these
        return len(text) > _CHEAP_BYTES or any(
            text.count(mark) > most for mark, most in _CHEAP_MARKS.items()
        )

    def read(self) -> Feed:
        """Return the feed or the links in it; raise NotAFeed if it is neither."""
        return self.reader(
            self.body, url=self.url, content_type=self.content_type, source=self.source
        )
