"""The state's database: opened with checks, used in short transactions."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from sqlalchemy import text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from walsh_scrapy.state.connection import Connection
from walsh_scrapy.state.engines import (
    StateError,
    bare_engine,
    open_engine,
    separate_engine,
    state_error,
)
from walsh_scrapy.state.file import StateFile
from walsh_scrapy.state.schema import create, has_schema, is_current
from walsh_scrapy.state.serverclock import ServerClock
from walsh_scrapy.state.waiting import Outage, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

_CLOCK: Final = text("SELECT extract(epoch FROM clock_timestamp())::double precision")
_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
#: Errors of the values to be written, not of the database: raised as they are.
_ROW_ERRORS = (IntegrityError, DataError)


class Database:
    """The state's database, for use by one thread: one connection to write, one to read.

    Both stay open: taking one from a pool for each of a target's ten queries would cost more than
    the queries.

    Raises StateError for a database that cannot be reached, is damaged, or was written by another
    version; existing data is never overwritten. If the database fails later, methods raise what
    ``failed`` returns for the StateError. A server that went away is waited for while ``waits``
    returns True, for two minutes at most. One that is silent, or that did not come back, is not
    asked again.
    """

    def __init__(
        self,
        url: str,
        failed: Callable[[StateError], Exception] = lambda error: error,
        waits: Callable[[], bool] = lambda: True,
    ) -> None:
        self._waiting = Waiting(waits)
        self._engine = open_engine(url, self._waiting)
        self.is_sqlite = self._engine.dialect.name == "sqlite"
        self.file = StateFile.of(self._engine.url)  #: of an SQLite state; None on a server
        self._failed = failed
        self._given_up: StateError | None = None
        self._is_closed = False
        self._outage = Outage(str(self), self._waiting)
        self._open = ExitStack()
        self._open.callback(self._engine.dispose)
        self._clock = ServerClock(self._server_time)
        try:
            if self.file is not None:
                self.file.check_sound()
            self._reader = self._connected()
            self._prepare()
            self._writer = self._connected()
            if self.file is not None:
                self.file.remember()
            self.now()
            self._waiting.is_open = True
        except DBAPIError as error:
            self.close()
            raise state_error(self._engine, error) from error
        except StateError:
            self.close()
            raise

    def __str__(self) -> str:
        return self._engine.url.render_as_string(hide_password=True)

    def write(self) -> AbstractContextManager[Connection]:
        """Return a context manager of one transaction: all of it is committed, or nothing.

        On SQLite the transaction holds the database's write lock from its beginning. So no other
        process changes what was read. A time that is read from the clock is the time of the write,
        however long the transaction waited for the lock.

        Raises what ``failed`` returns if the database fails; IntegrityError and DataError of
        SQLAlchemy for values that it does not accept.
        """
        return self._checked(self._writer, "BEGIN IMMEDIATE" if self.is_sqlite else "BEGIN")

    def read(self) -> AbstractContextManager[Connection]:
        """Return a context manager of a connection for reading, for which no writer has to wait.

        Raises what ``failed`` returns if the database fails.
        """
        return self._checked(self._reader)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a separate connection that reads the database as it is now; no writer has to wait.

        Raises StateError if the database fails meanwhile.
        """
        engine = separate_engine(self._engine)
        connection = Connection(engine)
        try:
            with connection.transaction("BEGIN" if self.is_sqlite else _SNAPSHOT):
                yield connection
        except DBAPIError as error:
            raise state_error(engine, error) from error
        finally:
            connection.close()
            engine.dispose()

    def now(self) -> float:
        """Return epoch seconds by a clock that all processes on the database share.

        That is the clock of the server; on SQLite, which has none, the clock of the machine.
        """
        return time.time() if self.is_sqlite else self._clock.now()

    def reckoned_now(self) -> float:
        """Return the same, as it was measured last; the server is not asked."""
        return time.time() if self.is_sqlite else self._clock.reckoned()

    def _server_time(self) -> float:
        with self.read() as connection:
            return float(connection.scalar(_CLOCK))

    def close(self) -> None:
        """Close the connections; what was committed stays."""
        self._is_closed = True
        self._open.close()

    def _connected(self) -> Connection:
        connection = Connection(self._engine, None if self.is_sqlite else self._outage)
        self._open.callback(connection.close)
        connection.open()
        return connection

    @contextmanager
    def _checked(self, connection: Connection, begin: str | None = None) -> Iterator[Connection]:
        """Give a connection, in a transaction if ``begin`` begins one; name what goes wrong."""
        if self._is_closed:
            raise StateError(f"{self} is closed")
        if self._given_up is not None:
            raise self._failed(self._given_up)
        try:
            if begin is None:
                yield connection
            else:
                with connection.transaction(begin):
                    yield connection
            self._check_file()  # what was read or committed may be in a file that nobody can open
        except _ROW_ERRORS:
            raise
        except DBAPIError as error:
            trouble = state_error(self._engine, error)
            if not self.is_sqlite and (self._waiting.is_over or self._outage.is_final):
                self._given_up = trouble  # a lock may have ended meanwhile; a server is not asked
            else:
                trouble.connection_lost = error.connection_invalidated
            raise self._failed(trouble) from error

    def _check_file(self) -> None:
        """Raise what ``failed`` returns if the file of the state is no longer there."""
        if self.file is None:
            return
        try:
            self.file.check_same()
        except StateError as error:
            raise self._failed(error) from error

    def _prepare(self) -> None:
        with self._engine.connect() as connection:
            with connection.begin():
                if is_current(connection):  # nearly always, and without waiting for a lock
                    return
            with connection.begin():
                create(connection, str(self))


class Store:
    """A kind of record in the database.

    Methods raise what ``State(failed=...)`` returns if the database fails: a StateError by
    default, ``RequestDeferred`` in a crawl.
    """

    def __init__(self, database: Database) -> None:
        self._database = database


def exists(url: str) -> bool:
    """Return True if a state was ever created at ``url``; create none.

    Raises StateError if the database cannot be read.
    """
    engine = bare_engine(url)
    if engine.dialect.name == "sqlite":
        file = StateFile.of(engine.url)
        if file is None or not file.exists:
            return False
        file.check_sound()
    try:
        with engine.connect() as connection:
            return has_schema(connection)
    except DBAPIError as error:
        raise state_error(engine, error) from error
    finally:
        engine.dispose()
