"""The sync: brings the table `declared` up to date with a sources file.

    file unchanged (by its time and size, or else its SHA-256) -> the file is not read
    file changed -> read once; changes are written, sources that are missing in it are deleted

A file with an error is refused, and the table stays as it is. Transactions are small, so that no
crawl waits for a long sync. If a sync is interrupted, the next run repeats it. A file that no run
has read for 90 days is deleted from the table, a few sources at a time.
"""

from __future__ import annotations

import json
import logging
import os
import time
from functools import partial
from hashlib import file_digest
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, delete, exists, func, not_, select, update

from walsh_scrapy.feeds.sources.loading import (
    Repetitions,
    log_warnings,
    open_sources,
    read_declarations,
)
from walsh_scrapy.feeds.sources.source import (
    Source,
    declaration,
    encode_part_names,
    part_names,
    part_number,
)
from walsh_scrapy.feeds.stores.sourcestore import SOURCE_COLUMNS, repeat_facts, source_of
from walsh_scrapy.policy.pacing import PaceBy
from walsh_scrapy.policy.urls import host_of, url_key
from walsh_scrapy.policy.wording import count_of, storable
from walsh_scrapy.state.evidence import hash_of, keep_copy
from walsh_scrapy.state.records import in_batches, insert_if_new, upsert
from walsh_scrapy.state.retention import MAX_ROWS_PER_DELETE
from walsh_scrapy.state.tables import choices, copies, declared, files, sources

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from os import stat_result

    from sqlalchemy import Connection, Row

    from walsh_scrapy.state.database import Database

logger = logging.getLogger(__name__)

#: Rows of one transaction, during which nobody else can write to SQLite.
MAX_ROWS_PER_TRANSACTION: Final = 5000
#: Seconds after which a file that no run has read is forgotten.
KEEP_SECONDS: Final = 90 * 86_400.0
#: Seconds after which the state notes again that a file is read, and that its copy is needed.
_TOUCH_SECONDS: Final = 86_400.0
#: Seconds between two progress messages of a long sync.
_PROGRESS_SECONDS: Final = 5.0
#: Nanoseconds. A file that was written less long ago may change again without another time.
_MIN_FILE_AGE_NS: Final = 2_000_000_000
_C: Final = declared.c
_S: Final = sources.c
#: Sources that moved permanently, and that no file declares at their old URL.
_MOVED_SQL: Final = select(_S.url_key, _S.moved_to).where(
    _S.move_settled, _S.move_failing_since.is_(None), not_(exists().where(_C.url_key == _S.url_key))
)
_PACE_BY_SQL: Final = select(choices.c.value).where(choices.c.name == "pace_by")
_ANY_SOURCE_SQL: Final = select(_S.url_key).limit(1)


class Changes(NamedTuple):
    """The numbers of new, changed and removed sources of a sync."""

    new: int
    changed: int
    removed: int


class SyncedFile(NamedTuple):
    """A sources file as the state has it."""

    id: int
    delays: Mapping[str, float]  #: the longest delay of each declared host, in seconds
    copy: str  #: the copy of its declaration, by SHA-256
    changes: Changes | None  #: None if the file has not changed
    warnings: tuple[str, ...] = ()  #: about its content


class Sync:
    """Brings the sources of one file up to date. Methods raise SourcesError.

    ``report_progress`` gets a message every few seconds of a long sync.
    """

    def __init__(
        self,
        database: Database,
        path: str | Path,
        now: float,
        report_progress: Callable[[str], None] = logger.info,
    ) -> None:
        self._database = database
        self._now = now
        self._report_progress = report_progress
        self._file = Path(path)
        self._path = storable(str(self._file.absolute()))
        self._is_this_file = files.c.path == self._path
        self._file_id = 0  # 0 until sources of the file are written
        self._is_first = False  # whether the state had no source of the file before
        self._pacing_unit: Callable[[str], str] = host_of
        self._next_report_at = time.monotonic() + _PROGRESS_SECONDS

    def run(self) -> SyncedFile:
        """Write what has changed in the file. Log the warnings about it if it has changed."""
        with open_sources(self._file) as opened:
            stat = os.fstat(opened.fileno())
        pace_by = PaceBy(self._database.scalar(_PACE_BY_SQL) or PaceBy.HOST)
        self._pacing_unit = pace_by.unit
        row = self._row()
        changes: Changes | None = None
        if row is not None and self._needs_touch(row):
            # First of all, so that no other process forgets the file while this one uses it.
            self._update(read_at=self._now)
            row = self._row()
        version = stat.st_mtime_ns, stat.st_size, pace_by
        if row is None or not row.sha256 or (row.mtime_ns, row.size, row.pace_by) != version:
            row, changes = self._sync_changed(row, stat, pace_by)
        warnings = tuple(json.loads(row.warnings))
        if changes is not None:
            log_warnings(self._file, warnings)
        return SyncedFile(row.id, json.loads(row.delays), row.copy, changes, warnings)

    def file_id(self) -> int:
        """Return the number of the file in the state; 0 if it was never read."""
        row = self._row()
        return row.id if row else 0

    def is_current(self) -> bool:
        """Return True if the state has the sources of the file as it is now; write nothing."""
        row = self._row()
        return row is not None and row.sha256 == self._digest()

    def _sync_changed(
        self, old_row: Row[Any] | None, stat: stat_result, pace_by: str
    ) -> tuple[Row[Any], Changes | None]:
        """Bring the row of the file up to date, and its sources, if its content has changed."""
        digest = self._digest()
        changes: Changes | None = None
        is_fresh = time.time_ns() - stat.st_mtime_ns < _MIN_FILE_AGE_NS
        values: dict[str, object] = {
            "sha256": digest,
            "mtime_ns": 0 if is_fresh else stat.st_mtime_ns,
            "size": stat.st_size,
            "pace_by": pace_by,
        }
        if old_row is None or (old_row.sha256, old_row.pace_by) != (digest, pace_by):
            is_edit = old_row is not None and old_row.pace_by == pace_by
            changes, warnings = self._write_sources(rewrite=not is_edit)
            copies_of_file = DeclarationCopies(self._database, self._file_id, self._now)
            values["warnings"] = json.dumps(warnings)
            values["delays"] = json.dumps(self._delays())
            values["copy"] = copies_of_file.keep(old_row.copy if old_row else "")
        self._update(**values)
        row = self._row()
        if row is None:
            raise RuntimeError(f"{self._path} was forgotten while it was read")
        return row, changes

    def _digest(self) -> str:
        with open_sources(self._file) as opened:
            return file_digest(opened, "sha256").hexdigest()

    def _write_sources(self, *, rewrite: bool) -> tuple[Changes, list[str]]:
        """Write the sources of the file, and delete stored sources that the file no longer has.

        ``rewrite`` also writes unchanged sources. Return the changes and the warnings.
        """
        warnings: list[str] = []
        keys: set[int] = set()
        new: set[int] = set()
        changed: set[int] = set()
        repetitions = Repetitions()
        declared_sources = read_declarations(self._file, warnings)
        while batch := list(islice(declared_sources, MAX_ROWS_PER_TRANSACTION)):
            self._mark_incomplete()
            by_key: dict[int, Source] = {}
            for placed in batch:
                key = url_key(placed.source.url)
                first = by_key.get(key) or (self._read_stored([key])[key] if key in keys else None)
                by_key[key] = repetitions.merge(first, placed) if first else placed.source
            stored = {} if self._is_first else self._read_stored(by_key)
            to_write = {
                key: source
                for key, source in by_key.items()
                if rewrite or stored.get(key) != source
            }
            if to_write:
                self._database.write(partial(self._write_batch, to_write))
            if not self._is_first:  # else all are new
                new.update(key for key in to_write if key not in stored)
                changed.update(
                    key for key, source in to_write.items() if stored.get(key, source) != source
                )
            keys.update(by_key)
            self._report(len(keys))
        removed = [key for key in self._keys() if key not in keys]
        for removed_batch in in_batches(removed):
            self._database.change(
                delete(declared).where(_C.file == self._file_id, _C.url_key.in_(removed_batch))
            )
        if new or self._is_first:
            self._follow_moves()
        counts = len(keys if self._is_first else new), len(changed - new), len(removed)
        repetitions.warn(warnings)
        return Changes(*counts), warnings

    def _mark_incomplete(self) -> None:
        """Mark the file as incomplete, so that the next run repeats a sync that did not end."""
        if self._file_id:
            return

        def write(connection: Connection) -> tuple[int, bool]:
            insert_if_new(connection, files, {"path": self._path, "read_at": self._now})
            mark = update(files).where(self._is_this_file).values(sha256="").returning(files.c.id)
            number = connection.execute(mark).scalar_one()
            any_source = select(_C.url_key).where(_C.file == number).limit(1)
            return number, connection.scalar(any_source) is None

        self._file_id, self._is_first = self._database.write(write)

    def _write_batch(self, batch: Mapping[int, Source], connection: Connection) -> None:
        """Write some sources; rows in `sources` get the spelling of the URL in the file."""
        has_visits = connection.scalar(_ANY_SOURCE_SQL) is not None
        moved = select(_S.url_key, _S.moved_to).where(_S.url_key.in_(batch), _S.move_settled)
        moved_to = (
            {row.url_key: row.moved_to for row in connection.execute(moved)} if has_visits else {}
        )
        rows = [
            row_of_source(key, source)
            | {"file": self._file_id, "host": self._pacing_unit(moved_to.get(key) or source.url)}
            | {"added_at": self._now}
            for key, source in sorted(batch.items())
        ]
        upsert(connection, declared, rows, kept=("added_at",))
        if has_visits:
            is_in_batch = _C.file == self._file_id, _C.url_key.in_(batch)
            respelled = update(sources).where(
                *is_in_batch, _C.url_key == _S.url_key, _C.url != _S.url
            )
            connection.execute(respelled.values(url=_C.url))
            repeat_facts(connection, *is_in_batch)

    def _follow_moves(self) -> None:
        """Give the row of a moved source the new URL, if the operator wrote that into the file.

        No file declares the old URL any more, so its history belongs to the new one.
        """
        for key, moved_to in self._database.all(_MOVED_SQL):
            new_key = url_key(moved_to)
            declared_there = select(_C.url).where(_C.file == self._file_id, _C.url_key == new_key)
            has_row = exists().where(_S.url_key == new_key)
            for (url,) in self._database.all(declared_there.where(not_(has_row))):
                self._database.write(partial(_move_row, key, new_key, url))

    def _read_stored(self, keys: Collection[int]) -> dict[int, Source]:
        """Return the stored sources of the file with these keys, by key."""
        stored = select(_C.url_key, *SOURCE_COLUMNS).where(
            _C.file == self._file_id, _C.url_key.in_(keys)
        )
        return {key: source_of(*row) for key, *row in self._database.all(stored)}

    def _keys(self) -> Iterator[int]:
        """Yield the keys of all stored sources of the file."""
        with self._database.snapshot() as connection:
            yield from connection.scalars(select(_C.url_key).where(_C.file == self._file_id))

    def _delays(self) -> dict[str, float]:
        """Return the longest delay of each declared host, in seconds."""
        rows = select(_C.url, _C.delay).where(_C.file == self._file_id, _C.delay.is_not(None))
        longest: dict[str, float] = {}
        for url, delay in self._database.all(rows):
            longest[host_of(url)] = max(delay, longest.get(host_of(url), 0.0))
        return longest

    def _report(self, done: int) -> None:
        if time.monotonic() >= self._next_report_at:
            self._report_progress(f"{self._file}: {count_of(done, 'source')} read so far")
            self._next_report_at = time.monotonic() + _PROGRESS_SECONDS

    def _needs_touch(self, row: Row[Any]) -> bool:
        """Return True if the file was read long ago, or another file was read since."""
        newest = select(files.c.id).order_by(files.c.read_at.desc(), files.c.id.desc()).limit(1)
        is_newest = bool(self._database.scalar(newest) == row.id)
        return not is_newest or row.read_at < self._now - _TOUCH_SECONDS

    def _row(self) -> Row[Any] | None:
        return self._database.first(select(files).where(self._is_this_file))

    def _update(self, **values: object) -> None:
        self._database.change(update(files).where(self._is_this_file).values(values))


def row_of_source(key: int, source: Source) -> dict[str, Any]:
    """Return the columns of `declared` that come from the sources file."""
    details = [source.name, source.tags, source.page, source.folders]
    return {
        "url_key": key,
        "url": source.url,
        "kind": source.kind,
        "every": source.every.total_seconds() if source.every else 0.0,
        "delay": source.delay.total_seconds() if source.delay else None,
        "details": json.dumps(details, ensure_ascii=False) if any(details) else "",
    }


def _move_row(key: int, new_key: int, url: str, connection: Connection) -> None:
    """Give the row of a source another key and URL."""
    moved = update(sources).where(_S.url_key == key).values(url_key=new_key, url=url)
    connection.execute(moved)
    repeat_facts(connection, _C.url_key == new_key)


class OldFiles:
    """The files that no run has read for 90 days, and their sources."""

    def __init__(self, now: float) -> None:
        self._is_old = files.c.read_at < now - KEEP_SECONDS

    def delete_in_blocks(self, database: Database) -> Iterator[int]:
        """Delete the rows, and yield the number of rows after each transaction."""
        for (number,) in database.all(select(files.c.id).where(self._is_old)):
            delete_some = partial(self._delete_some, number)
            while deleted := database.write(delete_some):
                yield deleted

    def _delete_some(self, number: int, connection: Connection) -> int:
        """Delete some sources of a file, and after the last one its row; return how many rows.

        Delete nothing if a run has read the file since. Its row is locked and marked as incomplete,
        so that the next run reads the file again. Sources whose visit is being written now stay for
        a later run.
        """
        is_old_file = and_(files.c.id == number, self._is_old)
        all_keys = select(_C.url_key).where(_C.file == number)
        some_keys = all_keys.limit(MAX_ROWS_PER_DELETE).with_for_update(skip_locked=True)
        if not connection.execute(update(files).where(is_old_file).values(sha256="")).rowcount:
            return 0
        if keys := connection.scalars(some_keys).all():
            has_key = and_(_C.file == number, _C.url_key.in_(keys))
            return connection.execute(delete(declared).where(has_key)).rowcount
        is_empty = and_(is_old_file, not_(all_keys.exists()))
        return connection.execute(delete(files).where(is_empty)).rowcount


#: Sources of one copy of a declaration: about as many, and twice as many at most.
_MAX_SOURCES_PER_COPY: Final = 4096


class DeclarationCopies:
    """What a sources file declared, kept as copies so that the request log can be checked.

    The sources of a large file are divided by their keys into parts of some thousand sources, each
    a copy of its own, and one more copy lists the parts. So an edit of one source makes one new
    part. ``file`` is the number of the file in the state.
    """

    def __init__(self, database: Database, file: int, now: float) -> None:
        self._database = database
        self._file = file
        self._now = now

    def keep(self, previous: str = "") -> str:
        """Keep what the file declares now, and return the name of the copy.

        ``previous`` is the name of the last copy; its parts are not written again.
        """
        previous_parts = set(self._parts(previous))
        count = select(func.count()).select_from(declared).where(_C.file == self._file)
        size = 1 << max(0, (self._database.scalar(count) - 1) // _MAX_SOURCES_PER_COPY).bit_length()
        names: dict[int, str] = {}
        rows = select(_C.url_key, _C.url, _C.kind).where(_C.file == self._file)
        # "+ 0" keeps the index out: to look up each row of a large table takes far longer.
        with self._database.snapshot() as connection:
            ordered = connection.execute(rows.order_by(_C.url_key + 0))
            for number, part in groupby(ordered, lambda row: part_number(row[0], size)):
                names[number] = self._keep_document(
                    declaration(Source(*row[1:]) for row in part), previous_parts
                )
        parts = [
            names.get(number) or self._keep_document(b"", previous_parts) for number in range(size)
        ]
        return parts[0] if size == 1 else self._keep_document(encode_part_names(parts))

    def touch(self, name: str) -> str:
        """Note that a copy is still needed, and return its name; make it again if it is gone."""
        names = [name, *self._parts(name)]
        is_old = copies.c.last_used_at < self._now - _TOUCH_SECONDS
        old_copies = update(copies).where(copies.c.sha256.in_(names), is_old)
        self._database.change(old_copies.values(last_used_at=self._now))
        present = select(func.count()).select_from(copies).where(copies.c.sha256.in_(names))
        is_complete = self._database.scalar(present) == len(set(names))
        return name if is_complete else self.keep()

    def _parts(self, name: str) -> list[str]:
        """Return the names of the parts of a copy; its own name if it is not divided."""
        body = self._database.scalar(select(copies.c.body).where(copies.c.sha256 == name))
        return part_names(body or b"") or [name]

    def _keep_document(self, body: bytes, present: Collection[str] = ()) -> str:
        """Keep a document, unless its name is one of the ``present`` ones; return its name."""
        if (name := hash_of(body)) in present:
            return name
        return self._database.write(
            lambda connection: keep_copy(connection, "sources", body, now=self._now, last=None)
        )
