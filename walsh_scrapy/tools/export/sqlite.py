"""Entries and sources as a database with two flat tables, to browse and to query."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from itertools import starmap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Final

from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.sources import Source
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.export.entries import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from walsh_scrapy.state.sourcerecord import SourceRecord
    from walsh_scrapy.tools.export.entries import ExportedEntry

#: `title` is what readers show in place of the URL that an entry refers to. `backfill` is 0 or 1.
_SCHEMA: Final = """
CREATE TABLE sources (url TEXT PRIMARY KEY, title TEXT, name TEXT, tags TEXT NOT NULL, folder TEXT,
    kind TEXT NOT NULL, fetched_at TEXT,
    outcome TEXT NOT NULL, status INTEGER, detail TEXT, failures INTEGER NOT NULL, moved_to TEXT);
CREATE TABLE entries (key TEXT PRIMARY KEY, {columns},
    FOREIGN KEY (source) REFERENCES sources (url));
CREATE INDEX entries_by_source ON entries (source);
CREATE INDEX entries_by_time ON entries (first_seen);
""".format(
    columns=", ".join(f"{name} {'INTEGER' if name == 'backfill' else 'TEXT'}" for name in COLUMNS)
)


def export_sqlite(
    entries: Iterable[ExportedEntry],
    sources: Iterable[tuple[SourceRecord, Source | None]],
    file: IO[bytes],
) -> int:
    """Write a database with the tables ``entries`` and ``sources``; return how many entries.

    ``sources`` are records with their declarations, None for a source that has none any more; they
    are read after the entries.
    Its columns are the fields of an export, with lists as JSON, and times as RFC 3339 in UTC. The
    database is made in a temporary folder first. Raises StateError for an entry that cannot be
    read, CommandError if there is no room.
    """
    with TemporaryDirectory() as folder:
        place = Path(folder) / "export.sqlite"
        try:
            with closing(sqlite3.connect(place)) as database, database:
                database.executescript(_SCHEMA)
                marks = ", ".join("?" * (len(COLUMNS) + 1))
                insert = f"INSERT INTO entries VALUES ({marks})"  # noqa: S608 - only marks
                count = database.executemany(insert, _rows(entries)).rowcount
                database.executemany(
                    f"INSERT INTO sources VALUES ({', '.join('?' * 12)})",  # noqa: S608 - only marks
                    starmap(_source, sources),
                )
                database.execute(
                    "UPDATE sources SET title = (SELECT source_title FROM entries "
                    "WHERE entries.source = sources.url ORDER BY first_seen DESC LIMIT 1)"
                )
        except sqlite3.Error as error:
            raise CommandError(f"the database cannot be written in {folder}: {error}") from error
        with place.open("rb") as made:
            shutil.copyfileobj(made, file)
    return max(count, 0)


def _rows(entries: Iterable[ExportedEntry]) -> Iterator[tuple[object, ...]]:
    for entry in entries:
        yield (entry.key, *map(_flatten, entry.to_dict().values()))


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
