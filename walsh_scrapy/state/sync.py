"""The sync: the state takes over the changes of a sources file (decision 40).

    file unchanged (time and size, else SHA-256) -> nothing is read
    file changed -> it is read once, changes are written, and missing sources are removed

A wrong file is refused, and its known sources stay. All is written in small transactions. A sync
that breaks off is done again by the next one. A file that no run has read for 90 days is forgotten,
a few of its sources at a time.
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

from walsh_scrapy.policy.pacing import PaceBy
from walsh_scrapy.policy.urls import host_of, url_key
from walsh_scrapy.policy.wording import count_of, storable
from walsh_scrapy.sources.declaration import encode_part_names, part_names, part_number
from walsh_scrapy.sources.loading import (
    log_warnings,
    merge_sources,
    open_sources,
    read_declarations,
    repetition_warnings,
)
from walsh_scrapy.sources.source import Source, declaration
from walsh_scrapy.state.documents import hash_of, keep_copy
from walsh_scrapy.state.records import in_parts, insert_if_new, upsert
from walsh_scrapy.state.retention import ROWS_AT_ONCE
from walsh_scrapy.state.sources import SOURCE, repeat_facts, source_of
from walsh_scrapy.state.tables import choices, copies, declared, files, sources

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from os import stat_result

    from sqlalchemy import Connection, Row

    from walsh_scrapy.state.database import Database

logger = logging.getLogger(__name__)

#: Rows of one transaction, during which nobody else can write to SQLite.
WRITTEN_AT_ONCE: Final = 5000
#: Seconds for which a file is kept that no run reads.
KEEP_SECONDS: Final = 90 * 86_400.0
#: Seconds after which it is noted again that a file is read, and that its copy is in force.
_NOTED: Final = 86_400.0
#: Seconds from one line about a long sync to the next.
_LINE_SECONDS: Final = 5.0
#: Nanoseconds. A file that is younger may change once more and keep its time.
_YOUNG: Final = 2_000_000_000
_C, _S = declared.c, sources.c
#: Sources that moved permanently, and are declared no more.
_MOVED: Final = select(_S.url_key, _S.moved_to).where(
    _S.move_settled, _S.move_failing_since.is_(None), not_(exists().where(_C.url_key == _S.url_key))
)
_UNIT: Final = select(choices.c.value).where(choices.c.name == "pace_by")
_ANY: Final = select(_S.url_key).limit(1)


class Changes(NamedTuple):
    """The numbers of new, changed and removed sources of a sync."""

    new: int
    changed: int
    removed: int


class SyncedFile(NamedTuple):
    """A sources file as the state has it."""

    id: int
    delays: Mapping[str, float]  #: the longest delay of each declared host, in seconds
    copy: str  #: its declaration in the state: the name of a copy
    changes: Changes | None  #: None if the file was known as it is


class Sync:
    """Brings the sources of one file up to date; ``tell`` gets a line while it takes long.

    Methods raise SourcesError.
    """

    def __init__(
        self,
        database: Database,
        path: str | Path,
        now: float,
        tell: Callable[[str], None] = logger.info,
    ) -> None:
        self._database = database
        self._now = now
        self._tell_operator = tell
        self._file = Path(path)
        self._path = storable(str(self._file.absolute()))
        self._is_this = files.c.path == self._path
        self._number = 0  # once its sources are being written
        self._is_first = False  # the state had no source of the file then
        self._unit: Callable[[str], str] = host_of
        self._next_line = time.monotonic() + _LINE_SECONDS

    def run(self) -> SyncedFile:
        """Read the changes, and give the warnings of each load of the file."""
        with open_sources(self._file) as opened:
            stat = os.fstat(opened.fileno())
        pace_by = PaceBy(self._database.scalar(_UNIT) or PaceBy.HOST)
        self._unit = pace_by.unit
        known, changes = self._row(), None
        if known is not None and self._is_to_be_noted(known):
            # That comes first: a file is not forgotten by another process once it was trusted.
            self._update(read_at=self._now)
            known = self._row()
        as_it_is = stat.st_mtime_ns, stat.st_size, pace_by
        as_known = known and known.sha256 and (known.mtime_ns, known.size, known.pace_by)
        if known is None or as_known != as_it_is:
            known, changes = self._compared(known, stat, pace_by)
        log_warnings(self._file, json.loads(known.warnings))
        return SyncedFile(known.id, json.loads(known.delays), known.copy, changes)

    def is_current(self) -> bool:
        """Return True if the state has the sources of the file as it is now; nothing is written."""
        row = self._row()
        return row is not None and row.sha256 == self._digest()

    def _compared(
        self, known: Row[Any] | None, stat: stat_result, pace_by: str
    ) -> tuple[Row[Any], Changes | None]:
        """Return the row of the file as it is now, and the changes for it, if any."""
        digest, changes = self._digest(), None
        is_young = time.time_ns() - stat.st_mtime_ns < _YOUNG
        values: dict[str, object] = {
            "sha256": digest,
            "mtime_ns": 0 if is_young else stat.st_mtime_ns,
            "size": stat.st_size,
            "pace_by": pace_by,
        }
        if known is None or (known.sha256, known.pace_by) != (digest, pace_by):
            is_edit = known is not None and known.pace_by == pace_by
            changes, warnings = self._read(anew=not is_edit)
            kept = DeclarationCopies(self._database, self._number, self._now)
            values["warnings"] = json.dumps(warnings)
            values["delays"] = json.dumps(self._delays())
            values["copy"] = kept.kept(known.copy if known else "")
        self._update(**values)
        row = self._row()
        if row is None:
            raise RuntimeError(f"{self._path} was forgotten while it was read")
        return row, changes

    def _digest(self) -> str:
        with open_sources(self._file) as opened:
            return file_digest(opened, "sha256").hexdigest()

    def _read(self, *, anew: bool) -> tuple[Changes, list[str]]:
        """Write the sources of the file, and remove all others of it.

        Return the changes and the warnings.
        """
        warnings: list[str] = []
        keys, new, changed = set[int](), set[int](), set[int]()
        repeated: list[str] = []
        found = read_declarations(self._file, warnings)
        while some := list(islice(found, WRITTEN_AT_ONCE)):
            self._begin()
            kept: dict[int, Source] = {}
            for place, source in some:
                key = url_key(source.url)
                first = kept.get(key) or (self._known([key])[key] if key in keys else None)
                if first is not None:
                    repeated.append(place)
                kept[key] = merge_sources(first, source) if first else source
            known = {} if self._is_first else self._known(kept)
            others = {key: each for key, each in kept.items() if anew or known.get(key) != each}
            if others:
                self._database.write(partial(self._write_piece, others))
            if not self._is_first:  # then all are new
                new.update(key for key in others if key not in known)
                changed.update(key for key, each in others.items() if known.get(key, each) != each)
            keys.update(kept)
            self._tell(len(keys))
        removed = [key for key in self._keys() if key not in keys]
        for piece in in_parts(removed):
            self._database.change(
                delete(declared).where(_C.file == self._number, _C.url_key.in_(piece))
            )
        if new or self._is_first:
            self._follow_moves()
        counts = len(keys if self._is_first else new), len(changed - new), len(removed)
        return Changes(*counts), warnings + repetition_warnings(repeated)

    def _begin(self) -> None:
        """Note that the sources of the file are being written."""
        if self._number:
            return

        def write(connection: Connection) -> tuple[int, bool]:
            insert_if_new(connection, files, {"path": self._path, "read_at": self._now})
            begun = update(files).where(self._is_this).values(sha256="").returning(files.c.id)
            number = connection.execute(begun).scalar_one()
            any_source = select(_C.url_key).where(_C.file == number).limit(1)
            return number, connection.scalar(any_source) is None

        self._number, self._is_first = self._database.write(write)

    def _write_piece(self, some: Mapping[int, Source], connection: Connection) -> None:
        """Write some sources; their rows in `sources` take their spelling."""
        has_known = connection.scalar(_ANY) is not None
        moved = select(_S.url_key, _S.moved_to).where(_S.url_key.in_(some), _S.move_settled)
        where = dict(map(tuple, connection.execute(moved))) if has_known else {}
        rows = [
            row_of_source(key, each)
            | {"file": self._number, "host": self._unit(where.get(key) or each.url)}
            for key, each in sorted(some.items())
        ]
        upsert(connection, declared, rows)
        if has_known:
            mine = _C.file == self._number, _C.url_key.in_(some)
            respelled = update(sources).where(*mine, _C.url_key == _S.url_key, _C.url != _S.url)
            connection.execute(respelled.values(url=_C.url))
            repeat_facts(connection, *mine)

    def _follow_moves(self) -> None:
        """Give the row of a moved source the URL at which the file declares it now.

        No file declares it where it was, so the operator has written the new address.
        """
        for key, to in self._database.all(_MOVED):
            of_new = url_key(to)
            here = select(_C.url).where(_C.file == self._number, _C.url_key == of_new)
            is_known = exists().where(_S.url_key == of_new)
            for (url,) in self._database.all(here.where(not_(is_known))):
                self._database.write(partial(_follow, key, of_new, url))

    def _known(self, keys: Collection[int]) -> dict[int, Source]:
        """Return by their keys those of the sources that were written before."""
        mine = select(_C.url_key, *SOURCE).where(_C.file == self._number, _C.url_key.in_(keys))
        return {key: source_of(*row) for key, *row in self._database.all(mine)}

    def _keys(self) -> Iterator[int]:
        """Yield the keys of all sources."""
        with self._database.snapshot() as connection:
            yield from connection.scalars(select(_C.url_key).where(_C.file == self._number))

    def _delays(self) -> dict[str, float]:
        """Return the longest delay of each declared host, in seconds."""
        rows = select(_C.url, _C.delay).where(_C.file == self._number, _C.delay.is_not(None))
        longest: dict[str, float] = {}
        for url, delay in self._database.all(rows):
            longest[host_of(url)] = max(delay, longest.get(host_of(url), 0.0))
        return longest

    def _tell(self, done: int) -> None:
        if time.monotonic() >= self._next_line:
            self._tell_operator(f"{self._file}: {count_of(done, 'source')} read so far")
            self._next_line = time.monotonic() + _LINE_SECONDS

    def _is_to_be_noted(self, known: Row[Any]) -> bool:
        """Whether the last reading was long ago, or another file was read since."""
        newest = select(files.c.id).order_by(files.c.read_at.desc(), files.c.id.desc()).limit(1)
        is_newest = bool(self._database.scalar(newest) == known.id)
        return not is_newest or known.read_at < self._now - _NOTED

    def _row(self) -> Row[Any] | None:
        return self._database.first(select(files).where(self._is_this))

    def _update(self, **values: object) -> None:
        self._database.change(update(files).where(self._is_this).values(values))


def row_of_source(key: int, source: Source) -> dict[str, Any]:
    """Return the columns of a source that come from its declaration."""
    details = [source.name, source.tags, source.page, source.folders]
    return {
        "url_key": key,
        "url": source.url,
        "kind": source.kind,
        "every": source.every.total_seconds() if source.every else 0.0,
        "delay": source.delay.total_seconds() if source.delay else None,
        "details": json.dumps(details, ensure_ascii=False) if any(details) else "",
    }


def _follow(key: int, of_new: int, url: str, connection: Connection) -> None:
    """Give a source another number, and its URL."""
    moved = update(sources).where(_S.url_key == key).values(url_key=of_new, url=url)
    connection.execute(moved)
    repeat_facts(connection, _C.url_key == of_new)


class OldFiles:
    """The files that no run has read for 90 days, and their sources."""

    def __init__(self, now: float) -> None:
        self._is_old = files.c.read_at < now - KEEP_SECONDS

    def blocks(self, database: Database) -> Iterator[int]:
        """Delete them, and yield the number of rows after each transaction."""
        for (number,) in database.all(select(files.c.id).where(self._is_old)):
            of_file = partial(self._delete, number)
            while deleted := database.write(of_file):
                yield deleted

    def _delete(self, number: int, connection: Connection) -> int:
        """Delete some sources of a file, or at last its row, unless it was read meanwhile.

        Its row is locked, so that the next reader finds that it is not whole. Sources whose visit
        is being written stay for a later run.
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


#: Sources of one copy, about.
_MAX_SOURCES_PER_COPY: Final = 4096


class DeclarationCopies:
    """The declaration of one file in the state: copies of some thousand sources each.

    A file with more has several, by the keys of their URLs, and a copy that names these. So an edit
    of one source makes one new part (decision 33). ``file`` is its number in the state.
    """

    def __init__(self, database: Database, file: int, now: float) -> None:
        self._database = database
        self._file = file
        self._now = now

    def kept(self, known: str = "") -> str:
        """Keep the present declaration of the file, and return the name of its copy.

        The parts of the ``known`` copy of before are not written again.
        """
        before = set(self._parts(known))
        counted = select(func.count()).select_from(declared).where(_C.file == self._file)
        size = (
            1 << max(0, (self._database.scalar(counted) - 1) // _MAX_SOURCES_PER_COPY).bit_length()
        )
        names: dict[int, str] = {}
        rows = select(_C.url_key, _C.url, _C.kind).where(_C.file == self._file)
        # The order of no index: to find each row of a large table by itself takes far longer.
        with self._database.snapshot() as connection:
            found = connection.execute(rows.order_by(_C.url_key + 0))
            for at, of_part in groupby(found, lambda row: part_number(row[0], size)):
                names[at] = self._keep(declaration(Source(*row[1:]) for row in of_part), before)
        parts = [names.get(at) or self._keep(b"", before) for at in range(size)]
        return parts[0] if size == 1 else self._keep(encode_part_names(parts))

    def in_force(self, name: str) -> str:
        """Note that a copy is in force, and return its name; it is made anew if it was deleted."""
        names = [name, *self._parts(name)]
        is_old = copies.c.last_used_at < self._now - _NOTED
        noted = update(copies).where(copies.c.sha256.in_(names), is_old)
        self._database.change(noted.values(last_used_at=self._now))
        there = select(func.count()).select_from(copies).where(copies.c.sha256.in_(names))
        is_whole = self._database.scalar(there) == len(set(names))
        return name if is_whole else self.kept()

    def _parts(self, name: str) -> list[str]:
        """Return the names of the parts of a copy, itself if it has none."""
        body = self._database.scalar(select(copies.c.body).where(copies.c.sha256 == name))
        return part_names(body or b"") or [name]

    def _keep(self, body: bytes, kept: Collection[str] = ()) -> str:
        """Keep a document unless its name is among those that are ``kept``; return its name."""
        if (name := hash_of(body)) in kept:
            return name
        return self._database.write(
            lambda connection: keep_copy(connection, "sources", body, now=self._now, last=None)
        )
