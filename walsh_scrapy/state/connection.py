"""A connection to the database of the state: the one way in which its statements are run.

The driver's own cursor runs them, because SQLAlchemy's `Connection.execute` would cost a tenth of a
visit's CPU (`docs/benchmarks.md`).
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from sqlalchemy.exc import DBAPIError

from walsh_scrapy.state.statements import compiled_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from typing import Self

    from sqlalchemy import Dialect, Engine, Select, TextClause
    from sqlalchemy.engine.interfaces import DBAPICursor, DBAPIModule
    from sqlalchemy.pool import PoolProxiedConnection
    from sqlalchemy.sql.dml import UpdateBase

    from walsh_scrapy.state.statements import Compiled
    from walsh_scrapy.state.waiting import Outage

#: The values of a row, or of the parameters of a statement, by name.
Row: TypeAlias = "Mapping[str, Any]"

#: What is run.
Statement: TypeAlias = "Select[Any] | UpdateBase | TextClause"

#: A row that was found.
Values: TypeAlias = "tuple[Any, ...]"

_NOTHING: Final[Row] = {}
#: Rows that a stream has in memory at once.
ROWS_AT_ONCE: Final = 1000


class _Unsent(NamedTuple):
    """A statement that goes to the server together with the next one."""

    sql: str
    parameters: Row | list[Any] | None = None
    options: Row = _NOTHING


class Connection:
    """Runs statements, each with the values of its parameters; each select gives tuples.

    Outside of a transaction each statement is one by itself. If it finds that the connection was
    lost, it is run again as soon as ``outage`` lets another one be made. Methods raise SQLAlchemy's
    DBAPIError for whatever the driver raises.

    Within a transaction a round trip to PostgreSQL carries its BEGIN, or what `run_later` left, and
    the next statement whose result is needed, or the COMMIT (libpq's pipeline).
    """

    def __init__(self, engine: Engine, outage: Outage | None = None) -> None:
        self.dialect: Dialect = engine.dialect
        self.is_sqlite = engine.dialect.name == "sqlite"
        self._engine = engine
        self._outage = outage
        self._pooled: PoolProxiedConnection | None = None
        self._in_transaction = False  # from when the server has begun it
        self._unsent: list[_Unsent] = []
        self._streams = count()

    @property
    def driver(self) -> Any:  # noqa: ANN401 - a DBAPI connection
        """The driver's connection; it is made if there is none, or if it was lost."""
        return (self._pooled or self.open()).driver_connection

    def open(self) -> PoolProxiedConnection:
        """Make the connection."""
        try:
            self._pooled = self._engine.raw_connection()
        except self.dialect.loaded_dbapi.Error as error:
            raise self._failure(error, "") from error
        if not self.is_sqlite:  # its driver would begin a transaction with each statement
            self.driver.autocommit = True
        return self._pooled

    @contextmanager
    def transaction(self, begin: str) -> Iterator[Self]:
        """Run a block in a transaction that SQL begins: it is committed as a whole, or not."""
        if self.is_sqlite:
            self.run_sql(begin)
            self._in_transaction = True
        else:
            self._unsent.append(_Unsent(begin))
        try:
            yield self
            self._commit()
        except BaseException:
            self._unsent.clear()
            with suppress(self.dialect.loaded_dbapi.Error):
                if self._pooled is not None:
                    self.driver.rollback()
            raise
        finally:
            self._in_transaction = False

    def _commit(self) -> None:
        if len(self._unsent) == 1 and not self._in_transaction:
            self._unsent.clear()  # nothing was run
            return
        self._in_transaction = True  # if the connection is lost now, it may have been committed
        self.run_sql("COMMIT")

    def close(self) -> None:
        """Close the connection; what was committed stays."""
        if self._pooled is not None:
            self._pooled.close()
            self._pooled = None

    def all(self, statement: Statement, row: Row = _NOTHING) -> list[Values]:
        """Return all rows found."""
        compiled = compiled_for(self.dialect, statement, row)
        found: list[Values] = self._run(compiled, row, lambda cursor: cursor.fetchall())
        return [compiled.typed(each) for each in found] if compiled.booleans else found

    def first(self, statement: Statement, row: Row = _NOTHING) -> Values | None:
        """Return the first row found, or None."""
        compiled = compiled_for(self.dialect, statement, row)
        # SQLite's driver reads a row as it is fetched, and may fail then.
        found: Values | None = self._run(compiled, row, lambda cursor: cursor.fetchone())
        return None if found is None else compiled.typed(found)

    def scalar(self, statement: Statement, row: Row = _NOTHING) -> Any:  # noqa: ANN401
        """Return the first value of the first row found, or None."""
        found = self.first(statement, row)
        return None if found is None else found[0]

    def scalars(self, statement: Statement, row: Row = _NOTHING) -> list[Any]:
        """Return the first value of each row found."""
        return [each[0] for each in self.all(statement, row)]

    def stream(self, statement: Statement) -> Generator[Values]:
        """Yield the rows found, of which a thousand are in memory at once, in a transaction."""
        compiled = compiled_for(self.dialect, statement, _NOTHING)
        named = {} if self.is_sqlite else {"name": f"stream_{next(self._streams)}"}
        if self._unsent:
            self.run_sql(self._unsent.pop().sql)  # the cursor is one of the transaction
            self._in_transaction = True
        try:
            cursor = self.driver.cursor(**named)
            try:
                cursor.execute(compiled.sql, compiled.parameters(_NOTHING))
                while some := cursor.fetchmany(ROWS_AT_ONCE):
                    yield from map(compiled.typed, some)
            finally:
                cursor.close()
        except self.dialect.loaded_dbapi.Error as error:
            raise self._failure(error, compiled.sql) from error

    def run(self, statement: Statement, row: Row = _NOTHING) -> int:
        """Run an insert, update or delete, and return how many rows it changed."""
        compiled = compiled_for(self.dialect, statement, row)
        changed: int = self._run(compiled, row, lambda cursor: cursor.rowcount)
        return changed

    def run_later(self, statement: Statement, row: Row = _NOTHING) -> None:
        """Run the same within a transaction before what follows; its result is not needed."""
        if self.is_sqlite:
            self.run(statement, row)
            return
        compiled = compiled_for(self.dialect, statement, row)
        self._unsent.append(_Unsent(compiled.sql, compiled.parameters(row), compiled.options))

    def run_each(self, statement: Statement, rows: Sequence[Row]) -> None:
        """Run an insert or update once for each row, of which there must be at least one."""
        compiled = compiled_for(self.dialect, statement, rows[0])
        parameters: Any = [compiled.parameters(row) for row in rows]
        self._drive(
            compiled.sql, lambda cursor: cursor.executemany(compiled.sql, parameters), _none
        )

    def run_sql(self, sql: str) -> None:
        """Run SQL without parameters and result."""
        self._drive(sql, lambda cursor: cursor.execute(sql), _none)

    def _run(self, compiled: Compiled, row: Row, take: Callable[[DBAPICursor], Any]) -> Any:  # noqa: ANN401
        parameters: Any = compiled.parameters(row)

        def run(cursor: DBAPICursor) -> None:
            cursor.execute(compiled.sql, parameters, **compiled.options)

        return self._drive(compiled.sql, run, take)

    def _drive(
        self,
        sql: str,
        run: Callable[[DBAPICursor], object],
        take: Callable[[DBAPICursor], Any],
    ) -> Any:  # noqa: ANN401
        """Run SQL, after what is unsent, and return what ``take`` takes of its result."""
        was_lost = False
        while True:
            try:
                cursor = self.driver.cursor()
                self._send(cursor, run)
                result = take(cursor)
            except self.dialect.loaded_dbapi.Error as error:
                failure = self._failure(error, sql)
                cause: Exception = error
            except DBAPIError as error:  # there was no connection to be had
                failure = cause = error
            else:
                if was_lost and self._outage:
                    self._outage.end()
                if self._unsent:
                    self._unsent.clear()
                    self._in_transaction = True
                return result
            if self._pooled is not None or self._in_transaction or self._outage is None:
                raise failure from cause
            self._outage.wait(failure)
            was_lost = True

    def _send(self, cursor: DBAPICursor, run: Callable[[DBAPICursor], object]) -> None:
        if not self._unsent:
            run(cursor)
            return
        with self.driver.pipeline():
            for sql, parameters, options in self._unsent:
                self.driver.execute(sql, parameters, **options)
            run(cursor)

    def _failure(self, error: DBAPIModule.Error, sql: str) -> DBAPIError:
        """Return SQLAlchemy's error for the driver's; a lost connection is not used again."""
        is_lost = self._pooled is not None and self.dialect.is_disconnect(
            error, self._pooled.driver_connection, None
        )
        if is_lost and self._pooled is not None:
            self._pooled.invalidate()
            self._pooled = None
        kind, dialect = self.dialect.loaded_dbapi.Error, self.dialect
        return DBAPIError.instance(  # type: ignore[return-value]  # of these it makes no other
            sql, None, error, kind, connection_invalidated=is_lost, dialect=dialect
        )


def _none(_cursor: DBAPICursor) -> None:
    """Take nothing of a result."""
