"""What is new as Atom (RFC 4287), which a feed reader can subscribe to."""

from __future__ import annotations

from itertools import islice
from typing import IO, TYPE_CHECKING, Final
from uuid import UUID, uuid5
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent

from walsh_scrapy.policy.wording import xml_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walsh_scrapy.tools.export.entries import ExportedEntry

#: Entries of a feed, the newest ones: readers ask for all of it again and again.
MOST: Final = 500
#: Ids are made in this space of names, so that the same entry has the same id in every export.
_IDS: Final = UUID("5f6a7c0e-2d1b-5c43-9a37-6d0f0c8f2b11")
#: When a feed without an entry was last updated: RFC 4287 wants a moment.
_NEVER: Final = "1970-01-01T00:00:00Z"


def write_atom(entries: Iterable[ExportedEntry], file: IO[bytes], *, name: str, author: str) -> int:
    """Write a feed of the first `MOST` entries, which come newest first; return how many it has.

    No more are read. ``name`` is what the id of the feed is made of; ``author`` counts for entries
    that name none.
    """
    newest = list(islice(entries, MOST))
    feed = Element("feed", xmlns="http://www.w3.org/2005/Atom")
    _add(feed, "id", _id(name))
    _add(feed, "title", f"{author}: new")
    _add(feed, "updated", max((_seen(entry) for entry in newest), default=_NEVER))
    _add(_add(feed, "author"), "name", author)
    for entry in newest:
        _add_entry(feed, entry)
    indent(feed, "")
    ElementTree(feed).write(file, "utf-8", xml_declaration=True)
    file.write(b"\n")
    return len(newest)


def _add_entry(feed: Element, entry: ExportedEntry) -> None:
    item = entry.item
    element = _add(feed, "entry")
    _add(element, "id", _id(entry.key))
    _add(element, "title", item.title or item.url or item.id or "without a title")
    _add(element, "updated", _seen(entry))
    if item.published:
        _add(element, "published", item.published)
    _add(element, "link", rel="alternate", href=item.url or item.source)
    for author in item.authors:
        _add(_add(element, "author"), "name", author)
    for tag in item.tags:
        _add(element, "category", term=tag)
    source = _add(element, "source")
    _add(source, "id", item.source)
    _add(source, "title", entry.source_name or item.source_title or item.source)
    _add(source, "updated", _seen(entry))
    _add(source, "link", rel="self", href=item.source)


def _seen(entry: ExportedEntry) -> str:
    return entry.item.first_seen or _NEVER


def _add(parent: Element, tag: str, text: str = "", **attributes: str) -> Element:
    """Add an element; texts lose what XML 1.0 does not allow."""
    clean = {name: xml_text(value) for name, value in attributes.items()}
    element = SubElement(parent, tag, clean)
    element.text = xml_text(text) or None
    return element


def _id(name: str) -> str:
    return f"urn:uuid:{uuid5(_IDS, name)}"
