"""Statements that are run for every request: SQLAlchemy writes them, and the driver runs them.

SQLAlchemy takes four times as long to run one as a database on the same disk needs for it, which
was a tenth of what a crawl costs. What is run once a crawl is run by SQLAlchemy.
"""

from __future__ import annotations

from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Boolean, Select
from sqlalchemy.exc import DBAPIError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Connection, Dialect
    from sqlalchemy.engine.interfaces import DBAPICursor, DBAPIModule
    from sqlalchemy.exc import StatementError
    from sqlalchemy.sql.dml import UpdateBase

    Row = Mapping[str, Any]

_FIRST: Final = methodcaller("fetchone")
_ALL: Final = methodcaller("fetchall")
_COUNT: Final = attrgetter("rowcount")


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
        found: Sequence[Any] | None = self._run(connection, row, _FIRST)
        if found is None or not self._flags:
            return found
        values = list(found)
        for at in self._flags:
            values[at] = bool(values[at])
        return values

    def all(self, connection: Connection, row: Row) -> Sequence[Sequence[Any]]:
        """Return all rows that are found, as the driver gives them."""
        found: Sequence[Sequence[Any]] = self._run(connection, row, _ALL)
        return found

    def run(self, connection: Connection, row: Row) -> int:
        """Write, and return how many rows that changed."""
        count: int = self._run(connection, row, _COUNT)
        return count

    def run_each(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Write once for each row, of which there is at least one."""
        text = self._text(connection.dialect, rows[0])
        values: Any = [text.values(row) for row in rows]  # what the dialect's driver takes
        _drive(connection, text.sql, lambda cursor: cursor.executemany(text.sql, values))

    def _run(self, connection: Connection, row: Row, take: Callable[[DBAPICursor], Any]) -> Any:  # noqa: ANN401
        text = self._text(connection.dialect, row)

        def run(cursor: DBAPICursor) -> Any:  # noqa: ANN401
            cursor.execute(text.sql, text.values(row))
            return take(cursor)  # SQLite's driver reads a row as it is taken, and may fail then

        return _drive(connection, text.sql, run)

    def _text(self, dialect: Dialect, row: Row) -> _Text:
        text = self._texts.get(dialect.name)
        if text is None:
            written = self._core.compile(dialect=dialect, column_keys=list(row))
            text = self._texts[dialect.name] = _Text(str(written), written.positiontup)
        return text


def tell(connection: Connection, sql: str) -> None:
    """Run a statement without parameters that brings nothing back."""
    _drive(connection, sql, lambda cursor: cursor.execute(sql))


def _drive(connection: Connection, sql: str, run: Callable[[DBAPICursor], Any]) -> Any:  # noqa: ANN401
    drivers = connection.connection
    try:
        return run(drivers.cursor())  # PostgreSQL's has none for a connection that is closed
    except connection.dialect.loaded_dbapi.Error as error:
        raise _as_sqlalchemys(error, connection, sql) from error


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
