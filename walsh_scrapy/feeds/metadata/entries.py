"""The metadata of a document and of its entries, and nothing else of the document (R6, R7).

`with_keys` adds keys, so that an entry is recognized in later documents.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple, Self, TypeAlias

from walsh_scrapy.feeds.freshness import UpdateHints
from walsh_scrapy.feeds.metadata.encoding import REPLACEMENT
from walsh_scrapy.feeds.metadata.text import is_web_url
from walsh_scrapy.policy.durations import MAX_REVISIT_SECONDS
from walsh_scrapy.policy.urls import canonical_url, host_of
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


#: The values of `update_period`, in seconds.
PERIODS: Final = {
    "hourly": 3600.0,
    "daily": 86_400.0,
    "weekly": 7 * 86_400.0,
    "monthly": 30 * 86_400.0,
    "yearly": 365 * 86_400.0,
}


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
    #: SHA-256 in hex, empty until `with_keys` has set them.
    key: str = ""  #: of its page and its id
    page_key: str = ""
    title_key: str | None = None  #: of its page and its title
    is_own: bool = True  #: False if its page is on another host than its source
    section: str | None = None  #: of a link in an llms.txt: the heading above it
    note: str | None = None  #: of a link in an llms.txt: the description after it


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed or a page of links, with its hints about updates (R8)."""

    title: str | None
    language: str | None  #: a BCP 47 tag
    entries: tuple[FeedEntry, ...]  #: in document order
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

    @property
    def hints(self) -> UpdateHints:
        """The hints of the feed about its updates, as `policy.freshness` uses them."""
        syndicated = 0.0
        if self.update_period or self.update_frequency:  # each has a default if the other is set
            period = PERIODS[self.update_period or "daily"]
            syndicated = period / (self.update_frequency or 1)
        expired = MAX_REVISIT_SECONDS if self.expired else 0.0
        interval = max((self.ttl or 0.0) * 60.0, syndicated, expired)
        return UpdateHints(interval, self.skip_hours, self.skip_days)


#: Dates of a document that lie within this many seconds are treated as one moment.
_ONE_MOMENT_SECONDS: Final = 60
#: Dates from this many seconds before a response on may have been made for the response.
_FRESH_SECONDS: Final = 300

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*:\S", re.IGNORECASE | re.ASCII)


class EntryKeys(NamedTuple):
    """The fields that tell the entries of one page apart."""

    page_key: str
    key: str  #: of the page and the id; the same as `page_key` if there is no id
    title_key: str | None
    date: str | None  #: of publication (RFC 3339, UTC); None if the date proves nothing


class DocumentKeys(NamedTuple):
    """The keys of a document's entries, in document order, without dates that prove nothing."""

    entries: tuple[EntryKeys, ...]
    #: The keys of pages that the document lists more than once. An entry of such a page that has no
    #: id is identified by its title.
    repeated_pages: frozenset[str]
    has_doubtful_dates: bool  #: all dates may be the time at which the document was made


def document_keys(entries: Sequence[EntryKeys], answered_at: float) -> DocumentKeys:
    """Return the keys of a document's entries, without the dates that prove nothing.

    `answered_at` is the `Date` of the response in epoch seconds. Some generators make new dates
    for every response. So the dates of a document with several entries are ignored if all of them
    lie within one minute, or if all are later than five minutes before the response. A date that
    several entries share is ignored for these entries.
    """
    distinct = set(entries)
    dates = [entry.date for entry in distinct if entry.date is not None]
    shared_dates = {date for date, number in Counter(dates).items() if number > 1}
    is_doubtful = len(distinct) > 1 and _are_doubtful(dates, answered_at)
    titles: dict[str, set[tuple[str, str | None]]] = {}
    for entry in distinct:
        titles.setdefault(entry.page_key, set()).add((entry.key, entry.title_key))
    repeated = frozenset(
        page for page, entries_of_page in titles.items() if len(entries_of_page) > 1
    )
    keys = []
    for entry in entries:
        if is_doubtful or entry.date in shared_dates:
            entry = entry._replace(date=None)  # noqa: PLW2901
        keys.append(with_title_as_id(entry, repeated))
    return DocumentKeys(tuple(keys), repeated, is_doubtful)


def _are_doubtful(dates: Collection[str], answered_at: float) -> bool:
    """Return True if all dates of a document may be the time at which the document was made."""
    if not dates:
        return False
    first, last = (datetime.fromisoformat(date).timestamp() for date in (min(dates), max(dates)))
    is_one_moment = len(dates) > 1 and last - first <= _ONE_MOMENT_SECONDS
    return is_one_moment or first >= answered_at - _FRESH_SECONDS


def with_title_as_id(entry: EntryKeys, repeated_pages: Container[str]) -> EntryKeys:
    """Return the entry with its title as its id, if it has no id and its page is a repeated one."""
    has_no_id = entry.key == entry.page_key
    if has_no_id and entry.title_key is not None and entry.page_key in repeated_pages:
        return entry._replace(key=entry.title_key)
    return entry


#: A key of an index of entries: an id, or a page with a title and a date.
Place: TypeAlias = tuple[str | None, ...]
_ANY: Final = "any"


def places_of(entry: EntryKeys) -> tuple[Place, ...]:
    """Return the index keys under which an entry is stored, so that `places_of_same` finds it."""
    page, key, title, date = entry
    return (
        (key,),
        (page, title, date),
        (page, title, _ANY),
        (page, _ANY, date),
        (page, _ANY, _ANY),
    )


def places_of_same(entry: EntryKeys) -> list[Place]:
    """Return the index keys that find the same entry, and no other entry.

    Two entries of a page are different if their ids differ and, besides, their titles or their
    dates differ. So a comment is not its post, although its link is the link of the post with a
    fragment. A field differs only if both entries have the field.
    """
    page, key, title, date = entry
    if key == page:  # it has no id
        return [(page, _ANY, _ANY)]
    titles = (_ANY,) if title is None else (title, None)
    dates = (_ANY,) if date is None else (date, None)
    places: list[Place] = [(page, title, date) for title in titles for date in dates]
    return [(key,), (page,), *places]


class KnownEntries:
    """An index of entries. A look-up takes the same time however many entries there are."""

    def __init__(self) -> None:
        self._places: set[Place] = set()

    def has_page(self, page_key: str) -> bool:
        """Return True if an entry of this page was added."""
        return (page_key, _ANY, _ANY) in self._places

    def add(self, entry: EntryKeys) -> None:
        """Add an entry."""
        self._places.update(places_of(entry))

    def has(self, entry: EntryKeys) -> bool:
        """Return True if the same entry was added."""
        return not self._places.isdisjoint(places_of_same(entry))


def distinct_entries(entries: Sequence[EntryKeys]) -> list[int]:
    """Return the indexes of the different entries of a document, in document order.

    An entry without a date is the same as any other entry with its title. So entries with a date
    are compared first.
    """
    previous = KnownEntries()
    places = []
    for place in sorted(range(len(entries)), key=lambda place: entries[place].date is None):
        if not previous.has(entries[place]):
            previous.add(entries[place])
            places.append(place)
    return sorted(places)


def is_damaged_copy(damaged: str, *, of: str) -> bool:
    """Return True if a title is another title, `of`, in which more characters became U+FFFD.

    Each U+FFFD stands for one byte, so for at most one character. Several may stand for one
    character.
    """
    if damaged.count(REPLACEMENT) <= of.count(REPLACEMENT):
        return False
    # The bits of a number are places in `of`: where each character is, and how far `of` matches.
    places: defaultdict[str, int] = defaultdict(int)
    for place, character in enumerate(of):
        places[character] |= 1 << place
    matched_lengths = 1
    for character in damaged:
        if character == REPLACEMENT:
            matched_lengths |= matched_lengths << 1
        else:
            matched_lengths = (matched_lengths & places[character]) << 1
    return bool(matched_lengths >> len(of) & 1)


def with_keys(
    entries: Sequence[FeedEntry], source: str, *, is_index: bool = False
) -> tuple[FeedEntry, ...]:
    """Return the entries of one document with their keys; `source` is its declared URL.

    `page_key` is the hash of the page's canonical URL, `key` the hash of the page and the id. They
    are equal if there is no id. `title_key` is the hash of the page and the title. An entry without
    a link is identified by its id alone, which may be the URL that was its link in an earlier
    document. `is_own` is True if the page is on the host of the source, or if there is no page.

    An index of pages (`is_index`), such as an llms.txt, has one entry for each URL. Its titles tell
    no entries apart, so its entries have no `title_key`.
    """
    source_url = canonical_url(source)
    host = host_of(source)
    keyed = (_add_keys(entry, source_url, host) for entry in entries)
    return tuple(entry._replace(title_key=None) if is_index else entry for entry in keyed)


def _add_keys(entry: FeedEntry, source: str, host: str) -> FeedEntry:
    page = canonical_url(entry.url) if entry.url else _page_without_link(entry, source)
    page_key = _sha256(page)
    key = _sha256(f"{page}\0{_opaque_id(entry.id, page)}") if entry.id else page_key
    title_key = _sha256(f"{page}\0\0{entry.title}") if entry.title else None
    return entry._replace(
        key=key,
        page_key=page_key,
        # Without a link, entries are told apart by their ids alone.
        title_key=title_key if entry.url else key,
        is_own=host_of(page) in ("", host),
    )


def _opaque_id(id_: str, page: str) -> str:
    """Return an id; the page if the id is its URL in another spelling (`/a/` instead of `/a`)."""
    is_page = "#" not in id_ and is_web_url(id_) and canonical_url(id_) == page
    return page if is_page else id_


def _page_without_link(entry: FeedEntry, source: str) -> str:
    """Return what identifies an entry without a link: its id, or else its title and its date.

    Only an id that is a URI is unique: an id such as `17` means another entry in another feed, so
    the source is added to it.
    """
    if not entry.id:
        return "\0".join((source, entry.title or "", entry.published or entry.updated or ""))
    if is_web_url(entry.id):
        return canonical_url(entry.id)
    return entry.id if _URI.match(entry.id) else f"{source}\0{entry.id}"


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()
