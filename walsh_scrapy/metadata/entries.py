"""The metadata of a document and of its entries: all that a run keeps of it (R6, R7).

`with_keys` gives each entry its keys, which identify it in later documents (decision 19).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple, Self, TypeAlias

from walsh_scrapy.metadata.encoding import REPLACEMENT
from walsh_scrapy.metadata.text import one_line
from walsh_scrapy.policy.freshness import MAX_REVISIT_SECONDS, UpdateHints
from walsh_scrapy.policy.urls import canonical_url, host_of


class NotAFeed(Exception):
    """The body is neither a feed nor a page of links. The message is a sentence that names it."""

    @classmethod
    def of_format(
        cls, format_name: str, content_type: str | None, expected: str = "a feed"
    ) -> Self:
        """Return the error for a body that is something else: `an HTML page`, `a sitemap`."""
        served_as = (one_line(content_type) or "")[:80]
        served = f" (served as {served_as})" if served_as else ""
        return cls(f"Not {expected} but {format_name}{served}.")


_PERIODS: Final = {
    "hourly": 3600.0,
    "daily": 86_400.0,
    "weekly": 7 * 86_400.0,
    "monthly": 30 * 86_400.0,
    "yearly": 365 * 86_400.0,
}


class FeedEntry(NamedTuple):
    """An entry of a feed, or a link of an llms.txt: metadata as plain text (R6, decision 23).

    It is sent from one process to another, and pickle takes a third of the time of a dataclass.
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
    """A feed or a page of links, with its update hints (R8, decision 20)."""

    title: str | None
    language: str | None  #: a BCP 47 tag
    entries: tuple[FeedEntry, ...]  #: in document order
    ttl: float | None = None  #: `ttl` of RSS 2.0: minutes that a copy may be kept, above 0
    update_period: str | None = None  #: "hourly", "daily", "weekly", "monthly" or "yearly"
    update_frequency: int | None = None  #: updates in one `update_period`, 1 or more
    skip_hours: frozenset[int] = frozenset()  #: hours without updates, 0 to 23, UTC
    skip_days: frozenset[str] = frozenset()  #: days without updates, UTC, such as "Sunday"
    is_complete: bool = True  #: False if the document was cut off in transit
    left_out: int = 0  #: entries beyond the budget of a document (decision 34)
    #: Its form: "rss20", "atom10", "JSON Feed", "markdown"; not its content.
    format: str = field(default="", compare=False)
    expired: bool = False  #: JSON Feed: True if the feed says that it will never be updated again

    @property
    def hints(self) -> UpdateHints:
        """The hints of the feed about its updates."""
        syndicated = 0.0
        if self.update_period or self.update_frequency:  # each has a default if the other is set
            period = _PERIODS[self.update_period or "daily"]
            syndicated = period / (self.update_frequency or 1)
        expired = MAX_REVISIT_SECONDS if self.expired else 0.0
        interval = max((self.ttl or 0.0) * 60.0, syndicated, expired)
        return UpdateHints(interval, self.skip_hours, self.skip_days)


#: Seconds within which all dates of a document are one moment.
_ONE_MOMENT_SECONDS: Final = 60
#: Seconds before a response from which on its dates may have been made for it.
_FRESH_SECONDS: Final = 300

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*:\S", re.IGNORECASE | re.ASCII)
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)


class EntryKeys(NamedTuple):
    """The fields that tell entries of one page apart (decision 19)."""

    page_key: str
    key: str  #: of the page and the id; the same as `page_key` if there is no id
    title_key: str | None
    date: str | None  #: of publication, if it is evidence (RFC 3339, UTC)


class DocumentKeys(NamedTuple):
    """The keys of the entries of one document, in its order, without dates that are no evidence."""

    entries: tuple[EntryKeys, ...]
    #: The pages that it lists more than once, by their keys. The titles of their entries stand for
    #: missing ids.
    repeated_pages: frozenset[str]
    has_doubtful_dates: bool  #: all dates may have been made when the document was


def document_keys(entries: Sequence[EntryKeys], answered_at: float) -> DocumentKeys:
    """Return the keys of a document's entries, without the dates that are no evidence.

    `answered_at` is the `Date` of the response in epoch seconds. Some generators make new dates
    each time. So the dates of a document with several entries are no evidence if they all lie
    within a minute, or all within five minutes of the response or later. A date that several
    entries share is no evidence for these entries.
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
    """Return True if all dates of a document may have been made when the document was."""
    if not dates:
        return False
    first, last = (datetime.fromisoformat(date).timestamp() for date in (min(dates), max(dates)))
    is_one_moment = len(dates) > 1 and last - first <= _ONE_MOMENT_SECONDS
    return is_one_moment or first >= answered_at - _FRESH_SECONDS


def with_title_as_id(entry: EntryKeys, repeated_pages: Container[str]) -> EntryKeys:
    """Return an entry whose title stands for its missing id, if its page is a repeated one."""
    has_no_id = entry.key == entry.page_key
    if has_no_id and entry.title_key is not None and entry.page_key in repeated_pages:
        return entry._replace(key=entry.title_key)
    return entry


#: Where an entry is filed: under its id, or under its page with its title and its date.
Place: TypeAlias = tuple[str | None, ...]
_ANY: Final = "any"


def places_of(entry: EntryKeys) -> tuple[Place, ...]:
    """Return the places at which an entry is filed, for `places_of_same` to find it."""
    page, key, title, date = entry
    return (
        (key,),
        (page, title, date),
        (page, title, _ANY),
        (page, _ANY, date),
        (page, _ANY, _ANY),
    )


def places_of_same(entry: EntryKeys) -> list[Place]:
    """Return the places at which the same entries are filed, and no others.

    Two entries of a page differ if their ids differ and, besides, their titles or their dates
    differ: a comment is not its post, though its link is the link of the post with a fragment. A
    field differs only if both entries have it.
    """
    page, key, title, date = entry
    if key == page:  # it has no id
        return [(page, _ANY, _ANY)]
    titles = (_ANY,) if title is None else (title, None)
    dates = (_ANY,) if date is None else (date, None)
    places: list[Place] = [(page, title, date) for title in titles for date in dates]
    return [(key,), (page,), *places]


class KnownEntries:
    """Entries that are known. Their number does not matter to the time of a question."""

    def __init__(self) -> None:
        self._places: set[Place] = set()

    def has_page(self, page_key: str) -> bool:
        """Return True if an entry of this page is known."""
        return (page_key, _ANY, _ANY) in self._places

    def add(self, entry: EntryKeys) -> None:
        """Make an entry known."""
        self._places.update(places_of(entry))

    def has(self, entry: EntryKeys) -> bool:
        """Return True if an entry is the same as a known one."""
        return not self._places.isdisjoint(places_of_same(entry))


def distinct_entries(entries: Sequence[EntryKeys]) -> list[int]:
    """Return the places of the different entries of a document, in its order.

    An entry without a date differs from no other of its title. So the entries with one count first.
    """
    previous = KnownEntries()
    places = []
    for place in sorted(range(len(entries)), key=lambda place: entries[place].date is None):
        if not previous.has(entries[place]):
            previous.add(entries[place])
            places.append(place)
    return sorted(places)


def is_damaged_copy(damaged: str, *, of: str) -> bool:
    """Return True if a title differs from another only by U+FFFD, and has more of them.

    Each U+FFFD stands for a byte, so for at most one character; several may stand for one.
    """
    if damaged.count(REPLACEMENT) <= of.count(REPLACEMENT):
        return False
    places: defaultdict[str, int] = defaultdict(int)  # of each character, as the bits of a number
    for place, character in enumerate(of):
        places[character] |= 1 << place
    matched_lengths = 1  # the lengths of the beginnings of `of` that match until now, as bits
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

    `page_key` is of the canonical URL of the page, `key` of the page and the id. Without an id they
    are the same. `title_key` is of the page and the title. An entry without a link has only its id
    alone, which may be the URL that was its link in an earlier document. `is_own` is True if the
    page is on the host of the source, and for ids that are not pages.

    An index of pages, such as an llms.txt, has one entry for each URL. Its titles tell nothing
    apart, so there are no keys of titles.
    """
    source_url, host = canonical_url(source), host_of(source)
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
        # Without a link the id alone tells entries apart.
        title_key=title_key if entry.url else key,
        is_own=host_of(page) in ("", host),
    )


def _opaque_id(id_: str, page: str) -> str:
    """Return an id as it is; that of the page's URL without its spelling (`/a`, `/a/`)."""
    is_page = "#" not in id_ and _WEB.match(id_) and canonical_url(id_) == page
    return page if is_page else id_


def _page_without_link(entry: FeedEntry, source: str) -> str:
    """Return the substitute for the page of an entry without a link: its id; else title and date.

    Only an id that is a URI is unique by itself: `17` is another entry in another feed.
    """
    if not entry.id:
        return "\0".join((source, entry.title or "", entry.published or entry.updated or ""))
    if _WEB.match(entry.id):
        return canonical_url(entry.id)
    return entry.id if _URI.match(entry.id) else f"{source}\0{entry.id}"


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()
