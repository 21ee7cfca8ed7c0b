"""Which entries are the same one (R7, decision 19).

An entry is its page: the canonical URL, without fragment and trailing slash. Only where entries of
one document share a page and carry different ids does more count: their fragments (`page#p3`), and
the ids themselves where fragments tell nothing apart. A change log whose entries all link to its
one page has many entries, not one.

So the key of an entry depends on its neighbours, and these come and go. `full_key` is the key it
has among them, and `page_key` the one it has without, both known from the entry alone. Of each
entry its key and its full key are remembered: who finds either of them again has seen the entry,
and finds it under its full key or its page key.

Entries without an id that share a page are one entry, whatever their titles say: nothing the
publisher wrote tells a second entry from a second spelling.
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
    spots = [_spot(page, entry) for page, entry in zip(pages, entries, strict=True)]
    full_pages = _shared(pages, entries)
    full_spots = _shared(spots, entries) if full_pages else frozenset()

    def keyed(entry: Entry, page: str, spot: str) -> Entry:
        if not page:
            name = _unlinked(entry, canonical_url(source))
            # An id may be where the entry was when it still had a link, alone on its page.
            lone, page_key = _sha256(name), _sha256(_AFTER_PAGE.split(name, maxsplit=1)[0])
            return replace(entry, key=lone, full_key=lone, page_key=page_key)
        full = _with_id(spot, entry) if spot == page or spot in full_spots else spot
        full_key, page_key = _sha256(full), _sha256(page)
        key = full_key if page in full_pages else page_key
        return replace(entry, key=key, full_key=full_key, page_key=page_key)

    return tuple(map(keyed, entries, pages, spots))


def _spot(page: str, entry: Entry) -> str:
    fragment = entry.url.partition("#")[2] if entry.url else ""
    return f"{page}#{fragment}" if fragment else page


def _shared(places: Iterable[str], entries: Iterable[Entry]) -> frozenset[str]:
    """Return the places at which entries of different ids are."""
    ids: dict[str, set[str]] = {}
    for place, entry in zip(places, entries, strict=True):
        if place and entry.id:
            ids.setdefault(place, set()).add(entry.id)
    return frozenset(
        place for place, own in ids.items() if len(own) > 1 and len(set(map(_same, own))) > 1
    )


def _same(id_: str) -> str:
    """Return ids that are URLs in one spelling: `/a` and `/a/` are no two ids."""
    if not _WEB.match(id_):
        return id_
    return f"{canonical_url(id_)}#{id_.partition('#')[2]}"


def _with_id(place: str, entry: Entry) -> str:
    return f"{place}\0{_same(entry.id)}" if entry.id else place


def _unlinked(entry: Entry, source: str) -> str:
    """Return what an entry without a link is known by.

    Only an id that is a URI is unique in the world: `17` is another entry in another feed.
    """
    if entry.id:
        return entry.id if _URI.match(entry.id) else f"{source}\0{entry.id}"
    return "\0".join((source, entry.title or "", entry.published or entry.updated or ""))


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()
