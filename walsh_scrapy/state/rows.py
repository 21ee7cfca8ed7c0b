"""Rows: a record as a row, and statements that insert or replace one on SQLite and PostgreSQL."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import ARRAY, String, Text, any_, bindparam, func, select

from walsh_scrapy.policy.wording import storable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from _typeshed import DataclassInstance
    from sqlalchemy import ColumnElement, Select, Table
    from sqlalchemy.dialects.postgresql import Insert
    from sqlalchemy.sql.dml import ReturningInsert

    from walsh_scrapy.state.connection import Connection, Values

_Record = TypeVar("_Record", bound="DataclassInstance")


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


@cache
def _names(kind: type[DataclassInstance]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def upsert(
    connection: Connection,
    table: Table,
    row: Mapping[str, Any],
    *,
    by: str = "",
    only: Sequence[str] = (),
) -> None:
    """Insert ``row``, or replace its columns, or ``only`` some, if there is one with its key.

    That is its primary key, or ``by``, a unique column.
    """
    statement = _upsert(connection.dialect.name, table, tuple(only) or tuple(row), by)
    connection.run_later(statement, row)


def upsert_each(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, or replace the columns of those whose primary key exists."""
    names = tuple(rows[0])
    if connection.dialect.name == "sqlite":
        connection.run_each(_upsert("sqlite", table, names, ""), rows)
    else:
        connection.run(_upsert_arrays(table, names), _arrays(names, rows))


def insert_if_new(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert ``row``, which has all columns, and return True if its primary key is new."""
    return connection.run(_insert_if_new(connection.dialect.name, table), row) == 1


def insert_new(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
) -> frozenset[str]:
    """Insert the rows whose primary key is new, and return these keys.

    The caller has checked in the same transaction that none of them exists. On SQLite that is still
    true, because the transaction holds the one write lock. Asking SQLite which rows it inserted
    would take three times as long as inserting them. On PostgreSQL another transaction may have
    inserted some of them since, so PostgreSQL is asked.
    """
    if not rows:
        return frozenset()
    (key,) = table.primary_key
    if connection.dialect.name == "sqlite":
        connection.run_each(_insert_if_new("sqlite", table), rows)
        return frozenset(row[key.name] for row in rows)
    names = tuple(rows[0])
    return frozenset(connection.scalars(_insert_returning(table, names), _arrays(names, rows)))


def among(
    connection: Connection,
    statement: Select[Any],
    column: ColumnElement[str],
    values: Sequence[str],
) -> list[Values]:
    """Return the rows of ``statement``, which is kept, whose column has one of these values."""
    if not values:
        return []
    wanted = _among(connection.dialect.name, statement, column)
    return connection.all(wanted, {"values": as_parameter(connection, values)})


def as_parameter(connection: Connection, values: Sequence[str]) -> Sequence[str] | str:
    """Return a list as the one parameter of `is_among`: on SQLite as JSON."""
    return json.dumps(values) if connection.is_sqlite else values


def is_among(dialect: str, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    """Return the condition that a column has a value of the list in a parameter."""
    if dialect == "sqlite":
        each = func.json_each(bindparam(name, type_=Text)).table_valued("value")
        return column.in_(select(each.c.value))
    return column == any_(bindparam(name, type_=ARRAY(String)))


@cache
def _among(dialect: str, statement: Select[Any], column: ColumnElement[str]) -> Select[Any]:
    return statement.where(is_among(dialect, column, "values"))


@cache
def _upsert(dialect: str, table: Table, names: tuple[str, ...], by: str) -> Insert:
    return _replacing(_insert(dialect, table), table, names, by)


def _arrays(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows as an array for each column, which PostgreSQL takes in a fifth of the time."""
    return {name: [row[name] for row in rows] for name in names}


def _insert_arrays(table: Table, names: tuple[str, ...]) -> Insert:
    arrays = (bindparam(name, type_=ARRAY(table.c[name].type)) for name in names)
    rows = func.unnest(*arrays).table_valued(*names).render_derived()
    return _insert("postgresql", table).from_select(names, select(*rows.c))


@cache
def _upsert_arrays(table: Table, names: tuple[str, ...]) -> Insert:
    return _replacing(_insert_arrays(table, names), table, names)


def _replacing(statement: Insert, table: Table, names: Sequence[str], by: str = "") -> Insert:
    """Return an insert that replaces these columns of rows whose key exists."""
    keys = [by] if by else [column.name for column in table.primary_key]
    changes = {name: statement.excluded[name] for name in names if name not in keys}
    return statement.on_conflict_do_update(index_elements=keys, set_=changes)


@cache
def _insert_if_new(dialect: str, table: Table) -> Insert:
    return _insert(dialect, table).on_conflict_do_nothing()


@cache
def _insert_returning(table: Table, names: tuple[str, ...]) -> ReturningInsert[Any]:
    (key,) = table.primary_key
    return _insert_arrays(table, names).on_conflict_do_nothing().returning(key)


def _insert(dialect: str, table: Table) -> Insert:
    # Only the dialect in use is imported: PostgreSQL's takes as long as some commands do.
    inserts = import_module(f"sqlalchemy.dialects.{dialect}")
    return inserts.insert(table)  # type: ignore[no-any-return]
