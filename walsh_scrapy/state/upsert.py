"""Insert a row or replace it: one statement, on SQLite and PostgreSQL alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.dialects import postgresql, sqlite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Table


def _insert(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def upsert(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """Write ``row``; where its primary key exists, the given columns are replaced."""
    keys = [column.name for column in table.primary_key]
    statement = _insert(connection, table).values(**row)
    changes = {name: statement.excluded[name] for name in row if name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes))


def insert_new(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
) -> frozenset[str]:
    """Write the rows whose primary key is new, and return these keys."""
    if not rows:
        return frozenset()
    (key,) = table.primary_key
    statement = _insert(connection, table).on_conflict_do_nothing().returning(key)
    return frozenset(connection.scalars(statement, rows))
