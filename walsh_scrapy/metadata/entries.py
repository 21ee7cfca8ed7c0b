"""The metadata of a document and of its entries: all that a run keeps of it (R6)."""

from dataclasses import dataclass


class NotAFeed(Exception):
    """The body is neither a feed nor a page of links. The message is a sentence with what it is."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a feed, or a link of an llms.txt: metadata as plain text (R6, decision 23)."""

    url: str | None  #: absolute, http or https, with its fragment, as published
    title: str | None  #: plain text on one line
    id: str | None  #: as published
    published: str | None  #: RFC 3339, UTC, whole seconds
    updated: str | None  #: RFC 3339, UTC, whole seconds
    authors: tuple[str, ...]  #: names, never e-mail addresses
    tags: tuple[str, ...]
    #: SHA-256 in hex, as explained in `metadata.keys`; empty until `with_keys` has set them.
    key: str = ""  #: of its page and its id
    page_key: str = ""
    title_key: str | None = None  #: of its page and its title
    section: str | None = None  #: of a link in an llms.txt: the heading above it
    note: str | None = None  #: of a link in an llms.txt: the description beside it


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed or a page of links, with its update hints (R8, decision 20)."""

    title: str | None
    language: str | None  #: a BCP 47 tag
    entries: tuple[Entry, ...]  #: in document order
    ttl: float | None = None  #: `ttl` of RSS 2.0: minutes that a copy may be kept, above 0
    update_period: str | None = None  #: "hourly", "daily", "weekly", "monthly" or "yearly"
    update_frequency: int | None = None  #: updates in one `update_period`, 1 or more
    skip_hours: frozenset[int] = frozenset()  #: hours without updates, 0 to 23, UTC
    skip_days: frozenset[str] = frozenset()  #: days without updates, UTC, such as "Sunday"
    is_whole: bool = True  #: False if the document was cut off in transit
    left_out: int = 0  #: entries beyond the budget of a document (decision 34)
    expired: bool = False  #: JSON Feed: True if the feed says that it will never be updated again
