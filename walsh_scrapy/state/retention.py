"""Retention: old rows are deleted, and backups are made (decision 18).

Old rows go in small transactions, as long as there is time.

A backup is a sound copy, made while crawls write; and the crawl that opens one logs that. A crawl
notes in `choices` the inode of the file that it has opened. A copy under another name has another
one; one that was copied over the file has the same, or may get one that was freed.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from sqlalchemy import delete, select

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.errors import StateError
from walsh_scrapy.state.records import upsert
from walsh_scrapy.state.tables import choices, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from sqlalchemy import Column, ColumnElement, Connection, Table

    from walsh_scrapy.state.database import Database

#: Rows of one transaction, during which nobody else can write to SQLite.
ROWS_AT_ONCE: Final = 500
#: Keys of one query. It takes no lock, but it looks again at old rows that must stay.
KEYS_AT_ONCE: Final = 10_000


class Old(Protocol):
    """Rows to delete."""

    def blocks(self, database: Database) -> Iterator[int]:
        """Delete them, and yield the number of rows after each transaction."""


class OldRows(NamedTuple):
    """The rows of one table that are to be deleted."""

    table: Table
    is_old: ColumnElement[bool]
    by: Column[Any]  #: the time; the oldest ones go first, so that no gap is left

    def blocks(self, database: Database) -> Iterator[int]:
        """Delete them, and yield the number of rows after each transaction.

        Whether a row is old is checked once more as it is deleted, because another process may have
        changed it. It skips rows that another process is changing or deleting now.
        """
        (key,) = self.table.primary_key
        find = select(key).where(self.is_old).order_by(self.by).limit(KEYS_AT_ONCE)
        while True:
            keys = [key for (key,) in database.all(find)]
            deleted = 0
            for start in range(0, len(keys), ROWS_AT_ONCE):
                count = self._delete(database, key.in_(keys[start : start + ROWS_AT_ONCE]))
                deleted += count
                yield count
            if not deleted or len(keys) < KEYS_AT_ONCE:
                return

    def _delete(self, database: Database, some: ColumnElement[bool]) -> int:
        (key,) = self.table.primary_key
        still_old = select(key).where(some, self.is_old).with_for_update(skip_locked=True)
        return database.change(delete(self.table).where(key.in_(still_old)))


def delete_in_turn(database: Database, groups: Iterable[Old], goes_on: Callable[[], bool]) -> bool:
    """Delete old rows until none remain, and return True; False if ``goes_on`` returned False.

    Each group in turn loses some, so that none waits until a larger one is done.
    """
    turns = deque(group.blocks(database) for group in groups)
    while turns and goes_on():
        blocks = turns.popleft()
        if next(blocks, None) is not None:
            turns.append(blocks)
    return not turns


_NAME: Final = "file"  #: of the choice with the file that the last crawl opened
_OPENED: Final = select(choices.c.value).where(choices.c.name == _NAME)
_LAST_BEGIN: Final = select(runs.c.started_at).order_by(runs.c.started_at.desc()).limit(1)


class BackupStore(Store):
    """Copies an SQLite state, and notices that the state is a copy."""

    @property
    def is_file(self) -> bool:
        """Whether the state is a file, which can be copied, and not on a server."""
        return self._database.file is not None

    def copy(self, place: Path) -> None:
        """Write all that is committed now to an empty file; no writer waits.

        Raises StateError if the state or its copy is damaged, or if the disk is full.
        """
        try:
            with self._database.snapshot() as source, closing(sqlite3.connect(place)) as copy:
                driver: Any = source.connection.driver_connection
                driver.backup(copy)
                (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            found = str(error)
        if found != "ok":
            why = " ".join(str(found).split())
            raise StateError(f"{self._database} cannot be copied to {place}: {why}")

    def notice(self) -> str:
        """Note which file the state is; return a sentence if that is not the one of the last crawl.

        One of several crawls that begin at once returns it.
        """
        file = self._database.file
        here = "" if file is None else file.inode
        if (self._database.scalar(_OPENED) or "") == here:
            return ""

        def write(connection: Connection) -> tuple[str, float | None]:
            found, last = connection.scalar(_OPENED) or "", connection.scalar(_LAST_BEGIN)
            upsert(connection, choices, {"name": _NAME, "value": here})
            return found, last

        found, last = self._database.write(write)
        if found in ("", here):
            return ""
        began = f" (its last run began at {format_moment(last)})" if last else ""
        return (
            f"the state {self._database} is another file than the last crawl opened: a copy, or a "
            f"backup put in place{began}; entries, visits and holds that came after it was made "
            "are unknown here, and if crawls still use the state that it was made from, hosts are "
            "requested by both: stop one of them"
        )
