"""``walsh export``: the entries of the state database as a file, or the sources as OPML."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from xml.sax.saxutils import quoteattr

from scrapy.utils.conf import feed_complete_default_values_from_settings
from scrapy.utils.misc import load_object

from walsh_scrapy.feeds.items import EntryItem
from walsh_scrapy.feeds.sources.loading import load_sources
from walsh_scrapy.feeds.sources.opml import NAMESPACE, PREFIX
from walsh_scrapy.feeds.stores import Stores
from walsh_scrapy.policy.durations import format_duration, rfc3339
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.policy.wording import count_of, xml_text
from walsh_scrapy.state import StateError
from walsh_scrapy.tools.call import Output, WrongCall
from walsh_scrapy.tools.sourcesfile import UnknownSource, find_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scrapy.settings import BaseSettings

    from walsh_scrapy.feeds.sources.source import Source
    from walsh_scrapy.feeds.stores.entrystore import StoredEntry
    from walsh_scrapy.state import State
    from walsh_scrapy.tools.call import Call

#: The format for each file extension. "opml" has the sources, and the others have the entries.
FORMATS: Final = {
    **{f".{name}": name for name in ("jsonl", "json", "csv", "opml")},
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


def build_row(entry: StoredEntry, source: Source | None) -> dict[str, Any]:
    """Return the columns of an entry: the fields of its item, and six more.

    ``source`` is the source as it is declared now. Raises StateError if the entry is damaged.
    """
    item = item_of(entry)
    previous_title = json.loads(entry.former_titles or "[null]")[0] if item.changed_at else None
    return item.to_dict() | {
        "source_name": source.name if source else None,
        "source_tags": list(source.tags) if source else [],
        "source_folder": "/".join(source.folders) or None if source else None,
        "backfill": entry.is_backfill,
        "also_in": list(entry.also_in),
        "previous_title": previous_title,
    }


def item_of(entry: StoredEntry) -> EntryItem:
    """Return the item of a stored entry. Raises StateError if the entry is damaged.

    The item gets the present URL of its source, because the source may have moved since then.
    """
    try:
        stored: dict[str, Any] = json.loads(entry.item)
        values = stored | {
            "source": entry.source,
            "key": entry.key,
            "changed_at": rfc3339(entry.changed_at),
        }
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
        source_of = cache(lambda url: self._declared.get(canonical_url(url)))
        with Stores(state).entries.snapshot() as entries:
            options = feed_complete_default_values_from_settings({}, self.settings)
            exporter = load_object(self.settings.getwithbase("FEED_EXPORTERS")[format_name])(
                file,
                fields_to_export=options["fields"],
                encoding=options["encoding"],
                indent=options["indent"],
            )
            exporter.start_exporting()
            count = 0
            for entry in entries.matching(
                since=self.since, sources=urls, has_backfill=self.has_backfill
            ):
                exporter.export_item(build_row(entry, source_of(entry.source)))
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
