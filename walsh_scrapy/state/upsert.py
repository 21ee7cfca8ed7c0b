"""Insert a row or replace it: one statement, on SQLite and PostgreSQL alike."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy.dialects import postgresql, sqlite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Table


def upsert(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """Write ``row``; where its primary key exists, the given columns are replaced."""
    connection.execute(_upsert(connection.dialect.name, table, tuple(row)), row)


def insert_if_new(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Write ``row`` if its primary key is new, and tell whether it was."""
    return connection.execute(_insert_if_new(connection.dialect.name, table), row).rowcount == 1


def insert_new(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
) -> frozenset[str]:
    """Write the rows whose primary key is new, and return these keys."""
    if not rows:
        return frozenset()
    return frozenset(connection.scalars(_insert_new(connection.dialect.name, table), rows))


@cache
def _upsert(
    dialect: str, table: Table, names: tuple[str, ...]
) -> postgresql.Insert | sqlite.Insert:
    keys = [column.name for column in table.primary_key]
    statement = _insert(dialect, table)
    changes = {name: statement.excluded[name] for name in names if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=changes)


@cache
def _insert_if_new(dialect: str, table: Table) -> postgresql.Insert | sqlite.Insert:
    statement = _insert(dialect, table).on_conflict_do_nothing()
    return statement.execution_options(preserve_rowcount=True)


@cache
def _insert_new(dialect: str, table: Table) -> Any:  # noqa: ANN401 - a statement with RETURNING
    (key,) = table.primary_key
    return _insert_if_new(dialect, table).returning(key)


def _insert(dialect: str, table: Table) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
