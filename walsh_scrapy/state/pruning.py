"""Old rows are deleted in small steps, so that no other process has to wait for long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, select

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Table

    from walsh_scrapy.state.database import Database

#: Rows of one transaction, during which nobody else can write to SQLite.
ROWS_AT_ONCE: Final = 500
#: Rows of one call, so that a crawl on a neglected state begins soon; a later run deletes the rest.
MOST_ROWS: Final = 100_000


def delete_old(database: Database, table: Table, is_old: ColumnElement[bool]) -> None:
    """Delete the rows of a table for which ``is_old`` is true, at most `MOST_ROWS`.

    It is checked once more as a row is deleted, because another process may have changed the row.
    What another process is changing or deleting now is left to it.
    """
    (key,) = table.primary_key
    with database.read() as connection:
        keys = connection.scalars(select(key).where(is_old).limit(MOST_ROWS)).all()
    for start in range(0, len(keys), ROWS_AT_ONCE):
        some = key.in_(keys[start : start + ROWS_AT_ONCE])
        still_old = select(key).where(some, is_old).with_for_update(skip_locked=True)
        with database.write() as connection:
            connection.execute(delete(table).where(key.in_(still_old)))
