"""The database behind a crawl: opened with care, written in short transactions."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import insert, select, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from walsh_scrapy.state import tables
from walsh_scrapy.state.engines import (
    StateError,
    bare_engine,
    open_engine,
    separate_engine,
    unusable,
)
from walsh_scrapy.state.migrations import migrate
from walsh_scrapy.state.statements import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection, Transaction

logger = logging.getLogger(__name__)

#: How long a crawl stands still for a database server that went away, before that is an error.
LOST_SECONDS = 120.0
_LOOK_AGAIN_SECONDS = 1.0
_CLOCK = text("SELECT extract(epoch FROM clock_timestamp())::double precision")
#: These tell of what was to be written, not of the database.
_FAULTS_OF_A_ROW = (IntegrityError, DataError)


class Database:
    """The state, open for one thread: a connection to write by, one to read by, tables in place.

    Both are kept: to take one from a pool for each of a target's ten questions costs more than
    the answers.

    Raises StateError for a database that cannot be reached, is damaged, or was written by another
    version; what is there is never overwritten. ``failed`` says what to raise for one that fails
    later, while it is in use.
    """

    def __init__(
        self, url: str, failed: Callable[[StateError], Exception] = lambda error: error
    ) -> None:
        self._engine = open_engine(url)
        self._is_sqlite = self._engine.dialect.name == "sqlite"
        self._failed = failed
        self._open = ExitStack()
        self._open.callback(self._engine.dispose)
        try:
            self._writer = self._open.enter_context(self._engine.connect())
            self._reader = self._open.enter_context(self._engine.connect())
            if not self._is_sqlite:  # where a statement on its own needs no transaction
                self._reader.execution_options(isolation_level="AUTOCOMMIT")
            self._prepare()
        except DBAPIError as error:
            self.close()
            raise unusable(self._engine, error) from error
        except StateError:
            self.close()
            raise

    def __str__(self) -> str:
        return self._engine.url.render_as_string(hide_password=True)

    def write(self) -> AbstractContextManager[Connection]:
        """Give a connection inside one transaction: all of it is kept, or nothing.

        SQLite gives its one lock at the beginning: what is read stays true, and a moment that is
        noted is the moment at which it is written, however long others had the lock.
        """
        return self._transaction(self._writer, "BEGIN IMMEDIATE" if self._is_sqlite else None)

    def read(self) -> AbstractContextManager[Connection]:
        """Give a connection on which each statement stands for itself, and no writer waits."""
        return self._transaction(self._reader)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Give a connection of its own on which all is read as of one moment; no writer waits.

        However long that takes. Raises StateError if the database fails meanwhile.
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
            raise unusable(engine, error) from error
        finally:
            engine.dispose()

    def now(self, connection: Connection) -> float:
        """Return epoch seconds by the one clock that all who share the database go by.

        That is the server's own; of SQLite, which has none, the machine's.
        """
        return time.time() if self._is_sqlite else float(connection.scalars(_CLOCK).one())

    def close(self) -> None:
        """Let go of the database; what was committed stays."""
        self._open.close()

    @contextmanager
    def _transaction(
        self, connection: Connection, first: str | None = None
    ) -> Iterator[Connection]:
        try:
            with self._begun(connection):
                if first is not None:
                    tell(connection, first)
                yield connection
        except _FAULTS_OF_A_ROW:
            raise
        except DBAPIError as error:
            trouble = unusable(self._engine, error)
            trouble.is_passing = error.connection_invalidated
            raise self._failed(trouble) from error

    def _begun(self, connection: Connection) -> Transaction:
        """Begin a transaction; if the server went away, wait for it to come back."""
        deadline, waited = time.monotonic() + LOST_SECONDS, False
        while True:
            transaction = None
            try:
                transaction = connection.begin()
                if not self._is_sqlite:  # which tells of a loss with the first statement only
                    tell(connection, "SELECT 1")
            except DBAPIError as error:
                if transaction is not None:
                    transaction.close()
                if self._is_sqlite or time.monotonic() > deadline:
                    raise self._failed(unusable(self._engine, error)) from error
                if not waited:
                    reason = str(error.orig).partition("\n")[0]
                    logger.warning("%s is lost (%s); the crawl waits for it", self, reason)
                    waited = True
                    continue  # most often the connection is all that was lost
                time.sleep(_LOOK_AGAIN_SECONDS)
            else:
                if waited:
                    logger.warning("%s is back, and the crawl goes on", self)
                return transaction

    def _prepare(self) -> None:
        if self._is_up_to_date():  # as nearly always: then nobody has to wait for anybody
            return
        with self._writer.begin():
            connection = self._writer
            # Of two that make the tables, one comes first.
            lock = "BEGIN IMMEDIATE" if self._is_sqlite else "SELECT pg_advisory_xact_lock(9309)"
            connection.exec_driver_sql(lock)
            if connection.dialect.has_table(connection, tables.schema_version.name):
                self._bring_up_to_date(connection)
                return
            tables.metadata.create_all(connection)
            connection.execute(insert(tables.schema_version), {"version": tables.SCHEMA_VERSION})

    def _is_up_to_date(self) -> bool:
        with self._reader.begin():
            if not self._reader.dialect.has_table(self._reader, tables.schema_version.name):
                return False
            found = self._reader.scalars(select(tables.schema_version.c.version)).all()
            return list(found) == [tables.SCHEMA_VERSION]

    def _bring_up_to_date(self, connection: Connection) -> None:
        found = connection.scalars(select(tables.schema_version.c.version)).all()
        if len(found) != 1 or not migrate(connection, found[0]):
            raise StateError(
                f"{self} has schema version {found}, this walsh-scrapy knows "
                f"{tables.SCHEMA_VERSION}; use the version that wrote it, or another database"
            )


def exists(url: str) -> bool:
    """Tell whether a state was ever made at ``url``; asking makes none.

    Raises StateError where that cannot be told.
    """
    engine = bare_engine(url)
    path = engine.url.database
    if engine.dialect.name == "sqlite" and not (path and Path(path).is_file()):
        return False
    try:
        with engine.connect() as connection:
            return connection.dialect.has_table(connection, tables.schema_version.name)
    except DBAPIError as error:
        raise unusable(engine, error) from error
    finally:
        engine.dispose()
