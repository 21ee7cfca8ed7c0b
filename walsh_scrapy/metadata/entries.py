"""What a document says of itself and of its entries: the only things a run keeps (R6)."""

from dataclasses import dataclass


class NotAFeed(Exception):
    """What came is no feed or page of links; the message is a sentence saying what came instead."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a feed, or a link: metadata only, plain text, no content (R6, decision 23)."""

    url: str | None  #: absolute, http or https; as published, so with its fragment
    title: str | None  #: plain text on one line
    id: str | None  #: as published
    published: str | None  #: RFC 3339, UTC, whole seconds
    updated: str | None  #: RFC 3339, UTC, whole seconds
    authors: tuple[str, ...]  #: names, never e-mail addresses
    tags: tuple[str, ...]
    key: str = ""  #: SHA-256 in hex: the same entry has the same key (decision 19)
    #: The key this entry has in documents where others of another id share its page. Whoever
    #: remembers it beside `key` never meets the entry as new when such neighbours come or go.
    full_key: str = ""
    page_key: str = ""  #: the key it has, or had when it had a link, alone on its page
    section: str | None = None  #: of a link: the heading it is under
    note: str | None = None  #: of a link: what its list item says of it


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed or a page of links, with what it says about when to come again (R8, decision 20)."""

    title: str | None
    language: str | None  #: a BCP 47 tag
    entries: tuple[Entry, ...]  #: in document order
    ttl: float | None = None  #: minutes, above 0
    update_period: str | None = None  #: hourly, daily, weekly, monthly or yearly
    update_frequency: int | None = None  #: fetches per period, 1 or more
    skip_hours: frozenset[int] = frozenset()  #: 0 to 23, UTC
    skip_days: frozenset[str] = frozenset()  #: English names, such as "Sunday"
    is_whole: bool = True  #: False for a document that was cut off on its way
    expired: bool = False  #: JSON Feed: the feed says it will never be updated again
