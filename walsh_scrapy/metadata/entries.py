"""The metadata of a document and of its entries: all that a run keeps of it (R6, R7).

`with_keys` gives each entry its keys, which identify it in later documents (decision 19).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final, Self

from walsh_scrapy.metadata.text import one_line
from walsh_scrapy.policy.freshness import LONGEST_REVISIT, UpdateHints
from walsh_scrapy.policy.urls import canonical_url, host_of


class NotAFeed(Exception):
    """The body is neither a feed nor a page of links. The message is a sentence that names it."""

    @classmethod
    def but(cls, what: str, content_type: str | None, wanted: str = "a feed") -> Self:
        """Return the error for a body that is something else: `an HTML page`, `a sitemap`."""
        served_as = (one_line(content_type) or "")[:80]
        served = f" (served as {served_as})" if served_as else ""
        return cls(f"Not {wanted} but {what}{served}.")


_PERIODS: Final = {
    "hourly": 3600.0,
    "daily": 86_400.0,
    "weekly": 7 * 86_400.0,
    "monthly": 30 * 86_400.0,
    "yearly": 365 * 86_400.0,
}


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """An entry of a feed, or a link of an llms.txt: metadata as plain text (R6, decision 23)."""

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
    is_whole: bool = True  #: False if the document was cut off in transit
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
        expired = LONGEST_REVISIT if self.expired else 0.0
        interval = max((self.ttl or 0.0) * 60.0, syndicated, expired)
        return UpdateHints(interval, self.skip_hours, self.skip_days)


_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*:\S", re.IGNORECASE | re.ASCII)
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)


class KnownEntries:
    """Entries that are known, by their keys.

    Entries of one page are two if both their ids and their titles differ: a comment is not its
    post, though its link is the post's with a fragment. An article stays one if only its title or
    only its id changes. An entry without an id differs from no other of its page.
    """

    def __init__(self) -> None:
        self._pages: dict[str, set[str | None]] = {}  # keys and title keys, by page key

    def has_page(self, page_key: str) -> bool:
        """Return True if an entry of this page is known."""
        return page_key in self._pages

    def add(self, page_key: str, key: str, title_key: str | None) -> None:
        """Make an entry known."""
        self._pages.setdefault(page_key, set()).update((key, title_key))

    def adds(self, page_key: str, key: str, title_key: str | None) -> bool:
        """Make an entry known, and return True, if it is none of those that are known."""
        known = self._pages.get(page_key)
        if known:
            has_no_id = key == page_key
            has_same_title = title_key is not None and title_key in known
            if has_no_id or has_same_title or not known.isdisjoint((key, page_key)):
                return False
        self.add(page_key, key, title_key)
        return True


def with_keys(entries: Sequence[FeedEntry], source: str) -> tuple[FeedEntry, ...]:
    """Return the entries of one document with their keys; `source` is its declared URL.

    `page_key` is of the canonical URL of the page, `key` of the page and the id. Without an id they
    are the same. `title_key` is of the page and the title. An entry without a link has only its id
    alone, which may be the URL that was its link in an earlier document. `is_own` is True if the
    page is on the host of the source, and for ids that are not pages.
    """
    origin, host = canonical_url(source), host_of(source)
    return tuple(_with_keys_of(entry, origin, host) for entry in entries)


def _with_keys_of(entry: FeedEntry, source: str, host: str) -> FeedEntry:
    page = canonical_url(entry.url) if entry.url else _page_without_link(entry, source)
    page_key = _sha256(page)
    return replace(
        entry,
        key=_sha256(f"{page}\0{_opaque_id(entry.id, page)}") if entry.id else page_key,
        page_key=page_key,
        title_key=_sha256(f"{page}\0\0{entry.title}") if entry.url and entry.title else None,
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
