"""The database behind a crawl: opened with care, written in short transactions."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event, insert, select
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import StaticPool

from walsh_scrapy.state import tables
from walsh_scrapy.state.migrations import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine


#: How long to wait for another process's transaction before that counts as an error.
LOCKED_SECONDS = 10.0


class StateError(RuntimeError):
    """The state cannot be used: which database, why, and what to do."""


class Database:
    """The state, open for one thread: a connection to write by, one to read by, tables in place.

    Both are kept: to take one from a pool for each of a target's ten questions costs more than
    the answers.

    Raises StateError for a database that cannot be reached, is damaged, or was written by another
    version; what is there is never overwritten.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = _engine(url)
        self._is_sqlite = self._engine.dialect.name == "sqlite"
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
            raise StateError(
                f"{self} cannot be used as state: {error.orig}; if the file is damaged, put a "
                "backup in its place or move it away to begin anew"
            ) from error
        except StateError:
            self.close()
            raise

    def __str__(self) -> str:
        return self._engine.url.render_as_string(hide_password=True)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Give a connection inside one transaction: all of it is kept, or nothing.

        SQLite gives its one lock at the beginning: what is read stays true, and a moment that is
        noted is the moment at which it is written, however long others had the lock.
        """
        with self._writer.begin():
            if self._is_sqlite:
                self._writer.exec_driver_sql("BEGIN IMMEDIATE")
            yield self._writer

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection on which each statement stands for itself, and no writer waits."""
        with self._reader.begin():
            yield self._reader

    def close(self) -> None:
        """Let go of the database; what was committed stays."""
        self._open.close()

    def _prepare(self) -> None:
        with self.write() as connection:
            if not self._is_sqlite:  # of two that make the tables, one comes first
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(9309)")
            if connection.dialect.has_table(connection, tables.schema_version.name):
                self._bring_up_to_date(connection)
                return
            tables.metadata.create_all(connection)
            connection.execute(insert(tables.schema_version), {"version": tables.SCHEMA_VERSION})

    def _bring_up_to_date(self, connection: Connection) -> None:
        found = connection.scalars(select(tables.schema_version.c.version)).all()
        if len(found) != 1 or not migrate(connection, found[0]):
            raise StateError(
                f"{self} has schema version {found}, this walsh-scrapy knows "
                f"{tables.SCHEMA_VERSION}; use the version that wrote it, or another database"
            )


def _engine(url: str) -> Engine:
    try:
        engine = create_engine(url, **_arguments(url))
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as error:
        raise _no_state(url, error) from error
    if engine.dialect.name not in ("sqlite", "postgresql"):
        raise _no_state(url, f"{engine.dialect.name} is neither SQLite nor PostgreSQL")
    if engine.dialect.name == "sqlite":
        _make_folder(engine.url.database)
        event.listen(engine, "connect", _tune_sqlite)
    return engine


def _no_state(url: str, reason: object) -> StateError:
    return StateError(
        f"WALSH_STATE_URL is {url!r}, which opens no database ({reason}); write "
        "sqlite:////absolute/path.sqlite3 or postgresql+psycopg://user@host/database"
    )


def _arguments(url: str) -> dict[str, Any]:
    if not url.startswith("sqlite"):
        return {}
    # Transactions are begun by us: the driver's own begin would take the lock too late.
    manual = {"isolation_level": None, "timeout": LOCKED_SECONDS}
    return {"poolclass": StaticPool, "connect_args": manual}


def _make_folder(path: str | None) -> None:
    if path and path != ":memory:":
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"WALSH_STATE_URL is in the folder of {path}, which cannot be made: "
                f"{error.strerror}"
            ) from error


def _tune_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DBAPI connection
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()
