"""The state's database connections: opened with checks, used in short transactions."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from walsh_scrapy.state._statements import run_sql
from walsh_scrapy.state.engines import (
    StateError,
    bare_engine,
    open_engine,
    separate_engine,
    state_error,
)
from walsh_scrapy.state.file import StateFile
from walsh_scrapy.state.schema import create_or_migrate, has_schema, is_up_to_date
from walsh_scrapy.state.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection, Transaction

logger = logging.getLogger(__name__)

#: How long a crawl waits for a database server that went away before it gives up.
LOST_SECONDS = 120.0
_RETRY_SECONDS = 1.0
_CLOCK = text("SELECT extract(epoch FROM clock_timestamp())::double precision")
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
        self._is_sqlite = self._engine.dialect.name == "sqlite"
        self._file = StateFile.of(self._engine.url)
        self._failed = failed
        self._given_up: StateError | None = None
        self._ahead = 0.0  # seconds, of the server's clock
        self._open = ExitStack()
        self._open.callback(self._engine.dispose)
        try:
            if self._file is not None:
                self._file.check_sound()
            self._writer = self._open.enter_context(self._engine.connect())
            self._reader = self._open.enter_context(self._engine.connect())
            if not self._is_sqlite:  # there a single statement needs no transaction
                self._reader.execution_options(isolation_level="AUTOCOMMIT")
            self._prepare()
            if self._file is not None:
                self._file.remember()
            with self._reader.begin():
                self.now(self._reader)
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
        return self._transaction(self._writer, "BEGIN IMMEDIATE" if self._is_sqlite else None)

    def read(self) -> AbstractContextManager[Connection]:
        """Return a context manager of a connection for reading, for which no writer has to wait.

        Raises what ``failed`` returns if the database fails.
        """
        return self._transaction(self._reader)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a separate connection that reads the database as it is now; no writer has to wait.

        Raises StateError if the database fails meanwhile.
        """
        engine = separate_engine(self._engine)
        try:
            with engine.connect() as connection:
                if self._is_sqlite:
                    connection.exec_driver_sql("BEGIN")
                else:
                    connection.execution_options(
                        isolation_level="REPEATABLE READ", postgresql_readonly=True
                    )
                yield connection
        except DBAPIError as error:
            raise state_error(engine, error) from error
        finally:
            engine.dispose()

    def now(self, connection: Connection) -> float:
        """Return epoch seconds by a clock that all processes on the database share.

        That is the clock of the server; on SQLite, which has none, the clock of the machine.
        """
        if self._is_sqlite:
            return time.time()
        now = float(connection.scalars(_CLOCK).one())
        self._ahead = time.time() - now
        return now

    def reckoned_now(self) -> float:
        """Return the same, by what the clock of the machine was ahead when `now` was read last."""
        return time.time() - self._ahead

    def close(self) -> None:
        """Close the connections; what was committed stays."""
        self._open.close()

    @contextmanager
    def _transaction(
        self, connection: Connection, first: str | None = None
    ) -> Iterator[Connection]:
        if self._given_up is not None:
            raise self._failed(self._given_up)
        self._check_file()
        try:
            with self._begin(connection):
                if first is not None:
                    run_sql(connection, first)
                yield connection
            self._check_file()  # else what was committed may be in a file that nobody can open
        except _ROW_ERRORS:
            raise
        except DBAPIError as error:
            if self._waiting.is_over:
                raise self._give_up(error) from error
            trouble = state_error(self._engine, error)
            trouble.connection_lost = error.connection_invalidated
            raise self._failed(trouble) from error

    def _check_file(self) -> None:
        """Raise what ``failed`` returns if the file of the state is no longer there."""
        if self._file is None:
            return
        try:
            self._file.check_same()
        except StateError as error:
            raise self._failed(error) from error

    def _begin(self, connection: Connection) -> Transaction:
        """Begin a transaction; if the server went away, wait until it is back."""
        deadline, waited = time.monotonic() + LOST_SECONDS, False
        while True:
            transaction = None
            try:
                transaction = connection.begin()
                if not self._is_sqlite:  # a lost connection shows with the first statement only
                    run_sql(connection, "SELECT 1")
            except DBAPIError as error:
                if transaction is not None:
                    transaction.close()
                is_late = time.monotonic() > deadline or not self._waiting.goes_on()
                if self._is_sqlite or self._waiting.is_over or is_late:
                    raise self._give_up(error) from error
                if not waited:
                    reason = str(error.orig).partition("\n")[0]
                    logger.warning("%s is lost (%s); the crawl waits for it", self, reason)
                    waited = True
                    continue  # mostly only the connection is lost, and a new one works at once
                time.sleep(_RETRY_SECONDS)
            else:
                if waited:
                    logger.warning("%s is back; the crawl continues", self)
                return transaction

    def _give_up(self, error: DBAPIError) -> Exception:
        """Return what to raise for an error after which a server is not asked again."""
        trouble = state_error(self._engine, error)
        if not self._is_sqlite:  # a lock may have ended meanwhile, and asking takes no time
            self._given_up = trouble
        return self._failed(trouble)

    def _prepare(self) -> None:
        with self._reader.begin():
            if is_up_to_date(self._reader):  # nearly always, and without waiting for a lock
                return
        with self._writer.begin(), self._waiting.migrating():
            create_or_migrate(self._writer, str(self))


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
