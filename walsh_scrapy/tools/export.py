"""``scrapy export``: entries as a run exports them or as SQLite, sources as OPML (decision 18)."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, fields
from itertools import starmap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, Final
from xml.sax.saxutils import quoteattr

from scrapy.utils.conf import feed_complete_default_values_from_settings
from scrapy.utils.misc import load_object

from walsh_scrapy.items import EntryItem
from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.policy.wording import DIRECTION_MARKS
from walsh_scrapy.sources import Source, load_sources
from walsh_scrapy.state import StateError
from walsh_scrapy.state.entries import EntryFilter
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.sources.changes import UnknownSource, find_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scrapy.exporters import BaseItemExporter
    from scrapy.settings import BaseSettings

    from walsh_scrapy.state import State
    from walsh_scrapy.state.entries import StoredEntry
    from walsh_scrapy.state.sourcerecord import SourceRecord


@dataclass(frozen=True, kw_only=True)
class Export:
    """The options of a call of ``scrapy export``, and what it does with them.

    Both methods raise StateError, SourcesError, and UnknownSource for a URL that is not a source.
    """

    settings: BaseSettings
    sources_file: str
    urls: Sequence[str] = ()  #: only of these sources; empty: of all
    kind: str | None = None  #: only of sources of this kind; None: of all
    since: float | None = None  #: only entries first seen at this epoch second or later

    def write_entries(self, file: IO[bytes], format_name: str, state: State) -> int:
        """Write the entries, and return how many there were."""
        urls = self._choose_sources(state)
        choice = EntryFilter(since=self.since, kind=self.kind, sources=urls)
        with state.entries.snapshot() as entries:
            chosen = entries.matching(choice)
            if format_name == "sqlite":
                return export_sqlite(chosen, self._records(state, urls), file)
            return export_entries(chosen, file, format_name, self.settings)

    def write_sources(self, file: IO[bytes], state: State | None) -> int:
        """Write the declared sources as OPML, and return how many there were."""
        sources = load_sources(self.sources_file)
        known = dict.fromkeys(source.url for source in sources)
        wanted = {each for url in self.urls for each in find_sources(url, known)} or known.keys()
        chosen = [
            source
            for source in sources
            if source.url in wanted and self.kind in (None, source.kind)
        ]
        if state is None:
            return export_sources(chosen, file, lambda _url: None)
        with state.entries.snapshot() as entries:
            return export_sources(chosen, file, entries.newest)

    def _records(
        self, state: State, urls: Sequence[str]
    ) -> Iterator[tuple[SourceRecord, Source | None]]:
        """Yield what is known of the chosen sources, each with its declaration."""
        sources = load_sources(self.sources_file) if Path(self.sources_file).exists() else ()
        declared = {canonical_url(source.url): source for source in sources}
        for record in state.sources.all():
            if (not urls or record.url in urls) and self.kind in (None, record.kind):
                yield record, declared.get(canonical_url(record.url))

    def _choose_sources(self, state: State) -> tuple[str, ...]:
        """Return the sources that the URLs mean; a declared one may have no visit yet."""
        known = state.sources.urls()
        try:
            return tuple(each for url in self.urls for each in find_sources(url, known))
        except UnknownSource:
            known |= dict.fromkeys(source.url for source in load_sources(self.sources_file))
            return tuple(each for url in self.urls for each in find_sources(url, known))


#: The format for each ending of a file name; "opml" lists sources, the others hold entries, and
#: "sqlite" both.
FORMATS: Final = {
    ".jsonl": "jsonl",
    ".jl": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".xml": "xml",
    ".opml": "opml",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
}
_COLUMNS: Final = tuple(column.name for column in fields(EntryItem))


def export_entries(
    entries: Iterable[StoredEntry], file: IO[bytes], format_name: str, settings: BaseSettings
) -> int:
    """Write entries as a run exports them, and return how many there were.

    `FEED_EXPORTERS` and the `FEED_EXPORT_` settings apply as in a run. Raises StateError for an
    entry that cannot be read.
    """
    exporter = _exporter(file, format_name, settings)
    count = 0
    exporter.start_exporting()
    for entry in entries:
        exporter.export_item(item_of(entry))
        count += 1
    exporter.finish_exporting()
    return count


def _exporter(file: IO[bytes], format_name: str, settings: BaseSettings) -> BaseItemExporter:
    options = feed_complete_default_values_from_settings({}, settings)
    exporters = settings.getwithbase("FEED_EXPORTERS")
    exporter: BaseItemExporter = load_object(exporters[format_name])(
        file,
        fields_to_export=options["fields"],
        encoding=options["encoding"],
        indent=options["indent"],
    )
    return exporter


def item_of(entry: StoredEntry) -> EntryItem:
    """Return the item of a stored entry. Raises StateError if it cannot be read."""
    try:
        values: dict[str, Any] = json.loads(entry.item)
        return EntryItem(**{name: values[name] for name in values if name in _COLUMNS})
    except (ValueError, TypeError) as error:
        raise StateError(
            f"the entry {entry.key} in the state cannot be read ({error}); put a backup in the "
            "state's place, or remove this entry"
        ) from error


#: `title` is what readers show in place of the URL that an entry refers to.
_SCHEMA: Final = """
CREATE TABLE sources (url TEXT PRIMARY KEY, title TEXT, name TEXT, tags TEXT NOT NULL, folder TEXT,
    kind TEXT NOT NULL, fetched_at TEXT,
    outcome TEXT NOT NULL, status INTEGER, detail TEXT, failures INTEGER NOT NULL, moved_to TEXT);
CREATE TABLE entries (key TEXT PRIMARY KEY, {columns},
    FOREIGN KEY (source) REFERENCES sources (url));
CREATE INDEX entries_by_source ON entries (source);
CREATE INDEX entries_by_time ON entries (first_seen);
""".format(columns=", ".join(f"{name} TEXT" for name in _COLUMNS))


def export_sqlite(
    entries: Iterable[StoredEntry],
    sources: Iterable[tuple[SourceRecord, Source | None]],
    file: IO[bytes],
) -> int:
    """Write a database with the tables ``entries`` and ``sources``; return how many entries.

    ``sources`` are records with their declarations, None for a source that has none any more.
    Its columns are the fields of an export, with lists as JSON, and times as RFC 3339 in UTC. The
    database is made in a temporary folder first. Raises StateError for an entry that cannot be
    read, CommandError if there is no room.
    """
    with TemporaryDirectory() as folder:
        place = Path(folder) / "export.sqlite"
        try:
            with closing(sqlite3.connect(place)) as database, database:
                database.executescript(_SCHEMA)
                database.executemany(
                    f"INSERT INTO sources VALUES ({', '.join('?' * 12)})",  # noqa: S608 - only marks
                    starmap(_source, sources),
                )
                marks = ", ".join("?" * (len(_COLUMNS) + 1))
                insert = f"INSERT INTO entries VALUES ({marks})"  # noqa: S608 - only marks
                count = database.executemany(insert, _rows(entries)).rowcount
                database.execute(
                    "UPDATE sources SET title = (SELECT source_title FROM entries "
                    "WHERE entries.source = sources.url ORDER BY first_seen DESC LIMIT 1)"
                )
        except sqlite3.Error as error:
            raise CommandError(f"the database cannot be written in {folder}: {error}") from error
        with place.open("rb") as made:
            shutil.copyfileobj(made, file)
    return max(count, 0)


def _rows(entries: Iterable[StoredEntry]) -> Iterator[tuple[object, ...]]:
    for entry in entries:
        values = item_of(entry).to_dict()
        yield (entry.key, *(_flatten(values[name]) for name in _COLUMNS))


def _flatten(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def _source(record: SourceRecord, declared: Source | None) -> tuple[object, ...]:
    source = declared or Source(record.url)
    return (
        *(
            record.url,
            None,
            source.name,
            _flatten([*source.tags]),
            "/".join(source.folders) or None,
        ),
        *(record.kind, rfc3339(record.fetched_at), record.outcome),
        *(record.status, record.detail or None, record.failures, record.moved_to),
    )


_HEAD: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<opml version="2.0">\n'
    "<head><title>Sources of walsh-scrapy</title></head>\n<body>\n"
)
# Characters that XML 1.0 does not allow, and marks that show a name in another order.
_ILLEGAL: Final = re.compile(
    f"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[{DIRECTION_MARKS}]"
)
# Tags that would be read back as other tags from a list of categories.
_NO_CATEGORY: Final = re.compile(r",|^[\s/]|[\s/]$|^$")


def export_sources(
    sources: Iterable[Source], file: IO[bytes], newest: Callable[[str], StoredEntry | None]
) -> int:
    """Write each source as an outline, and return how many there were.

    ``newest`` returns the newest entry of a source, by its URL. A source without a name is titled
    after the feed of that entry, or else by its URL. OPML has no attribute for `every`.
    """
    count = 0
    opened: tuple[str, ...] = ()
    file.write(_HEAD.encode())
    for source in sources:
        title = source.name or _title_of(newest(source.url)) or source.url
        folders, outline = _outline(source, title)
        file.writelines(f"{line}\n".encode() for line in (*_folder_tags(folders, opened), outline))
        count, opened = count + 1, folders
    file.writelines(f"{line}\n".encode() for line in _folder_tags((), opened))
    file.write(b"</body>\n</opml>\n")
    return count


def _outline(source: Source, title: str) -> tuple[tuple[str, ...], str]:
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
    return quoteattr(_ILLEGAL.sub("", text))


def _title_of(seen: StoredEntry | None) -> str | None:
    try:
        title = json.loads(seen.item)["source_title"] if seen else None
    except (ValueError, KeyError, TypeError):
        return None
    return title if isinstance(title, str) else None
