"""Pruning: old rows are deleted in small transactions, as long as there is time (decision 18)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from sqlalchemy import delete, select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sqlalchemy import Column, ColumnElement, Table

    from walsh_scrapy.state.database import Database

#: Rows of one transaction, during which nobody else can write to SQLite.
ROWS_AT_ONCE: Final = 500
#: Keys of one query. It takes no lock, but it looks again at old rows that have to stay.
KEYS_AT_ONCE: Final = 10_000


class Old(Protocol):
    """What is to be deleted."""

    def blocks(self, database: Database) -> Iterator[int]:
        """Delete it, and yield after each transaction how many rows these were."""


class OldRows(NamedTuple):
    """The rows of one table that are to be deleted."""

    table: Table
    is_old: ColumnElement[bool]
    by: Column[Any]  #: the time by which the oldest ones go first, so that no gap is left

    def blocks(self, database: Database) -> Iterator[int]:
        """Delete them, and yield after each transaction how many these were.

        Whether a row is old is checked once more as it is deleted, because another process may have
        changed it. What another process is changing or deleting now is left to it.
        """
        (key,) = self.table.primary_key
        find = select(key).where(self.is_old).order_by(self.by).limit(KEYS_AT_ONCE)
        while True:
            keys = database.read(lambda connection: connection.scalars(find).all())
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
        old = delete(self.table).where(key.in_(still_old))
        return database.write(lambda connection: connection.execute(old).rowcount)


def delete_in_turn(database: Database, groups: Iterable[Old], goes_on: Callable[[], bool]) -> bool:
    """Delete what is old until none is left, and return True; False if ``goes_on`` returned False.

    Each group in turn loses some, so that none has to wait until a larger one is done.
    """
    turns = deque(group.blocks(database) for group in groups)
    while turns and goes_on():
        blocks = turns.popleft()
        if next(blocks, None) is not None:
            turns.append(blocks)
    return not turns
