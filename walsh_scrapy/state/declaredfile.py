"""What the state has of one sources file: its row in `files`, and those of its sources.

A file that no run has read for 90 days is forgotten, a few of its sources at a time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, delete, exists, not_, select, update

from walsh_scrapy.policy.urls import host_of, url_key
from walsh_scrapy.policy.wording import storable
from walsh_scrapy.state.declared import SOURCE, facts_of, row_of_source, source_of
from walsh_scrapy.state.retention import ROWS_AT_ONCE
from walsh_scrapy.state.rows import in_parts, insert_if_new, record_of, upsert
from walsh_scrapy.state.sourcerecord import COLUMNS, SourceRecord
from walsh_scrapy.state.tables import declared, files, sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from os import stat_result
    from pathlib import Path

    from sqlalchemy import Connection, Select
    from sqlalchemy.sql.dml import UpdateBase

    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.database import Database
    from walsh_scrapy.state.sources import SourceStore

#: Rows of one transaction, during which nobody else can write to SQLite.
WRITTEN_AT_ONCE: Final = 5000
#: Seconds for which a file is kept that no run reads.
KEEP_SECONDS: Final = 90 * 86_400.0
#: Seconds after which it is noted again that a file is read.
_NOTED: Final = 86_400.0
#: From the position of a source to that of a new one behind it.
_STEP: Final = 2.0**-20
_C: Final = declared.c


#: What moved for good, and is declared no more.
_MOVED: Final = select(sources.c.url, sources.c.moved_to).where(
    sources.c.move_settled,
    sources.c.move_failing_since.is_(None),
    not_(exists().where(_C.url_key == sources.c.url_key)),
)


class NewSource(NamedTuple):
    """A source as the file declares it."""

    key: int  #: `url_key` of its URL
    source: Source
    position: float | None = None  #: among the sources of the file; None until it is written


class FileRow(NamedTuple):
    """A row of ``files``."""

    id: int
    sha256: str
    mtime_ns: int
    size: int
    pace_by: str
    warnings: str
    pauses: str
    copy: str
    read_at: float

    def is_of(self, stat: stat_result) -> bool:
        """Return True if the file surely has not changed."""
        return bool(self.sha256) and (self.mtime_ns, self.size) == (stat.st_mtime_ns, stat.st_size)


_ROW: Final = select(*(files.c[name] for name in FileRow._fields))
_ANY: Final = select(sources.c.url).limit(1)


class DeclaredFile:
    """The rows of one file; ``records`` are those of the sources that were visited."""

    def __init__(self, database: Database, records: SourceStore, path: Path, now: float) -> None:
        self._database = database
        self._records = records
        self._path = storable(str(path.absolute()))
        self._is_this = files.c.path == self._path
        self._now = now
        self._number: int | None = None  # once its sources are being written
        self.is_first = False  #: whether the state had no source of it then
        self._last = 0.0  # the position of the last source that was written

    def row(self) -> FileRow | None:
        """Return its row, None if it was never read, and note that it is read now.

        That comes first: a file is not forgotten by another process once it was trusted.
        """
        found = self._read_row()
        if found is None or found.read_at >= self._now - _NOTED:
            return found
        self._update(read_at=self._now)
        return self._read_row()

    def begin(self) -> int:
        """Note that what it declares is being written, and return its number."""
        if self._number is None:
            self._number, self.is_first = self._database.write(self._begin)
        return self._number

    def _begin(self, connection: Connection) -> tuple[int, bool]:
        insert_if_new(connection, files, {"path": self._path, "read_at": self._now})
        begun = update(files).where(self._is_this).values(sha256="").returning(files.c.id)
        number = connection.execute(begun).scalar_one()
        any_source = select(_C.url_key).where(_C.file == number).limit(1)
        return number, connection.scalar(any_source) is None

    def complete(self, **values: object) -> FileRow:
        """Note that all was written, with these values of its row, which is returned."""
        self._update(**values)
        row = self._read_row()
        if row is None:
            raise RuntimeError(f"{self._path} was forgotten while it was read")
        return row

    def write(
        self, news: Sequence[NewSource], unit: Callable[[str], str], *, anew: bool
    ) -> tuple[list[int], list[int]]:
        """Write the next sources; return the keys of new ones, and of others that changed.

        What is written as it is stays so, unless all is written ``anew``. ``unit`` returns the name
        by which a URL is paced. Records whose URL has a new spelling in the file are renamed.
        """
        number = self.begin()
        known = self._known_sources([each.key for each in news])
        others = [
            each
            for each in (self._placed(new, known) for new in news)
            if anew or known.get(each.key) != (each.source, each.position)
        ]

        def write(connection: Connection) -> dict[int, SourceRecord]:
            records = _records(connection, {each.key: each.source.url for each in others})
            rows = [_row_of(number, each, records.get(each.key), unit) for each in others]
            upsert(connection, declared, rows)
            return records

        records = self._database.write(write) if others else {}
        urls = ((records[each.key].url, each.source.url) for each in others if each.key in records)
        if spellings := {old: url for old, url in urls if old != url}:
            self._records.rename(spellings)
        new = [each.key for each in others if each.key not in known]
        changed = [
            each.key for each in others if each.key in known and known[each.key][0] != each.source
        ]
        return new, changed

    def _placed(self, new: NewSource, known: Mapping[int, tuple[Source, float]]) -> NewSource:
        """Give a source its position: the known one if that is behind the last, so that few change.

        Steps are small, so that what follows can keep its own.
        """
        if new.position is not None:
            return new
        _, position = known.get(new.key, (None, 0.0))
        if position <= self._last:
            position = self._last + (1.0 if self.is_first else _STEP)
        self._last = position
        return new._replace(position=position)

    def remove(self, keys: Sequence[int]) -> None:
        """Remove the sources with these keys."""
        number = self.begin()
        for some in in_parts(keys):
            self._write(delete(declared).where(_C.file == number, _C.url_key.in_(some)))

    def follow_moves(self) -> None:
        """Let the record of a source that moved follow to where the file declares it now.

        No file declares it where it was, so the operator has written the new address.
        """
        for url, to in self._all(_MOVED):
            key = url_key(to)
            here = select(_C.url).where(_C.file == self._number, _C.url_key == key)
            is_known = select(sources.c.url).where(sources.c.url_key == key)
            for (now,) in self._all(here.where(not_(is_known.exists()))):
                self._records.rename({url: now})

    def find(self, key: int) -> NewSource:
        """Return a source that was written."""
        row = select(_C.position, *SOURCE).where(_C.file == self._number, _C.url_key == key)
        (position, *values), *_ = self._all(row)
        return NewSource(key, source_of(*values), position)

    def keys(self) -> Iterator[int]:
        """Yield the keys of all sources."""
        rows = select(_C.url_key).where(_C.file == self._number)
        with self._database.snapshot() as connection:
            yield from connection.scalars(rows)

    def pauses(self) -> dict[str, float]:
        """Return the longest pause of each declared host, in seconds."""
        rows = select(_C.url, _C.pause).where(_C.file == self._number, _C.pause.is_not(None))
        longest: dict[str, float] = {}
        for url, pause in self._all(rows):
            longest[host_of(url)] = max(pause, longest.get(host_of(url), 0.0))
        return longest

    def _read_row(self) -> FileRow | None:
        return next((FileRow(*row) for row in self._all(_ROW.where(self._is_this))), None)

    def _update(self, **values: object) -> None:
        self._write(update(files).where(self._is_this).values(values))

    def _write(self, statement: UpdateBase) -> None:
        self._database.write(lambda connection: connection.execute(statement))

    def _all(self, wanted: Select[Any]) -> Sequence[Sequence[Any]]:
        return self._database.read(lambda connection: connection.execute(wanted).all())

    def _known_sources(self, keys: Sequence[int]) -> dict[int, tuple[Source, float]]:
        """Return by their keys those of the sources that were written before, with positions."""
        if self.is_first:
            return {}
        before = select(_C.url_key, _C.position, *SOURCE)
        mine = before.where(_C.file == self._number, _C.url_key.in_(keys))
        return {key: (source_of(*row), at) for key, at, *row in self._all(mine)}


class OldFiles:
    """The files that no run has read for 90 days, and what they declare."""

    def __init__(self, now: float) -> None:
        self._is_old = files.c.read_at < now - KEEP_SECONDS

    def blocks(self, database: Database) -> Iterator[int]:
        """Delete them, and yield after each transaction how many rows these were."""
        old = select(files.c.id).where(self._is_old)
        for number in database.read(lambda connection: connection.scalars(old).all()):
            of_file = partial(self._delete, number)
            while deleted := database.write(of_file):
                yield deleted

    def _delete(self, number: int, connection: Connection) -> int:
        """Delete some sources of a file, or at last its row, unless it was read meanwhile.

        Its row is locked, so that who reads it next finds that it is not whole. Sources whose visit
        is being written are left to a later run.
        """
        is_this = and_(files.c.id == number, self._is_old)
        all_of_it = select(_C.url_key).where(_C.file == number)
        some = all_of_it.limit(ROWS_AT_ONCE).with_for_update(skip_locked=True)
        if not connection.execute(update(files).where(is_this).values(sha256="")).rowcount:
            return 0
        if keys := connection.scalars(some).all():
            mine = and_(_C.file == number, _C.url_key.in_(keys))
            return connection.execute(delete(declared).where(mine)).rowcount
        is_empty = and_(is_this, not_(all_of_it.exists()))
        return connection.execute(delete(files).where(is_empty)).rowcount


def _row_of(
    number: int, new: NewSource, record: SourceRecord | None, unit: Callable[[str], str]
) -> dict[str, Any]:
    known = record.with_url(new.source.url) if record else None
    return {
        "file": number,
        "position": new.position,
        **row_of_source(new.key, new.source),
        **facts_of(known, new.source.url, unit),
    }


def _records(connection: Connection, urls: Mapping[int, str]) -> dict[int, SourceRecord]:
    """Return the records of sources by their keys: of the URL, or of the spelling visited last.

    They are locked, so that no visit of them ends before what follows from them is written.
    """
    wanted = select(sources.c.url_key, *COLUMNS).where(sources.c.url_key.in_(list(urls)))
    found: dict[int, SourceRecord] = {}

    def rank(record: SourceRecord) -> tuple[bool, float]:
        return record.url in exact, record.fetched_at or 0.0

    if connection.scalar(_ANY) is None:  # in the very first sync
        return found
    exact = frozenset(urls.values())
    locked = wanted.order_by(sources.c.url).with_for_update(read=True)
    for key, *values in connection.execute(locked):
        record = record_of(SourceRecord, values)
        if key not in found or rank(found[key]) < rank(record):
            found[key] = record
    return found
