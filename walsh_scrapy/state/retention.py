"""Retention: which rows are deleted when, and copies and checks of an SQLite state.

Old rows are deleted in small transactions, as long as there is time.

A backup is a sound copy that can be made while crawls write. A crawl that opens another file than
the last crawl says so, because two copies of one state do not know of each other's requests. It
recognizes the file by its inode, which is kept in `choices`. A copy that was written over the file
is not noticed, nor a copy that happened to get the inode of a deleted file.

SQLite notices a damaged page only when it reads that page. So a crawl checks all pages once a day.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from sqlalchemy import delete, select, text

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.engine import StateError
from walsh_scrapy.state.records import upsert
from walsh_scrapy.state.tables import STATE_ID, choices, new_state_id, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from sqlalchemy import Column, ColumnElement, Connection, Table

    from walsh_scrapy.state.database import Database

#: Rows that one transaction deletes: until it ends nobody else can write to SQLite.
MAX_ROWS_PER_DELETE: Final = 500
#: Keys that one query reads. It takes no lock, but it reads old rows again that must stay.
MAX_KEYS_PER_QUERY: Final = 10_000


class Deletable(Protocol):
    """Rows that can be deleted a few at a time."""

    def delete_in_blocks(self, database: Database) -> Iterator[int]:
        """Delete the rows, and yield the number of rows after each transaction."""


class OldRows(NamedTuple):
    """The rows of one table that are to be deleted."""

    table: Table
    is_old: ColumnElement[bool]
    time: Column[Any]  #: the oldest rows are deleted first, so that the log has no gaps

    def delete_in_blocks(self, database: Database) -> Iterator[int]:
        """Delete the rows, and yield the number of rows after each transaction.

        The DELETE checks again whether a row is old, because another process may have changed the
        row. Rows that another process is changing or deleting now are skipped.
        """
        (key,) = self.table.primary_key
        query = select(key).where(self.is_old).order_by(self.time).limit(MAX_KEYS_PER_QUERY)
        while True:
            keys = [key for (key,) in database.all(query)]
            deleted = 0
            for start in range(0, len(keys), MAX_ROWS_PER_DELETE):
                count = self._delete(database, key.in_(keys[start : start + MAX_ROWS_PER_DELETE]))
                deleted += count
                yield count
            if not deleted or len(keys) < MAX_KEYS_PER_QUERY:
                return

    def _delete(self, database: Database, is_in_block: ColumnElement[bool]) -> int:
        (key,) = self.table.primary_key
        still_old = select(key).where(is_in_block, self.is_old).with_for_update(skip_locked=True)
        return database.change(delete(self.table).where(key.in_(still_old)))


def delete_in_turn(
    database: Database, groups: Iterable[Deletable], may_continue: Callable[[], bool]
) -> bool:
    """Delete old rows until no old row is left, and return True; stop when ``may_continue`` fails.

    The groups take turns, block by block, so that a small group does not wait for a large one.
    """
    turns = deque(group.delete_in_blocks(database) for group in groups)
    while turns and may_continue():
        blocks = turns.popleft()
        if next(blocks, None) is not None:
            turns.append(blocks)
    return not turns


#: The row of `choices` with the file that the last crawl opened.
_FILE: Final = "file"
_FILE_SQL: Final = select(choices.c.value).where(choices.c.name == _FILE)
#: The row of `choices` with the last check of all pages: its epoch second, and "ok" or the damage.
_CHECK: Final = "quick_check"
_CHECK_SQL: Final = select(choices.c.value).where(choices.c.name == _CHECK)
_QUICK_CHECK_SQL: Final = text("PRAGMA quick_check(1)")
#: The rows of `choices` that are about the file alone, and not about the state in it.
OF_FILE: Final = (_FILE, _CHECK)
_SOUND: Final = "ok"
#: A sound file is checked again after this time. A larger file is not: that would take minutes.
CHECK_SECONDS: Final = 86_400.0
MAX_CHECKED_BYTES: Final = 2 * 10**9
_MAX_DAMAGE_CHARS: Final = 200
_LAST_START_SQL: Final = select(runs.c.started_at).order_by(runs.c.started_at.desc()).limit(1)


class FileCheck(NamedTuple):
    """The last check of all pages of an SQLite file."""

    at: float  #: in epoch seconds
    damage: str  #: what SQLite says about the first damaged page; "" for a sound file


class BackupStore(Store):
    """Copies and checks an SQLite state, and notices if the state is a copy."""

    @property
    def is_file(self) -> bool:
        """Whether the state is a file, which can be copied, and not on a server."""
        return self._database.file is not None

    def copy(self, place: Path) -> None:
        """Write everything that is committed now to an empty file; no writer waits.

        Raises StateError if the state or its copy is damaged, or if the disk is full.
        """
        try:
            with self._database.snapshot() as source, closing(sqlite3.connect(place)) as copy:
                driver: Any = source.connection.driver_connection
                driver.backup(copy)
                (result,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            result = str(error)
        if result != "ok":
            reason = " ".join(str(result).split())
            raise StateError(f"{self._database} cannot be copied to {place}: {reason}")

    def last_check(self) -> FileCheck | None:
        """Return the last check of the file; None if there was none."""
        value: str | None = self._database.scalar(_CHECK_SQL)
        if value is None:
            return None
        at, _, result = value.partition(" ")
        return FileCheck(float(at), "" if result == _SOUND else result)

    def check_pages(self, now: float) -> None:
        """Check all pages of the file, unless they were sound within the last day.

        The result is kept. A file of more than 2 GB is not checked. ``now`` is in epoch seconds.
        Raises StateError for a damaged file.
        """
        file = self._database.file
        if file is None or file.path.stat().st_size > MAX_CHECKED_BYTES:
            return
        last = self.last_check()
        if last and not last.damage and last.at <= now < last.at + CHECK_SECONDS:
            return
        result = " ".join(str(self._database.scalar(_QUICK_CHECK_SQL)).split())[:_MAX_DAMAGE_CHARS]
        row = {"name": _CHECK, "value": f"{now} {result}"}
        self._database.write(lambda connection: upsert(connection, choices, row))
        if result != _SOUND:
            raise StateError(
                f"{self._database} is damaged: {result}; restore a backup, or move the file away "
                "to start an empty state"
            )

    def record_file(self) -> str:
        """Record which file the state is. Return a warning if the last crawl used another file.

        Such a state gets a new id, because its next numbers of entries may already have been used.
        If several crawls begin at once, one of them gets the warning.
        """
        file = self._database.file
        inode = "" if file is None else file.inode
        if (self._database.scalar(_FILE_SQL) or "") == inode:
            return ""

        def write(connection: Connection) -> tuple[str, float | None]:
            recorded = connection.scalar(_FILE_SQL) or ""
            last = connection.scalar(_LAST_START_SQL)
            upsert(connection, choices, {"name": _FILE, "value": inode})
            if recorded not in ("", inode):
                upsert(connection, choices, {"name": STATE_ID, "value": new_state_id()})
            return recorded, last

        recorded, last = self._database.write(write)
        if recorded in ("", inode):
            return ""
        began = f" (its last run began at {format_moment(last)})" if last else ""
        return (
            f"the state {self._database} is another file than the last crawl opened: a copy, or a "
            f"backup put in place{began}; entries, visits and holds that came after it was made "
            "are unknown here, and if crawls still use the state that it was made from, hosts are "
            "requested by both: stop one of them"
        )
