"""What others read: entries as Atom (RFC 4287), sources as OPML, which can be declared again."""

from __future__ import annotations

import re
from itertools import islice
from typing import IO, TYPE_CHECKING, Final
from uuid import UUID, uuid5
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent
from xml.sax.saxutils import quoteattr

from walsh_scrapy.policy.durations import format_duration
from walsh_scrapy.policy.wording import xml_text
from walsh_scrapy.sources.opml import NAMESPACE, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.tools.export import ExportedEntry

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
    _add(element, "id", _id(entry.stored.key))
    _add(element, "title", item.title or item.url or item.id or "without a title")
    _add(element, "updated", _seen(entry))
    if item.published:
        _add(element, "published", item.published)
    _add(element, "link", rel="alternate", href=item.url or item.source)
    for author in item.authors:
        _add(_add(element, "author"), "name", author)
    for tag in item.tags:
        _add(element, "category", term=tag)
    name = entry.source.name if entry.source else None
    source = _add(element, "source")
    _add(source, "id", item.source)
    _add(source, "title", name or item.source_title or item.source)
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


# ---- OPML ----

_HEAD: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    f'<opml version="2.0" xmlns:{PREFIX}="{NAMESPACE}">\n'
    "<head><title>Sources of walsh-scrapy</title></head>\n<body>\n"
)
# Tags that would be read back as other tags from a list of categories.
_NO_CATEGORY: Final = re.compile(r",|^[\s/]|[\s/]$|^$")


def write_opml(
    sources: Iterable[Source], file: IO[bytes], title_of: Callable[[str], str | None]
) -> int:
    """Write each source as an outline, and return how many there were.

    ``title_of`` returns what the feed of a URL was titled last, for a source without a name; else
    that is titled by its URL. `every` and `pause` are attributes of our own namespace.
    """
    count = 0
    opened: tuple[str, ...] = ()
    file.write(_HEAD.encode())
    for source in sources:
        title = source.name or title_of(source.url) or source.url
        folders, outline = outline_of(source, title)
        file.writelines(f"{line}\n".encode() for line in (*_folder_tags(folders, opened), outline))
        count, opened = count + 1, folders
    file.writelines(f"{line}\n".encode() for line in _folder_tags((), opened))
    file.write(b"</body>\n</opml>\n")
    return count


def outline_of(source: Source, title: str) -> tuple[tuple[str, ...], str]:
    """Return the folders of a source, and its outline.

    Tags that are no folders are categories; where they cannot be listed they are folders too.
    """
    tags = tuple(tag for tag in source.tags if tag not in source.folders)
    listable = not any(map(_NO_CATEGORY.search, tags))
    folders = source.folders if listable else (*source.folders, *filter(str.strip, tags))
    attributes = {
        "type": "llms" if source.kind == "llms" else "rss",
        "text": title,
        "title": title,
        "xmlUrl": source.url,
        "htmlUrl": source.page,
        "category": ",".join(tags) if listable else None,
        f"{PREFIX}:every": format_duration(source.every) if source.every else None,
        f"{PREFIX}:pause": format_duration(source.pause) if source.pause else None,
    }
    written = (f"{name}={_quote(value)}" for name, value in attributes.items() if value)
    return folders, f"<outline {' '.join(written)}/>"


def _folder_tags(folders: tuple[str, ...], opened: tuple[str, ...]) -> Iterator[str]:
    """Yield the tags that lead from the open folders to those of the next source."""
    pairs = enumerate(zip(folders, opened, strict=False))
    shared = next((at for at, (new, old) in pairs if new != old), min(len(folders), len(opened)))
    yield from ("</outline>" for _ in opened[shared:])
    yield from (f"<outline text={_quote(folder)}>" for folder in folders[shared:])


def _quote(text: str) -> str:
    return quoteattr(xml_text(text))
