"""What is new, and what is in trouble, as Atom (RFC 4287) that a feed reader can subscribe to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import IO, TYPE_CHECKING, Final
from uuid import UUID, uuid5
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.wording import xml_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from walsh_scrapy.tools.export.entries import ExportedEntry
    from walsh_scrapy.tools.troubles import Trouble

#: Entries of a feed, the newest ones: readers ask for all of it again and again.
MOST: Final = 500
#: Ids are made in this space of names, so that the same entry has the same id in every export.
_IDS: Final = UUID("5f6a7c0e-2d1b-5c43-9a37-6d0f0c8f2b11")
#: When a feed without an entry was last updated: RFC 4287 wants a moment.
_NEVER: Final = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomEntry:
    """One entry of a feed. Times are RFC 3339; texts may be those of strangers."""

    name: str  #: what its id is made of, the same for ever
    title: str
    url: str
    updated: str
    published: str | None = None
    authors: Sequence[str] = ()
    tags: Sequence[str] = ()
    source: tuple[str, str] | None = None  #: the URL and title of the feed that it comes from
    text: str = ""


def newest(entries: Iterable[ExportedEntry]) -> list[AtomEntry]:
    """Return the first `MOST` entries, of which no more are read: they come newest first."""
    return [_new(entry) for entry in islice(entries, MOST)]


def failures(troubles: Iterable[Trouble]) -> list[AtomEntry]:
    """Return the sources in trouble, those that began last first, at most `MOST`.

    A trouble is one entry for as long as it lasts: its id is that of its source and its begin. No
    begin of a denial is known, so each visit that was denied is an entry.
    """
    found = [_trouble(each) for each in troubles]
    return sorted(found, key=lambda entry: entry.updated, reverse=True)[:MOST]


def write_atom(
    entries: Sequence[AtomEntry], file: IO[bytes], *, title: str, name: str, author: str
) -> int:
    """Write a feed, and return how many entries it has.

    ``name`` is what its id is made of; ``author`` counts for entries that name none.
    """
    feed = Element("feed", xmlns="http://www.w3.org/2005/Atom")
    _add(feed, "id", _id(name))
    _add(feed, "title", title)
    _add(feed, "updated", max((entry.updated for entry in entries), default=_NEVER))
    _add(_add(feed, "author"), "name", author)
    for entry in entries:
        _add_entry(feed, entry)
    indent(feed, "")
    ElementTree(feed).write(file, "utf-8", xml_declaration=True)
    file.write(b"\n")
    return len(entries)


def _add_entry(feed: Element, entry: AtomEntry) -> None:
    element = _add(feed, "entry")
    _add(element, "id", _id(entry.name))
    _add(element, "title", entry.title)
    _add(element, "updated", entry.updated)
    if entry.published:
        _add(element, "published", entry.published)
    _add(element, "link", rel="alternate", href=entry.url)
    for author in entry.authors:
        _add(_add(element, "author"), "name", author)
    for tag in entry.tags:
        _add(element, "category", term=tag)
    if entry.source:
        url, title = entry.source
        source = _add(element, "source")
        _add(source, "id", url)
        _add(source, "title", title)
        _add(source, "updated", entry.updated)
        _add(source, "link", rel="self", href=url)
    if entry.text:
        _add(element, "content", entry.text)


def _add(parent: Element, tag: str, text: str = "", **attributes: str) -> Element:
    """Add an element; texts lose what XML 1.0 does not allow."""
    clean = {name: xml_text(value) for name, value in attributes.items()}
    element = SubElement(parent, tag, clean)
    element.text = xml_text(text) or None
    return element


def _new(entry: ExportedEntry) -> AtomEntry:
    item = entry.item
    return AtomEntry(
        name=entry.key,
        title=item.title or item.url or item.id or "without a title",
        url=item.url or item.source,
        updated=item.first_seen or _NEVER,
        published=item.published,
        authors=item.authors,
        tags=item.tags,
        source=(item.source, entry.source_name or item.source_title or item.source),
    )


def _trouble(trouble: Trouble) -> AtomEntry:
    row = trouble.row
    last = row.record.fetched_at if trouble.what == "denied" else None
    begun = rfc3339(trouble.begun or last or row.record.visited_since) or _NEVER
    name = row.source.name if row.source and row.source.name else row.record.url
    told = (trouble.why, trouble.since, trouble.advice, trouble.command)
    return AtomEntry(
        name=f"{row.record.url} {trouble.what} {begun}",
        title=f"{trouble.what}: {name}",
        url=row.record.url,
        updated=begun,
        tags=(trouble.what,),
        text="\n".join(filter(None, told)),
    )


def _id(name: str) -> str:
    return f"urn:uuid:{uuid5(_IDS, name)}"
