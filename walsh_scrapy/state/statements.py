"""Statements that are run for every request: SQLAlchemy writes them, and the driver runs them.

SQLAlchemy takes four times as long to run one as a database on the same disk needs for it, which
was a tenth of what a crawl costs. What is run once a crawl is run by SQLAlchemy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Boolean, Select
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection, Dialect
    from sqlalchemy.engine.interfaces import DBAPICursor, DBAPIModule
    from sqlalchemy.exc import StatementError
    from sqlalchemy.sql.dml import UpdateBase

    Row = Mapping[str, Any]


class _Text(NamedTuple):
    """A statement as one kind of database is told it."""

    sql: str
    order: Sequence[str] | None  #: of the parameters; None where they go by their names

    def values(self, row: Row) -> Row | list[Any]:
        return row if self.order is None else [row[name] for name in self.order]


class Statement:
    """A select, insert or update whose parameters are all named; a row has one value for each.

    Whatever a driver raises comes as SQLAlchemy's DBAPIError, as if SQLAlchemy had run it.
    """

    def __init__(self, core: Select[Any] | UpdateBase) -> None:
        self._core = core
        self._texts: dict[str, _Text] = {}
        columns = core.selected_columns if isinstance(core, Select) else ()
        # SQLite has no truth values; it keeps 1 and 0.
        self._flags = [at for at, column in enumerate(columns) if isinstance(column.type, Boolean)]

    def first(self, connection: Connection, row: Row) -> Sequence[Any] | None:
        """Return the values of the first row that is found, or None."""
        found = self._driven(connection, row).fetchone()
        if found is None or not self._flags:
            return found
        values = list(found)
        for at in self._flags:
            values[at] = bool(values[at])
        return values

    def all(self, connection: Connection, row: Row) -> Sequence[tuple[Any, ...]]:
        """Return all rows that are found, as the driver gives them."""
        return self._driven(connection, row).fetchall()

    def run(self, connection: Connection, row: Row) -> int:
        """Write, and return how many rows that changed."""
        return self._driven(connection, row).rowcount

    def run_each(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Write once for each row, of which there is at least one."""
        text = self._text(connection.dialect, rows[0])
        values: Any = [text.values(row) for row in rows]  # what the dialect's driver takes
        _driven(connection, text.sql, lambda cursor: cursor.executemany(text.sql, values))

    def _driven(self, connection: Connection, row: Row) -> DBAPICursor:
        text = self._text(connection.dialect, row)
        return _driven(
            connection, text.sql, lambda cursor: cursor.execute(text.sql, text.values(row))
        )

    def _text(self, dialect: Dialect, row: Row) -> _Text:
        text = self._texts.get(dialect.name)
        if text is None:
            written = self._core.compile(dialect=dialect, column_keys=list(row))
            text = self._texts[dialect.name] = _Text(str(written), written.positiontup)
        return text


def tell(connection: Connection, sql: str) -> None:
    """Run a statement without parameters that brings nothing back."""
    _driven(connection, sql, lambda cursor: cursor.execute(sql))


def _driven(connection: Connection, sql: str, run: Callable[[DBAPICursor], object]) -> DBAPICursor:
    cursor = connection.connection.cursor()
    try:
        run(cursor)
    except connection.dialect.loaded_dbapi.Error as error:
        raise _as_sqlalchemys(error, connection, sql) from error
    return cursor


def _as_sqlalchemys(error: DBAPIModule.Error, connection: Connection, sql: str) -> StatementError:
    """Return a driver's error as SQLAlchemy has it, which lets go of a connection that is lost."""
    dialect = connection.dialect
    is_lost = dialect.is_disconnect(error, connection.connection.driver_connection, None)
    if is_lost:
        connection.invalidate(error)
    return DBAPIError.instance(
        sql,
        None,
        error,
        dialect.loaded_dbapi.Error,
        connection_invalidated=is_lost,
        dialect=dialect,
    )
