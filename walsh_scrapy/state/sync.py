"""The sync: the state learns what a sources file declares, when the file has changed (decision 40).

    file unchanged (time and size, else SHA-256) -> nothing is read
    file of blocks -> the new blocks are read; what is known of the others stays
    any other file, and one that has changed much -> all of it is read

A file that is wrong is refused, and what was known of it stays. All is written in small
transactions. A sync that breaks off is done again by the next one.
"""

from __future__ import annotations

import json
import logging
import time
from array import array
from bisect import bisect_left
from functools import cached_property
from hashlib import file_digest
from itertools import compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import delete, select, update

from walsh_scrapy.policy.urls import host_of, url_key
from walsh_scrapy.policy.wording import count_of, storable
from walsh_scrapy.sources.blocks import hash_of, split
from walsh_scrapy.sources.loading import merged, read_sources, repetitions, warn
from walsh_scrapy.state.declaration import DeclarationCopies
from walsh_scrapy.state.declared import SOURCE, facts_of, paced_by, row_of_source, source_of
from walsh_scrapy.state.rows import insert_if_new, record_of, upsert_each
from walsh_scrapy.state.sourcerecord import COLUMNS, SourceRecord
from walsh_scrapy.state.tables import declared, files, sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from os import stat_result

    from walsh_scrapy.sources import Source
    from walsh_scrapy.state.connection import Connection, Values
    from walsh_scrapy.state.database import Database
    from walsh_scrapy.state.sources import SourceStore

logger = logging.getLogger(__name__)

#: Rows of one transaction, during which nobody else can write to SQLite.
_ROWS_AT_ONCE: Final = 5000
#: New blocks of an edit. If there are more, all of the file is read and written anew.
_MOST_NEW: Final = 20_000
#: Seconds from one line about a long sync to the next.
_LINE_SECONDS: Final = 5.0
#: Nanoseconds. A file that is younger may change once more and keep its time.
_YOUNG: Final = 2_000_000_000
_C: Final = declared.c


class Changes(NamedTuple):
    """How many sources a sync found new, changed and removed.

    ``keys`` are those of their URLs; None if all of the file was written anew.
    """

    new: int
    changed: int
    removed: int
    keys: frozenset[int] | None = None


class SyncedFile(NamedTuple):
    """A sources file as the state has it."""

    id: int
    pauses: Mapping[str, float]  #: the longest pause of each declared host, in seconds
    copy: str  #: what it declares, as the record keeps it: the name of a copy
    changes: Changes | None  #: None if the file was known as it is


class _New(NamedTuple):
    """A source that is to be written; ``hash`` is that of its block, None if it has several."""

    key: int
    source: Source
    hash: int | None
    place: str
    position: float


class _TooMuchError(Exception):
    """So much of a file has changed that all of it is read."""


class Sync:
    """Brings what the state has of one file up to date; ``tell`` gets a line while it takes long.

    Methods raise SourcesError.
    """

    def __init__(
        self,
        database: Database,
        records: SourceStore,
        path: str | Path,
        now: float,
        tell: Callable[[str], None] = logger.info,
    ) -> None:
        self._database = database
        self._records = records
        self._now = now
        self._tell_operator = tell
        self._file = Path(path)
        self._path = storable(str(self._file.absolute()))
        self._unit: Callable[[str], str] = host_of
        self._next_line = time.monotonic() + _LINE_SECONDS

    def run(self) -> SyncedFile:
        """Read what has changed, and warn of what each load of the file warns of."""
        try:
            stat = self._file.stat()
        except (OSError, ValueError):
            read_sources(self._file)  # which says why
            raise
        with self._database.read() as connection:
            pace_by = paced_by(connection)
            known = self._row(connection)
        self._unit = pace_by.unit
        changes = None
        if known is None or not known.is_of(stat) or known.pace_by != pace_by:
            known, changes = self._compared(known, stat, pace_by)
        warn(self._file, json.loads(known.warnings))
        return SyncedFile(known.id, json.loads(known.pauses), known.copy, changes)

    def _compared(
        self, known: _File | None, stat: stat_result, pace_by: str
    ) -> tuple[_File, Changes | None]:
        """Return the row of the file as it is now, and what was changed for it, if anything."""
        try:
            with self._file.open("rb") as file:
                digest = file_digest(file, "sha256").hexdigest()
        except OSError:
            read_sources(self._file)
            raise
        is_young = time.time_ns() - stat.st_mtime_ns < _YOUNG
        values: dict[str, Any] = {
            "sha256": digest,
            "mtime_ns": 0 if is_young else stat.st_mtime_ns,
            "size": stat.st_size,
            "pace_by": pace_by,
        }
        changes = None
        if known is None or (known.sha256, known.pace_by) != (digest, pace_by):
            is_edit = known is not None and known.pace_by == pace_by
            changes, warnings = self._edited(known.id) if known and is_edit else self._anew()
            values["warnings"] = json.dumps(warnings)
            number = self._begin()
            values["pauses"] = json.dumps(self._pauses(number))
            kept = DeclarationCopies(self._database, number, self._now)
            values["copy"] = kept.kept(known.copy if known else "", changes.keys)
        with self._database.write() as connection:
            connection.run(update(files).where(files.c.path == self._path).values(values))
            row = self._row(connection)
        if row is None:
            raise RuntimeError(f"{self._path} was forgotten while it was read")
        return row, changes

    def _edited(self, number: int) -> tuple[Changes, list[str]]:
        """Read the new blocks alone. Return what was changed, and what is to be warned of.

        A source that several blocks declare has no hash, so all of them are new.
        """
        without: set[int] = set()
        try:
            while True:
                known = _Blocks(self._known(number), without)
                merger = _Merger(self._new_blocks(known))
                clashing = self._clashing(number, merger.kept, known)
                if not clashing:
                    break
                without |= clashing
        except (_TooMuchError, ValueError):
            return self._anew()  # which says what is wrong, if anything is
        if not merger.kept and not any(known.is_kept):
            return self._anew()
        removed = [key for key in (*known.removed, *self._merged(number)) if key not in merger.kept]
        self._begin()
        new, changed = self._flush(number, list(merger.kept.values()))
        self._remove(number, removed)
        keys = frozenset((*merger.kept, *removed))
        return Changes(new, changed, len(removed), keys), repetitions(merger.repeated)

    def _new_blocks(self, known: _Blocks) -> Iterator[_New]:
        """Yield the source of each new block, with a position between those that are known."""
        blocks = split(self._file)
        if blocks is None:
            raise _TooMuchError
        last: float | None = None
        run: list[_New] = []
        left = _MOST_NEW
        for block in blocks:
            position = known.position_of(block.hash)
            if position is None:
                left -= 1
                source = block.read(self._file).source
                run.append(_New(url_key(source.url), source, block.hash, block.place, 0.0))
            else:
                yield from _between(last, run, position)
                last, run = position, []
            if left < 0:
                raise _TooMuchError
        yield from _between(last, run, None)

    def _clashing(self, number: int, new: Mapping[int, _New], known: _Blocks) -> set[int]:
        """Return the keys of sources that a known block and a new one declare."""
        clashing = set()
        for keys in _parts(sorted(new)):
            found = select(_C.url_key, _C.hash).where(_C.file == number, _C.url_key.in_(keys))
            with self._database.read() as connection:
                rows = connection.all(found)
            clashing |= {key for key, hash_ in rows if known.has_found(hash_)}
        return clashing

    def _known(self, number: int) -> Iterator[Values]:
        rows = select(_C.hash, _C.url_key, _C.position)
        known = rows.where(_C.file == number, _C.hash.is_not(None)).order_by(_C.hash)
        with self._database.snapshot() as connection:
            yield from connection.stream(known)

    def _merged(self, number: int) -> list[int]:
        merged_ones = select(_C.url_key).where(_C.file == number, _C.hash.is_(None))
        with self._database.read() as connection:
            return connection.scalars(merged_ones)

    def _anew(self) -> tuple[Changes, list[str]]:
        """Read all of the file. Return what was changed, and what is to be warned of."""
        try:
            if (blocks := split(self._file)) is not None:
                read = (
                    (block.read(self._file).source, block.hash, block.place) for block in blocks
                )
                return self._written(read)
        except ValueError:  # it has to be read as a whole, if it can be read
            logger.debug("%s is read as a whole", self._file)
        kept, warnings = read_sources(self._file)
        changes, _ = self._written((source, hash_of(repr(source)), "") for source in kept)
        return changes, warnings

    def _written(self, found: Iterable[tuple[Source, int, str]]) -> tuple[Changes, list[str]]:
        """Write all sources of the file, and remove all others of it."""
        news = (
            _New(url_key(source.url), source, hash_, place, float(position))
            for position, (source, hash_, place) in enumerate(found, 1)
        )
        number, keys, repeated = 0, set[int](), list[str]()
        new = changed = 0
        while some := list(islice(news, _ROWS_AT_ONCE)):
            number = number or self._begin()
            merger = _Merger([])
            for each in some:
                if each.key in keys and each.key not in merger.kept:
                    merger.kept[each.key] = self._find(number, each.key)
                merger.add(each)
            repeated += merger.repeated
            keys.update(merger.kept)
            counts = self._flush(number, list(merger.kept.values()))
            new, changed = new + counts[0], changed + counts[1]
            self._tell(len(keys))
        if not keys:
            read_sources(self._file)  # which raises: it declares nothing
        removed = [key for key in self._all(number) if key not in keys]
        self._remove(number, removed)
        if self._is_first:  # a source whose declarations are far from each other was written twice
            new = len(keys)
        return Changes(new, changed, len(removed)), repetitions(repeated)

    @cached_property
    def _is_first(self) -> bool:
        """Whether the state had nothing of the file when its first source was to be written."""
        is_own = files.c.path == self._path
        found = select(_C.url_key).join(files, files.c.id == _C.file).where(is_own).limit(1)
        with self._database.read() as connection:
            return connection.scalar(found) is None

    def _begin(self) -> int:
        """Note that what the file declares is being written, and return its number."""
        row = {"path": self._path}
        with self._database.write() as connection:
            insert_if_new(connection, files, row)
            connection.run(update(files).where(files.c.path == self._path).values(sha256=""))
            return int(connection.scalar(select(files.c.id).where(files.c.path == self._path)))

    def _flush(self, number: int, news: Sequence[_New]) -> tuple[int, int]:
        """Write sources, and return how many of them are new, and how many others changed.

        Records whose URL has a new spelling in the file are renamed.
        """
        new = changed = 0
        for some in _parts(news):
            with self._database.write() as connection:
                known = self._known_sources(connection, number, [each.key for each in some])
                records = _records(connection, {each.key: each.source.url for each in some})
                rows = [self._row_of(number, each, records.get(each.key)) for each in some]
                upsert_each(connection, declared, rows)
            urls = (
                (records[each.key].url, each.source.url) for each in some if each.key in records
            )
            if spellings := {old: url for old, url in urls if old != url}:
                self._records.rename(spellings)
            new += sum(1 for each in some if each.key not in known)
            changed += sum(1 for each in some if known.get(each.key, each.source) != each.source)
        return new, changed

    def _known_sources(
        self, connection: Connection, number: int, keys: Sequence[int]
    ) -> dict[int, Source]:
        """Return by their keys those of the sources that the state has of the file."""
        if self._is_first:
            return {}
        before = select(_C.url_key, *SOURCE).where(_C.file == number, _C.url_key.in_(keys))
        return {key: source_of(*row) for key, *row in connection.all(before)}

    def _row_of(self, number: int, new: _New, record: SourceRecord | None) -> dict[str, Any]:
        known = record.with_url(new.source.url) if record else None
        return {
            "file": number,
            "position": new.position,
            "hash": new.hash,
            **row_of_source(new.key, new.source),
            **facts_of(known, new.source.url, self._unit),
        }

    def _find(self, number: int, key: int) -> _New:
        """Return a source that was written."""
        row = select(_C.position, *SOURCE).where(_C.file == number, _C.url_key == key)
        with self._database.read() as connection:
            (position, *values), *_ = connection.all(row)
        return _New(key, source_of(*values), None, "", position)

    def _all(self, number: int) -> Iterator[int]:
        rows = select(_C.url_key).where(_C.file == number)
        with self._database.snapshot() as connection:
            yield from (key for (key,) in connection.stream(rows))

    def _remove(self, number: int, keys: Sequence[int]) -> None:
        for some in _parts(keys):
            with self._database.write() as connection:
                connection.run(delete(declared).where(_C.file == number, _C.url_key.in_(some)))

    def _pauses(self, number: int) -> dict[str, float]:
        """Return the longest pause of each declared host, in seconds."""
        rows = select(_C.url, _C.pause).where(_C.file == number, _C.pause.is_not(None))
        longest: dict[str, float] = {}
        with self._database.read() as connection:
            for url, pause in connection.all(rows):
                longest[host_of(url)] = max(pause, longest.get(host_of(url), 0.0))
        return longest

    def _row(self, connection: Connection) -> _File | None:
        row = connection.first(_FILE.where(files.c.path == self._path))
        return _File(*row) if row else None

    def _tell(self, done: int) -> None:
        if time.monotonic() >= self._next_line:
            self._tell_operator(f"{self._file}: {count_of(done, 'source')} read so far")
            self._next_line = time.monotonic() + _LINE_SECONDS


class _File(NamedTuple):
    """A row of ``files``."""

    id: int
    sha256: str
    mtime_ns: int
    size: int
    pace_by: str
    warnings: str
    pauses: str
    copy: str

    def is_of(self, stat: stat_result) -> bool:
        """Return True if the file surely has not changed."""
        return bool(self.sha256) and (self.mtime_ns, self.size) == (stat.st_mtime_ns, stat.st_size)


_FILE: Final = select(*(files.c[name] for name in _File._fields))


class _Blocks:
    """The blocks that the state has of a file, by their hashes: 25 bytes each."""

    def __init__(self, rows: Iterable[Values], without: set[int]) -> None:
        self._hashes, self._keys, self._positions = array("q"), array("q"), array("d")
        for hash_, key, position in rows:
            if key not in without:
                self._hashes.append(hash_)
                self._keys.append(key)
                self._positions.append(position)
        self.is_kept = bytearray(len(self._hashes))  #: 1 for each that the file still has

    def position_of(self, block: int) -> float | None:
        """Return the position of a block, the first time that it is found; None if it is new."""
        at = bisect_left(self._hashes, block)
        if at == len(self._hashes) or self._hashes[at] != block or self.is_kept[at]:
            return None
        self.is_kept[at] = 1
        return self._positions[at]

    def has_found(self, block: int | None) -> bool:
        """Return True for a known block that the file still has."""
        if block is None:
            return False
        at = bisect_left(self._hashes, block)
        return at < len(self._hashes) and self._hashes[at] == block and self.is_kept[at] == 1

    @property
    def removed(self) -> Iterator[int]:
        """The keys of the sources whose blocks are gone."""
        return compress(self._keys, (not each for each in self.is_kept))


class _Merger:
    """Sources by their keys: of several declarations the first one, with what the others add."""

    def __init__(self, news: Iterable[_New]) -> None:
        self.kept: dict[int, _New] = {}
        self.repeated: list[str] = []
        for each in news:
            self.add(each)

    def add(self, new: _New) -> None:
        """Add a source, or what it adds to the one that was declared before."""
        if first := self.kept.get(new.key):
            self.repeated.append(new.place)
            new = first._replace(source=merged(first.source, new.source), hash=None)
        self.kept[new.key] = new


def _between(last: float | None, run: Sequence[_New], following: float | None) -> Iterator[_New]:
    """Yield new sources with positions between two known ones, None for an end of the file."""
    if last is None and following is not None:
        last = following - len(run) - 1.0
    last = last or 0.0
    step = 1.0 if following is None else (following - last) / (len(run) + 1)
    for each in run:
        if not last < last + step != following:
            raise _TooMuchError  # another order, or no room left between two numbers
        last += step
        yield each._replace(position=last)
    if following is not None and following <= last:
        raise _TooMuchError


_ANY: Final = select(sources.c.url).limit(1)


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
    for key, *values in connection.all(locked):
        record = record_of(SourceRecord, values)
        if key not in found or rank(found[key]) < rank(record):
            found[key] = record
    return found


def _parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[at : at + _ROWS_AT_ONCE] for at in range(0, len(items), _ROWS_AT_ONCE))
