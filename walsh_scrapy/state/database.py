"""The database behind a crawl: opened with care, written in short transactions."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event, insert, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool, StaticPool

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
            raise _unusable(self._engine, error) from error
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

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Give a connection of its own on which all is read as of one moment; no writer waits.

        However long that takes. Raises StateError if the database fails meanwhile.
        """
        engine = create_engine(self._engine.url, **_arguments(self.url) | {"poolclass": NullPool})
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
            raise _unusable(engine, error) from error
        finally:
            engine.dispose()

    def close(self) -> None:
        """Let go of the database; what was committed stays."""
        self._open.close()

    def _prepare(self) -> None:
        if self._is_up_to_date():  # as nearly always: then nobody has to wait for anybody
            return
        with self.write() as connection:
            if not self._is_sqlite:  # of two that make the tables, one comes first
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(9309)")
            if connection.dialect.has_table(connection, tables.schema_version.name):
                self._bring_up_to_date(connection)
                return
            tables.metadata.create_all(connection)
            connection.execute(insert(tables.schema_version), {"version": tables.SCHEMA_VERSION})

    def _is_up_to_date(self) -> bool:
        with self.read() as connection:
            if not connection.dialect.has_table(connection, tables.schema_version.name):
                return False
            found = connection.scalars(select(tables.schema_version.c.version)).all()
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
    engine = _bare_engine(url)
    path = engine.url.database
    if engine.dialect.name == "sqlite" and not (path and Path(path).is_file()):
        return False
    try:
        with engine.connect() as connection:
            return connection.dialect.has_table(connection, tables.schema_version.name)
    except DBAPIError as error:
        raise _unusable(engine, error) from error
    finally:
        engine.dispose()


def shown(url: str) -> str:
    """Return a state's URL as an operator may see it, without a password."""
    return make_url(url).render_as_string(hide_password=True)


def _engine(url: str) -> Engine:
    engine = _bare_engine(url)
    if engine.dialect.name == "sqlite":
        _make_folder(engine.url.database)
        event.listen(engine, "connect", _tune_sqlite)
    return engine


def _bare_engine(url: str) -> Engine:
    try:
        engine = create_engine(url, **_arguments(url))
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as error:
        raise _no_state(url, error) from error
    if engine.dialect.name not in ("sqlite", "postgresql"):
        raise _no_state(url, f"{engine.dialect.name} is neither SQLite nor PostgreSQL")
    return engine


def _unusable(engine: Engine, error: DBAPIError) -> StateError:
    return StateError(
        f"{engine.url.render_as_string(hide_password=True)} cannot be used as state: {error.orig}; "
        "if the file is damaged, put a backup in its place or move it away to begin anew"
    )


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
