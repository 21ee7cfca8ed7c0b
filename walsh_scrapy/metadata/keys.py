"""By what an entry is the same in every document and every run (R7, decision 19).

An entry has up to three keys, each a SHA-256. `page_key` is of the canonical URL of its page, which
has no fragment and no trailing slash. `key` is of the page and the id; without an id it is the page
key. `title_key` is of the page and the title.

Entries of one page are two if both their ids and their titles differ: a comment is not its post,
though its link is the post's with a fragment. So an article stays one whose title or whose id
changes, and one that two feeds publish under ids of their own. An entry without an id differs from
no other of its page. Entries without a title are told apart by their ids. Ids are opaque, but for
one that is the URL of the page.

An entry without a link is known by its id alone, which may be the URL that was its link in an
earlier document.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

from walsh_scrapy.metadata.entries import Entry
from walsh_scrapy.policy.urls import canonical_url

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*:\S", re.IGNORECASE | re.ASCII)
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)


class KnownEntries:
    """Entries that are known, by their keys."""

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


def with_keys(entries: Sequence[Entry], source: str) -> tuple[Entry, ...]:
    """Return the entries of one document with their keys; `source` is its declared URL."""
    origin = canonical_url(source)
    return tuple(_keyed(entry, origin) for entry in entries)


def _keyed(entry: Entry, source: str) -> Entry:
    page = canonical_url(entry.url) if entry.url else _page_without_link(entry, source)
    page_key = _sha256(page)
    return replace(
        entry,
        key=_sha256(f"{page}\0{_opaque_id(entry.id, page)}") if entry.id else page_key,
        page_key=page_key,
        title_key=_sha256(f"{page}\0\0{entry.title}") if entry.url and entry.title else None,
    )


def _opaque_id(id_: str, page: str) -> str:
    """Return an id as it is; that of the page's own URL without its spelling (`/a`, `/a/`)."""
    is_page = "#" not in id_ and _WEB.match(id_) and canonical_url(id_) == page
    return page if is_page else id_


def _page_without_link(entry: Entry, source: str) -> str:
    """Return what stands for the page of an entry without a link: its id; else title and date.

    Only an id that is a URI is unique by itself: `17` is another entry in another feed.
    """
    if not entry.id:
        return "\0".join((source, entry.title or "", entry.published or entry.updated or ""))
    if _WEB.match(entry.id):
        return canonical_url(entry.id)
    return entry.id if _URI.match(entry.id) else f"{source}\0{entry.id}"


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()
