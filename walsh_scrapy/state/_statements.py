"""Statements of every request: compiled by SQLAlchemy once, then run by the driver's own cursor.

Only modules of ``state`` use this; statements that run once a crawl go through SQLAlchemy.
`docs/benchmarks.md` has what that saves, and `python -m benchmarks.statements` measures it.
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


class _Compiled(NamedTuple):
    """A statement's SQL for one kind of database."""

    sql: str
    order: Sequence[str] | None  #: of positional parameters; None if they are named

    def parameters(self, row: Row) -> Row | list[Any]:
        return row if self.order is None else [row[name] for name in self.order]


class Statement:
    """A select, insert or update; every row given to it has a value for each named parameter.

    Methods raise SQLAlchemy's DBAPIError for whatever the driver raises, as ``Connection.execute``
    does.
    """

    def __init__(self, core: Select[Any] | UpdateBase) -> None:
        self._core = core
        self._compiled: dict[str, _Compiled] = {}  # by dialect
        columns = core.selected_columns if isinstance(core, Select) else ()
        # SQLite has no Boolean type: it returns 1 and 0.
        self._booleans = [
            at for at, column in enumerate(columns) if isinstance(column.type, Boolean)
        ]

    def first(self, connection: Connection, row: Row) -> Sequence[Any] | None:
        """Return the values of the first row found, or None."""
        found: Sequence[Any] | None = self._run(connection, row, _FIRST)
        if found is None or not self._booleans:
            return found
        values = list(found)
        for at in self._booleans:
            values[at] = bool(values[at])
        return values

    def all(self, connection: Connection, row: Row) -> Sequence[Sequence[Any]]:
        """Return all rows found, with the driver's values."""
        found: Sequence[Sequence[Any]] = self._run(connection, row, _ALL)
        return found

    def run(self, connection: Connection, row: Row) -> int:
        """Run an insert or update, and return how many rows it changed."""
        count: int = self._run(connection, row, _COUNT)
        return count

    def run_each(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Run an insert or update once for each row, of which there must be at least one."""
        compiled = self._compile(connection.dialect, rows[0])
        parameters: Any = [compiled.parameters(row) for row in rows]
        _drive(
            connection, compiled.sql, lambda cursor: cursor.executemany(compiled.sql, parameters)
        )

    def _run(self, connection: Connection, row: Row, take: Callable[[DBAPICursor], Any]) -> Any:  # noqa: ANN401
        compiled = self._compile(connection.dialect, row)

        def run(cursor: DBAPICursor) -> Any:  # noqa: ANN401
            cursor.execute(compiled.sql, compiled.parameters(row))
            return take(cursor)  # SQLite's driver reads a row as it is fetched, and may fail then

        return _drive(connection, compiled.sql, run)

    def _compile(self, dialect: Dialect, row: Row) -> _Compiled:
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            core = self._core.compile(dialect=dialect, column_keys=list(row))
            compiled = self._compiled[dialect.name] = _Compiled(str(core), core.positiontup)
        return compiled


def run_sql(connection: Connection, sql: str) -> None:
    """Run SQL without parameters and result. Raises DBAPIError."""
    _drive(connection, sql, lambda cursor: cursor.execute(sql))


def _drive(connection: Connection, sql: str, run: Callable[[DBAPICursor], Any]) -> Any:  # noqa: ANN401
    drivers = connection.connection
    try:
        return run(drivers.cursor())  # PostgreSQL's driver has no cursor on a closed connection
    except connection.dialect.loaded_dbapi.Error as error:
        raise _dbapi_error(error, connection, sql) from error


def _dbapi_error(error: DBAPIModule.Error, connection: Connection, sql: str) -> StatementError:
    """Return SQLAlchemy's error for the driver's; a lost connection is invalidated."""
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
