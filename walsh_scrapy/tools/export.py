"""``walsh export``: the entries of the state database as a file, or the sources as OPML."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID, uuid5
from xml.etree.ElementTree import Element, ElementTree, SubElement, indent
from xml.sax.saxutils import quoteattr

from scrapy.utils.conf import feed_complete_default_values_from_settings
from scrapy.utils.misc import load_object

from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.feeds.sources.loading import load_sources
from walsh_scrapy.feeds.sources.opml import NAMESPACE, PREFIX
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.options import Options
from walsh_scrapy.policy.durations import format_duration
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.policy.wording import count_of, xml_text
from walsh_scrapy.state import StateError
from walsh_scrapy.tools.call import WrongCall
from walsh_scrapy.tools.output import Output
from walsh_scrapy.tools.sourcesfile import UnknownSource, find_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scrapy.settings import BaseSettings

    from walsh_scrapy.feeds.sources.source import Source
    from walsh_scrapy.feeds.stores.entrystore import StoredEntry
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call

#: The format for each file extension. "opml" has the sources, "atom" the newest entries, and the
#: others have all entries.
FORMATS: Final = {
    **{f".{name}": name for name in ("jsonl", "json", "csv", "opml", "atom")},
    ".jl": "jsonl",
}
_ITEM_FIELDS: Final = frozenset(field.name for field in fields(EntryItem))


def run(call: Call) -> int:
    """Write the file, and print the number of rows on standard error."""
    arguments = call.arguments
    output = Output.from_call(call)
    is_piped = output.target == "-"
    extension = ".jsonl" if is_piped else Path(output.target).suffix.lower()
    format_name = arguments.format or FORMATS.get(extension)
    if format_name is None:
        raise WrongCall(
            f"{output.target}: the extension must be one of {', '.join(FORMATS)}, unless --format "
            "names the format"
        )
    export = Export(
        settings=call.settings,
        sources_file=call.sources_file,
        urls=arguments.source,
        since=arguments.since or 0.0,
        has_backfill=not arguments.no_backfill,
    )
    if format_name == "opml":
        if arguments.since is not None or arguments.no_backfill:
            option = "no-backfill" if arguments.since is None else "since"
            raise WrongCall(
                f"--{option} selects entries, but an OPML file has sources; drop one of them"
            )
        with output.open() as file, call.state_if_any() as state:
            count = count_of(export.write_sources(file, state), "source")
    else:
        with output.open() as file, call.state() as state:
            written = export.write_entries(file, format_name, state)
            count = count_of(written, "entry", "entries")
    output.report(count)
    return 0


class ExportedEntry(NamedTuple):
    """One stored entry, with its source as it is declared now."""

    stored: StoredEntry
    item: EntryItem
    source: Source | None

    def to_dict(self) -> dict[str, Any]:
        """Return the columns of an export: the fields of the item, and five more."""
        source = self.source
        return self.item.to_dict() | {
            "source_name": source.name if source else None,
            "source_tags": list(source.tags) if source else [],
            "source_folder": "/".join(source.folders) or None if source else None,
            "backfill": self.stored.is_backfill,
            "also_in": list(self.stored.also_in),
        }


def item_of(entry: StoredEntry) -> EntryItem:
    """Return the item of a stored entry. Raises StateError if the entry is damaged.

    The item gets the present URL of its source, because the source may have moved since then.
    """
    try:
        values: dict[str, Any] = json.loads(entry.item) | {"source": entry.source}
        return EntryItem(**{name: values[name] for name in values if name in _ITEM_FIELDS})
    except (ValueError, TypeError) as error:
        raise StateError(
            f"the entry {entry.key} in the state database cannot be read ({error}); restore a "
            "backup, or delete this entry"
        ) from error


@dataclass(frozen=True, kw_only=True)
class Export:
    """What to export.

    The methods raise StateError, SourcesError, and UnknownSource for a URL that is not a source.
    """

    settings: BaseSettings
    sources_file: str
    urls: Sequence[str] = ()  #: only entries of these sources; empty for all
    since: float = 0.0  #: only entries that were first seen at this epoch second or later
    has_backfill: bool = True  #: False leaves out the entries of first visits

    def write_entries(self, file: IO[bytes], format_name: str, state: State) -> int:
        """Write the entries, and return their number.

        `FEED_EXPORTERS` and the `FEED_EXPORT_` settings apply as in a crawl.
        """
        urls = self._choose_sources(state)
        is_feed = format_name == "atom"
        source_of = cache(lambda url: self._declared.get(canonical_url(url)))
        with Stores(state).entries.snapshot() as entries:
            exported = (
                ExportedEntry(stored, item_of(stored), source_of(stored.source))
                for stored in entries.matching(
                    since=self.since,
                    sources=urls,
                    has_backfill=self.has_backfill,
                    newest_first=is_feed,
                )
            )
            if is_feed:
                token = Options.from_settings(self.settings).ua_token
                name = " ".join((token, *sorted(self.urls)))
                return write_atom(exported, file, name=name, author=token)
            options = feed_complete_default_values_from_settings({}, self.settings)
            exporter = load_object(self.settings.getwithbase("FEED_EXPORTERS")[format_name])(
                file,
                fields_to_export=options["fields"],
                encoding=options["encoding"],
                indent=options["indent"],
            )
            exporter.start_exporting()
            count = 0
            for entry in exported:
                exporter.export_item(entry.to_dict())
                count += 1
            exporter.finish_exporting()
            return count

    def write_sources(self, file: IO[bytes], state: State | None) -> int:
        """Write the declared sources as OPML, and return their number."""
        sources = load_sources(self.sources_file)
        if self.urls:
            declared = [source.url for source in sources]
            wanted = {match for url in self.urls for match in find_sources(url, declared)}
            sources = tuple(source for source in sources if source.url in wanted)
        if state is None:
            return write_opml(sources, file, lambda _url: None)
        with Stores(state).entries.snapshot() as entries:

            def title_of(url: str) -> str | None:
                entry = entries.newest(url)
                return item_of(entry).source_title if entry else None

            return write_opml(sources, file, title_of)

    @cached_property
    def _declared(self) -> dict[str, Source]:
        """The declared sources by canonical URL, or none without a sources file."""
        sources = load_sources(self.sources_file) if Path(self.sources_file).exists() else ()
        return {canonical_url(source.url): source for source in sources}

    def _choose_sources(self, state: State) -> tuple[str, ...]:
        """Return the URLs of the chosen sources, which may be declared and not visited yet."""
        known_urls = Stores(state).sources.urls()
        try:
            return tuple(match for url in self.urls for match in find_sources(url, known_urls))
        except UnknownSource:
            declared = {source.url: None for source in load_sources(self.sources_file)}
            urls = {**known_urls, **declared}
            return tuple(match for url in self.urls for match in find_sources(url, urls))


# ---- Entries as Atom (RFC 4287) ----

#: The maximum number of entries in a feed, because readers fetch the feed again and again.
MAX_ATOM_ENTRIES: Final = 500
#: The namespace of the ids, so that the same entry has the same id in every export.
_ID_NAMESPACE: Final = UUID("5f6a7c0e-2d1b-5c43-9a37-6d0f0c8f2b11")


def write_atom(entries: Iterable[ExportedEntry], file: IO[bytes], *, name: str, author: str) -> int:
    """Write a feed of the newest `MAX_ATOM_ENTRIES` entries; return their number.

    ``entries`` come newest first, and no more of them are read. ``name`` identifies the feed;
    ``author`` is the author of entries that name none. A feed without an entry was updated now,
    because RFC 4287 requires a time.
    """
    newest = list(islice(entries, MAX_ATOM_ENTRIES))
    feed = Element("feed", xmlns="http://www.w3.org/2005/Atom")
    _add(feed, "id", _make_id(name))
    _add(feed, "title", f"{author}: new")
    _add(feed, "updated", max(map(_first_seen, newest), default=_format_now()))
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
    _add(element, "id", _make_id(entry.stored.key))
    _add(element, "title", item.title or item.url or item.id or "without a title")
    _add(element, "updated", _first_seen(entry))
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
    _add(source, "updated", _first_seen(entry))
    _add(source, "link", rel="self", href=item.source)


def _first_seen(entry: ExportedEntry) -> str:
    return entry.item.first_seen or _format_now()


def _format_now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _add(parent: Element, tag: str, text: str = "", **attributes: str) -> Element:
    """Add an element, without the characters that XML 1.0 does not allow."""
    clean = {name: xml_text(value) for name, value in attributes.items()}
    element = SubElement(parent, tag, clean)
    element.text = xml_text(text) or None
    return element


def _make_id(name: str) -> str:
    return f"urn:uuid:{uuid5(_ID_NAMESPACE, name)}"


# ---- Sources as OPML ----

_HEAD: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    f'<opml version="2.0" xmlns:{PREFIX}="{NAMESPACE}">\n'
    "<head><title>Sources of walsh-scrapy</title></head>\n<body>\n"
)
# Tags that a list of categories would change.
_NOT_A_CATEGORY: Final = re.compile(r",|^[\s/]|[\s/]$|^$")


def write_opml(
    sources: Iterable[Source], file: IO[bytes], title_of: Callable[[str], str | None]
) -> int:
    """Write each source as an outline, and return their number.

    ``title_of`` returns the title of the feed at a URL, for sources without a name. `every` and
    `delay` are attributes in our namespace.
    """
    count = 0
    opened: tuple[str, ...] = ()
    file.write(_HEAD.encode())
    for source in sources:
        title = source.name or title_of(source.url) or source.url
        folders, outline = build_outline(source, title)
        file.writelines(f"{line}\n".encode() for line in (*_folder_tags(folders, opened), outline))
        count += 1
        opened = folders
    file.writelines(f"{line}\n".encode() for line in _folder_tags((), opened))
    file.write(b"</body>\n</opml>\n")
    return count


def build_outline(source: Source, title: str) -> tuple[tuple[str, ...], str]:
    """Return the folders of a source, and its outline.

    Tags that are not folders become categories. If a tag cannot be a category, they become folders.
    """
    tags = tuple(tag for tag in source.tags if tag not in source.folders)
    listable = not any(map(_NOT_A_CATEGORY.search, tags))
    folders = source.folders if listable else (*source.folders, *filter(str.strip, tags))
    attributes = {
        "type": "llms" if source.kind == "llms" else "rss",
        "text": title,
        "title": title,
        "xmlUrl": source.url,
        "htmlUrl": source.page,
        "category": ",".join(tags) if listable else None,
        f"{PREFIX}:every": format_duration(source.every) if source.every else None,
        f"{PREFIX}:delay": format_duration(source.delay) if source.delay else None,
    }
    parts = (f"{name}={_quote(value)}" for name, value in attributes.items() if value)
    return folders, f"<outline {' '.join(parts)}/>"


def _folder_tags(folders: tuple[str, ...], opened: tuple[str, ...]) -> Iterator[str]:
    """Yield the tags that close the open folders and open the folders of the next source."""
    pairs = enumerate(zip(folders, opened, strict=False))
    shared = next((at for at, (new, old) in pairs if new != old), min(len(folders), len(opened)))
    yield from ("</outline>" for _ in opened[shared:])
    yield from (f"<outline text={_quote(folder)}>" for folder in folders[shared:])


def _quote(text: str) -> str:
    return quoteattr(xml_text(text))
