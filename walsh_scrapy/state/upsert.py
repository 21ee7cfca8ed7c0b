"""Insert a row or replace it: one statement, on SQLite and PostgreSQL alike."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from walsh_scrapy.state.statements import Statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Table
    from sqlalchemy.dialects import postgresql, sqlite


def upsert(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """Write ``row``; where its primary key exists, the given columns are replaced."""
    _upsert(connection.dialect.name, table, tuple(row)).run(connection, row)


def insert_if_new(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Write ``row``, all columns of it, if its primary key is new, and tell whether it was."""
    return _insert_if_new(connection.dialect.name, table).run(connection, row) == 1


def insert_new(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
) -> frozenset[str]:
    """Write the rows whose primary key is new, and return these keys.

    Rows are for a caller to give that were not there when its transaction began. SQLite has one
    lock, and the caller has it, so there they are new still; to be told by the database which ones
    it wrote takes three times as long as writing them.
    """
    if not rows:
        return frozenset()
    (key,) = table.primary_key
    if connection.dialect.name == "sqlite":
        _insert_if_new("sqlite", table).run_each(connection, rows)
        return frozenset(row[key.name] for row in rows)
    statement = _insert("postgresql", table).on_conflict_do_nothing().returning(key)
    return frozenset(connection.scalars(statement, rows))


@cache
def _upsert(dialect: str, table: Table, names: tuple[str, ...]) -> Statement:
    keys = [column.name for column in table.primary_key]
    statement = _insert(dialect, table)
    changes = {name: statement.excluded[name] for name in names if name not in keys}
    return Statement(statement.on_conflict_do_update(index_elements=keys, set_=changes))


@cache
def _insert_if_new(dialect: str, table: Table) -> Statement:
    return Statement(_insert(dialect, table).on_conflict_do_nothing())


def _insert(dialect: str, table: Table) -> postgresql.Insert | sqlite.Insert:
    # Only the one in use is loaded; PostgreSQL's takes as long as many a command.
    inserts = import_module(f"sqlalchemy.dialects.{dialect}")
    return inserts.insert(table)  # type: ignore[no-any-return]
