"""The key of an entry: the same entry has the same key in every run (R7, decision 19).

The key is the SHA-256 of the canonical URL of the entry's page, which has no fragment and no
trailing slash. More counts only where entries of one document have the same page and different
ids, such as a change log whose entries all link to one page. There the fragment is part of the key
(`page#p3`), and the id as well where the fragment is the same or missing.

So the key of an entry depends on the other entries of its document, which come and go. Two more
keys depend on the entry alone: `full_key` is its key beside such entries, `page_key` its key
without them. The state stores the key and the full key of each entry, and looks an entry up by its
full key and its page key. The entry is known if a stored key or full key that it finds is its own.

Entries without an id that have the same page are one entry, even if their titles differ: the
publisher may have changed the title.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

from walsh_scrapy.metadata.entries import Entry
from walsh_scrapy.policy.urls import canonical_url

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*:\S", re.IGNORECASE | re.ASCII)
_AFTER_PAGE: Final = re.compile("[#\0]")
_WEB: Final = re.compile(r"https?://", re.IGNORECASE)


def with_keys(entries: Sequence[Entry], source: str) -> tuple[Entry, ...]:
    """Return the entries of one document with their keys; `source` is its declared URL."""
    pages = [canonical_url(entry.url) if entry.url else "" for entry in entries]
    anchors = [_with_fragment(page, entry) for page, entry in zip(pages, entries, strict=True)]
    shared_pages = _shared(pages, entries)
    shared_anchors = _shared(anchors, entries) if shared_pages else frozenset()

    def keyed(entry: Entry, page: str, anchor: str) -> Entry:
        if not page:
            name = _name_without_link(entry, canonical_url(source))
            # The id may be the URL that the entry had as its link in an earlier document.
            key, page_key = _sha256(name), _sha256(_AFTER_PAGE.split(name, maxsplit=1)[0])
            return replace(entry, key=key, full_key=key, page_key=page_key)
        needs_id = anchor == page or anchor in shared_anchors
        full_key, page_key = _sha256(_with_id(anchor, entry) if needs_id else anchor), _sha256(page)
        key = full_key if page in shared_pages else page_key
        return replace(entry, key=key, full_key=full_key, page_key=page_key)

    return tuple(map(keyed, entries, pages, anchors))


def _with_fragment(page: str, entry: Entry) -> str:
    fragment = entry.url.partition("#")[2] if entry.url else ""
    return f"{page}#{fragment}" if fragment else page


def _shared(urls: Iterable[str], entries: Iterable[Entry]) -> frozenset[str]:
    """Return the URLs that belong to entries with different ids."""
    ids: dict[str, set[str]] = {}
    for url, entry in zip(urls, entries, strict=True):
        if url and entry.id:
            ids.setdefault(url, set()).add(entry.id)
    return frozenset(
        url for url, own in ids.items() if len(own) > 1 and len(set(map(_canonical_id, own))) > 1
    )


def _canonical_id(id_: str) -> str:
    """Return an id that is a URL in canonical form: `/a` and `/a/` are the same id."""
    if not _WEB.match(id_):
        return id_
    return f"{canonical_url(id_)}#{id_.partition('#')[2]}"


def _with_id(url: str, entry: Entry) -> str:
    return f"{url}\0{_canonical_id(entry.id)}" if entry.id else url


def _name_without_link(entry: Entry, source: str) -> str:
    """Return what identifies an entry without a link: its id; else source, title and date.

    Only an id that is a URI is unique by itself: `17` is another entry in another feed.
    """
    if entry.id:
        return entry.id if _URI.match(entry.id) else f"{source}\0{entry.id}"
    return "\0".join((source, entry.title or "", entry.published or entry.updated or ""))


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()
