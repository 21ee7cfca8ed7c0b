"""The document of a response: its budget, and whether reading it may take long (decision 34).

The lengths of texts are in `metadata.text`, the limits of markdown in `metadata.llms`. Of a feed
with too many entries the newest are read. A document beyond another budget is refused, because no
real feed is like that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Final, TypeVar

from walsh_scrapy.metadata.contenttype import to_utf8
from walsh_scrapy.metadata.entries import Feed

MOST_ENTRIES: Final = 10_000  #: of one document; of more, the newest are kept
MOST_ELEMENTS: Final = 400_000  #: of an XML document; real feeds of 15 MiB have half as many
MOST_ATTRIBUTES: Final = 100  #: of one element, because feedparser is quadratic in them
MOST_ATTRIBUTES_IN_ALL: Final = 400_000  #: of the elements that are read
MOST_DEPTH: Final = 1000  #: of elements in elements, in well-formed XML
#: Characters of the bases, summed over the links that are resolved against them. A relative link
#: becomes as long as its base.
MOST_BASE_CHARACTERS: Final = 8_000_000
MOST_VALUES: Final = 800_000  #: of a JSON document: its objects, lists and other values

T = TypeVar("T")


class OverBudget(Exception):
    """The document is beyond a budget. The message says of what: `XML of more than 9 elements`."""


def newest(entries: Sequence[T], date: Callable[[T], str | None]) -> tuple[T, ...]:
    """Return the newest `MOST_ENTRIES` in document order.

    `date` returns RFC 3339 in UTC. Entries without a date count as the oldest, and of entries with
    the same date the first ones are kept, because feeds begin with the newest.
    """
    if len(entries) <= MOST_ENTRIES:
        return tuple(entries)
    dates = [date(entry) or "" for entry in entries]
    order = sorted(range(len(entries)), key=dates.__getitem__, reverse=True)  # stable
    kept = bytearray(len(entries))
    for at in order[:MOST_ENTRIES]:
        kept[at] = 1
    return tuple(compress(entries, kept))


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
