"""Rows: a record as a row, and statements that insert or replace one on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from sqlalchemy import bindparam, select

from walsh_scrapy.policy.wording import storable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from sqlalchemy import Column, Connection, Select, Table
    from sqlalchemy.dialects.postgresql import Insert

#: The values of a row by the names of its columns.
Row: TypeAlias = Mapping[str, Any]
_Record = TypeVar("_Record", bound="DataclassInstance")
_Item = TypeVar("_Item")
#: SQLite takes 32,766 of them.
_MOST_PARAMETERS: Final = 10_000


def row_of(record: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a record by name. They must hold plain values, not records.

    What strangers write goes into many of them, so each text is made storable.
    """
    row = {name: getattr(record, name) for name in _names(type(record))}
    for name, value in row.items():
        if isinstance(value, str):
            row[name] = storable(value)
    return row


def record_of(kind: type[_Record], row: Sequence[Any]) -> _Record:
    """Return the record of a row that has the fields of its class, in their order."""
    return kind(**dict(zip(_names(kind), row, strict=True)))


def columns_of(kind: type[DataclassInstance], table: Table) -> tuple[Column[Any], ...]:
    """Return the columns of a table that the records of a class have, in their order."""
    return tuple(table.c[name] for name in _names(kind))


@cache
def by_key(kind: type[DataclassInstance], table: Table) -> Select[Any]:
    """Return the query for the record of a class whose primary key is ``key``."""
    (key,) = table.primary_key
    return select(*columns_of(kind, table)).where(key == bindparam("key"))


@cache
def _names(kind: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def upsert(connection: Connection, table: Table, rows: Row | Sequence[Row]) -> None:
    """Insert a row or several; of those whose primary key exists replace all columns."""
    row = rows if isinstance(rows, Mapping) else rows[0]
    connection.execute(_upsert(connection.dialect.name, table, tuple(row)), rows)


def insert_if_new(connection: Connection, table: Table, rows: Row | Sequence[Row]) -> int:
    """Insert those of the rows whose primary key is new; return how many these are."""
    statement = _insert_if_new(connection.dialect.name, table)
    return connection.execute(
        statement, rows, execution_options={"preserve_rowcount": True}
    ).rowcount


def in_parts(items: Collection[_Item]) -> Iterator[list[_Item]]:
    """Yield some thousand items at a time: both databases limit the parameters of a statement."""
    rest = iter(items)
    while some := list(islice(rest, _MOST_PARAMETERS)):
        yield some


@cache
def _upsert(dialect: str, table: Table, names: tuple[str, ...]) -> Insert:
    statement = insert_into(dialect, table)
    keys = [column.name for column in table.primary_key]
    changes = {name: statement.excluded[name] for name in names if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=changes)


@cache
def _insert_if_new(dialect: str, table: Table) -> Insert:
    return insert_into(dialect, table).on_conflict_do_nothing()


def insert_into(dialect: str, table: Table) -> Insert:
    """Return an insert of a dialect, which may say what to do if a row exists."""
    # Only the dialect in use is imported: PostgreSQL's takes as long as some commands do.
    inserts = import_module(f"sqlalchemy.dialects.{dialect}")
    return inserts.insert(table)  # type: ignore[no-any-return]
