"""The metadata of a document and of its entries, and nothing else of the document (R6, R7).

`with_keys` adds keys, so that an entry is recognized in later documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from walsh_scrapy.policy.entrykeys import EntryKeys, SourceKeys
from walsh_scrapy.policy.wording import Explained, one_line


class NotAFeed(Explained):
    """The body is neither a feed nor a page of links. The message says what the body is."""

    @classmethod
    def of_format(
        cls, format_name: str, content_type: str | None, expected: str = "a feed"
    ) -> Self:
        """Return the error for a body of another format, such as `an HTML page`, `a sitemap`."""
        served_as = (one_line(content_type) or "")[:80]
        served = f" (served as {served_as})" if served_as else ""
        return cls(f"Not {expected} but {format_name}{served}.")


class FeedEntry(NamedTuple):
    """An entry of a feed, or a link of an llms.txt: metadata as plain text (R6).

    A named tuple, because entries are sent from one process to another: pickling them takes a third
    of the time of a dataclass.
    """

    url: str | None  #: absolute, http or https, with its fragment, as published
    title: str | None  #: plain text on one line
    id: str | None = None  #: as published
    published: str | None = None  #: RFC 3339, UTC, whole seconds
    updated: str | None = None  #: RFC 3339, UTC, whole seconds
    authors: tuple[str, ...] = ()  #: names, never e-mail addresses
    tags: tuple[str, ...] = ()
    keys: EntryKeys | None = None  #: without a date; None until `with_keys` has set them
    is_own: bool = True  #: False if its page is on another host than its source
    section: str | None = None  #: of a link in an llms.txt: the heading above it
    note: str | None = None  #: of a link in an llms.txt: the description after it


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed or a page of links, with what it says about its updates (R8)."""

    title: str | None
    language: str | None  #: a BCP 47 tag
    entries: tuple[FeedEntry, ...]  #: in document order
    link: str | None = None  #: the page of its site: absolute, http or https
    ttl: float | None = None  #: `ttl` of RSS 2.0: minutes that a copy may be kept, above 0
    update_period: str | None = None  #: "hourly", "daily", "weekly", "monthly" or "yearly"
    update_frequency: int | None = None  #: updates in one `update_period`, 1 or more
    skip_hours: frozenset[int] = frozenset()  #: hours without updates, 0 to 23, UTC
    skip_days: frozenset[str] = frozenset()  #: days without updates, UTC, such as "Sunday"
    is_complete: bool = True  #: False if the document was cut off in transit
    left_out: int = 0  #: entries that were skipped, because there are too many
    #: The format of the document: "rss20", "atom10", "JSON Feed", "markdown".
    format: str = field(default="", compare=False)
    expired: bool = False  #: JSON Feed: True if the feed says that it will never be updated again


def with_keys(
    entries: Sequence[FeedEntry], source: str, *, is_index: bool = False
) -> tuple[FeedEntry, ...]:
    """Return the entries of one document with their keys; `source` is its declared URL.

    An index of pages (`is_index`), such as an llms.txt, has one entry for each URL. Its titles tell
    no entries apart, so its entries have no key of a title.
    """
    source_keys = SourceKeys(source)
    return tuple(
        entry._replace(
            keys=source_keys.of(entry.url, entry.id, None if is_index else entry.title),
            is_own=source_keys.is_own(entry.url, entry.id),
        )
        for entry in entries
    )
