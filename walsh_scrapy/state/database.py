"""The state's database: SQLite or PostgreSQL, opened with checks, used in short transactions.

A transaction is a function that takes SQLAlchemy's `Connection` and returns a value. If the server
is lost, or another transaction is in the way, it is run again. So it changes nothing in memory, and
finds its rows if only the answer to its COMMIT was lost.
"""

from __future__ import annotations

import logging
import math
import os
import re
import sqlite3
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote
from weakref import finalize

from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
)
from sqlalchemy.pool import NullPool

from walsh_scrapy.programname import program_name
from walsh_scrapy.state.records import by_key, record_of
from walsh_scrapy.state.tables import VERSION, create, has_schema, versions
from walsh_scrapy.state.views import ViewQuery, create_views, has_views, read_view

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from typing import Self

    from _typeshed import DataclassInstance
    from sqlalchemy import URL, Connection, Engine, Executable, Row, Table
    from sqlalchemy.sql.dml import UpdateBase

logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_Record = TypeVar("_Record", bound="DataclassInstance")

#: Seconds of waiting for another process's transaction before that is an error.
LOCKED_SECONDS: Final = 10.0
#: Seconds for which a server may be silent; more than LOCKED_SECONDS, after which it reports a
#: lock.
SILENT_SECONDS: Final = 20.0
#: Seconds for which a transaction may do nothing: less, so that a process that is frozen within one
#: does not lock the others out.
IDLE_SECONDS: Final = 5.0
#: Seconds of waiting for anything once the run is to end.
ENDING_SECONDS: Final = 1.0
#: Seconds that one attempt to connect may take: at the start, and later, when it is repeated.
CONNECT_SECONDS: Final = 10.0
RECONNECT_SECONDS: Final = 2.0  #: libpq takes no shorter time
#: Seconds for which a crawl waits for a database server that went away.
LOST_SECONDS: Final = 120.0
_RETRY_SECONDS: Final = 1.0
#: Milliseconds for which SQLite itself waits for a lock. It does so in C, where Python handles no
#: signal.
_BUSY_MS: Final = 100
#: SQLite does not wait at all while another process switches the file to WAL mode.
_REPEAT_SECONDS: Final = 0.02
#: Seconds for the first page of a file that another process has created.
CREATING_SECONDS: Final = 2.0
#: Seconds after which the server's clock is looked at again, because it may be set.
CLOCK_SECONDS: Final = 1.0
#: Seconds that the time of day may move against the monotonic clock, as when it is slewed. A
#: machine that was suspended is further behind: its monotonic clock stood still.
MOST_SLEW: Final = 0.05
#: Rows that a snapshot has in memory at once.
ROWS_AT_ONCE: Final = 1000

#: A connection whose packets are lost is an error after 30 s, and no router forgets an idle one.
_TCP: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,  # milliseconds
}
#: Whatever the environment says (PGCLIENTENCODING), texts are sent in UTF-8.
_POSTGRESQL: Final = {"client_encoding": "UTF8"}
#: In WALSH_STATE_URL: behind a pooler each transaction may have another session. Statements are not
#: prepared there, because the next session does not know them; a first visit takes a fifth longer.
_POOLER: Final = "pooler"
#: PostgreSQL's invalid_sql_statement_name and duplicate_prepared_statement.
_NOT_PREPARED: Final = ("26000", "42P05")
#: Memory of SQLite for pages, at most.
_CACHE_KIB: Final = 16 * 1024
#: The low bits of SQLite's extended error codes.
_PRIMARY_CODE: Final = 0xFF
#: PostgreSQL's serialization_failure and deadlock_detected, and insufficient_privilege.
_IN_THE_WAY: Final = ("40001", "40P01")
_NO_RIGHTS: Final = "42501"
#: The class of PostgreSQL's errors for a full disk, too little memory and too many connections.
_NO_RESOURCES: Final = "53"
#: Those for values beyond a limit of PostgreSQL, such as the size of a row in an index, and for
#: values that a trigger or a view refuses. SQLAlchemy has no class for them.
_REFUSALS: Final = ("54000", "54001", "P0001", "44000")
_ENCODING: Final = text("SHOW server_encoding")
_CREATE_IN_UTF8: Final = (
    "create another one with CREATE DATABASE name ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' "
    "TEMPLATE template0, and name it in WALSH_STATE_URL"
)
#: The statement that PostgreSQL's messages quote, with a mark below it.
_STATEMENT: Final = re.compile(r"\nLINE \d+: .*\n *\^")
#: The first bytes of a write-ahead log: SQLite's, in either byte order, or none written yet.
_LOG_STARTS: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83", b"\0\0\0\0")
_CLOCK: Final = text("SELECT extract(epoch FROM clock_timestamp())::double precision")


class StateError(RuntimeError):
    """The state cannot be used: the database, the reason, and the remedy."""


class RefusedValues(ValueError):
    """The database does not accept a value of a transaction, of which nothing was written."""


class Database:
    """The state's database, for use by one thread.

    Raises StateError for a database that cannot be reached, is damaged, or was written by another
    version; existing data is never overwritten. If the database fails later, methods raise the
    result of ``failed`` for the StateError. After the loss of a server they wait while ``waits``
    returns True, for at most two minutes. After a silent server, or one that did not come back,
    they send it nothing more. ``clock``, which returns epoch seconds, replaces that of the
    database.
    """

    def __init__(
        self,
        url: str,
        failed: Callable[[StateError], Exception] = lambda error: error,
        waits: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._waiting = Waiting(waits)
        self._given_clock = clock
        self._engine = _open_engine(url, self._waiting)
        # A crawl that was refused at its start does not call ``close``.
        finalize(self, self._engine.dispose).atexit = False
        self.is_sqlite = self._engine.dialect.name == "sqlite"
        self._begin = _begin(self._engine.url)
        self.file = StateFile.of(self._engine.url)  #: of an SQLite state; None on a server
        self._clock = ServerClock()
        self._failed: Callable[[StateError], Exception] = lambda error: error
        self._given_up: StateError | None = None
        self._is_closed = False
        try:
            if self.file is not None:
                self.file.check_sound()
            self._prepare()
        except DBAPIError as error:
            self.close()
            raise _state_error(self._engine, error) from error
        except StateError:
            self.close()
            raise
        self._waiting.is_open = True
        self._failed = failed

    def __str__(self) -> str:
        return without_password(self._engine.url)

    def write(self, work: Callable[[Connection], _Result], subject: str = "") -> _Result:
        """Run ``work`` in one transaction, and return its value once that is committed.

        On SQLite the transaction holds the database's write lock from its beginning. So no other
        process changes the rows that were read. A time that is read from the clock is the time of
        the write, however long the transaction waited for the lock.

        Raises the result of ``failed`` if the database fails; its message names the ``subject`` of
        the transaction, for example a URL. Raises RefusedValues for values that the database does
        not accept: by their encoding, length or size, or because of a constraint.
        """
        return self._run(work, "BEGIN IMMEDIATE" if self.is_sqlite else self._begin, subject)

    def read(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run ``work``, which only reads, and return its value; no writer waits for it.

        Raises the result of ``failed`` if the database fails.
        """
        return self._run(work, self._begin)

    def all(self, query: Executable, **values: object) -> Sequence[Sequence[Any]]:
        """Return the rows of a query; ``values`` are its parameters."""
        return self.read(lambda connection: connection.execute(query, values).all())

    def first(self, query: Executable, **values: object) -> Row[Any] | None:
        """Return the first row of a query, or None."""
        return self.read(lambda connection: connection.execute(query, values).first())

    def scalar(self, query: Executable, **values: object) -> Any:  # noqa: ANN401 - any column
        """Return the first column of the first row of a query, or None."""
        return self.read(lambda connection: connection.scalar(query, values))

    def change(self, statement: UpdateBase) -> int:
        """Run one statement in a transaction; return the number of rows that it changed."""
        return self.write(lambda connection: connection.execute(statement).rowcount)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a separate connection that reads the database as it is now; no writer waits.

        At most a thousand rows of a statement are in memory at once. Raises StateError if the
        database fails meanwhile.
        """
        engine = self._snapshot_engine()
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("BEGIN" if self.is_sqlite else _BEGIN_SNAPSHOT)
                yield connection.execution_options(yield_per=ROWS_AT_ONCE)
        except DBAPIError as error:
            raise _state_error(engine, error) from error
        finally:
            engine.dispose()

    def _snapshot_engine(self) -> Engine:
        """Return an engine for a separate connection; of a state in memory it reads a copy."""
        if not self.is_sqlite or self.file is not None:
            return _engine_of(self._engine.url, poolclass=NullPool)
        copy = sqlite3.connect(":memory:", isolation_level=None)
        with self._engine.connect() as connection:
            driver_connection: Any = connection.connection.driver_connection
            driver_connection.backup(copy)
        return create_engine("sqlite://", creator=lambda: copy, poolclass=NullPool)

    def rows(self, query: ViewQuery, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a view; see `State.rows`."""
        now = self._given_clock() if self._given_clock else None
        with self.snapshot() as connection:
            yield from read_view(connection, query, params, now)

    def now(self) -> float:
        """Return epoch seconds by a clock that all processes on the database share.

        That is the clock of the server, as a transaction has seen it in the last second before it
        began; on SQLite, which has none, the clock of the machine.
        """
        return time.time() if self.is_sqlite else self._clock.now()

    def close(self) -> None:
        """Close the connections; committed rows stay."""
        self._is_closed = True
        self._engine.dispose()

    def _check_encoding(self) -> None:
        """Raise StateError for a database on PostgreSQL that cannot store every text."""
        encoding = None if self.is_sqlite else self.scalar(_ENCODING)
        if encoding not in (None, "UTF8"):
            raise StateError(
                f"{self} cannot be used as state: its encoding is {encoding}, which cannot store "
                f"every text; {_CREATE_IN_UTF8}"
            )

    def _prepare(self) -> None:
        """Create the tables if there are none, check their version, and bring views up to date."""
        self._check_encoding()
        is_new = not self.read(has_schema) and self.write(_create)  # else no lock is waited for
        if is_new:
            logger.info("created the state database %s", self)
        if (found := self.read(versions)) != [VERSION]:
            raise StateError(
                f"{self} has schema version {found}, this walsh-scrapy knows {VERSION}; "
                "use the version that wrote it, or another database"
            )
        if not is_new and not self.read(has_views):
            try:
                self.write(create_views)
            except StateError as error:  # as of a role that only reads; the next one tries again
                logger.warning("the views stay as another version made them: %s", error)

    def _run(self, work: Callable[[Connection], _Result], begin: str, subject: str = "") -> _Result:
        """Run ``work`` in a transaction, again if the database was lost or locked."""
        if self._is_closed:
            raise StateError(f"{self} is closed")
        if self._given_up is not None:
            raise self._failed(self._given_up)
        began, lost = time.monotonic(), 0
        while True:
            try:
                result = self._once(work, begin)
                break
            except (UnicodeEncodeError, OverflowError) as error:  # the driver refuses a value
                raise RefusedValues(str(error)) from error
            except DBAPIError as error:
                if _is_of_values(error):
                    raise RefusedValues(str(error.orig).partition("\n")[0]) from error
                if not self._may_run_again(error, began):
                    raise self._failed(self._end_of_waiting(error, subject)) from error
                lost = self._pause(error, lost)
        if lost:
            logger.warning("%s is back; the crawl continues", self)
        self._check_file()  # the rows may be in a file that nobody can open
        return result

    def _pause(self, error: DBAPIError, lost: int) -> int:
        """Sleep after a failure. Return the losses of the server; ``lost`` are the earlier ones."""
        if not error.connection_invalidated:
            time.sleep(_REPEAT_SECONDS)
            return lost
        if lost:
            time.sleep(_RETRY_SECONDS)
        else:  # mostly only the connection is lost, and a new one works at once
            reason = str(error.orig).partition("\n")[0]
            logger.warning("%s is lost (%s); the crawl waits for it", self, reason)
        return lost + 1

    def _once(self, work: Callable[[Connection], _Result], begin: str) -> _Result:
        try:
            connection = self._engine.connect()
        except DBAPIError as error:
            error.connection_invalidated = not self.is_sqlite  # there is none
            raise
        with connection:
            if self._given_clock:
                connection.execution_options(clock=self._given_clock)
            connection.exec_driver_sql(begin)
            if not self.is_sqlite and self._clock.is_old:
                self._clock.measure(lambda: float(connection.execute(_CLOCK).scalar_one()))
            result = work(connection)
            connection.commit()
        return result

    def _may_run_again(self, error: DBAPIError, began: float) -> bool:
        """Return True if a transaction that failed is run again: until then it waited in vain."""
        if isinstance(error.orig, sqlite3.Error):
            code = getattr(error.orig, "sqlite_errorcode", 0)
            is_locked = code & _PRIMARY_CODE == sqlite3.SQLITE_BUSY
            return is_locked and self._waiting.may_last(began, LOCKED_SECONDS)
        is_lost = error.connection_invalidated or _sqlstate(error) in _IN_THE_WAY
        may_wait = is_lost and self._waiting.is_open
        return may_wait and self._waiting.may_last(began, LOST_SECONDS)

    def _end_of_waiting(self, error: DBAPIError, subject: str) -> StateError:
        """Return the StateError for a failure; after a wait in vain a server gets nothing more."""
        found = _state_error(self._engine, error, subject)
        if not self.is_sqlite and self._waiting.is_over:  # a lock of SQLite may end meanwhile
            self._given_up = found
        return found

    def _check_file(self) -> None:
        """Raise the result of ``failed`` if the file of the state is no longer there."""
        if self.file is None:
            return
        try:
            self.file.check_same()
        except StateError as error:
            raise self._failed(error) from error


def _create(connection: Connection) -> bool:
    """Create tables and views, if there are no tables, and return True if there were none."""
    is_new = create(connection)
    if is_new:
        create_views(connection)
    return is_new


class Store:
    """A kind of row in the database.

    Methods raise the result of ``State(failed=...)`` if the database fails: a StateError by
    default, ``RequestDeferred`` in a crawl.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._all = database.all

    def _find(self, kind: type[_Record], table: Table, key: object) -> _Record | None:
        """Return the record of the row with this primary key, or None."""
        row = self._database.first(by_key(kind, table), key=key)
        return None if row is None else record_of(kind, row)


class Waiting:
    """The waits of one Database; after one that took too long no other is begun.

    ``goes_on`` returns False once the run is to end. So a stopped or failed run ends within
    seconds, however many transactions follow. All moments are those of the monotonic clock.
    """

    def __init__(self, goes_on: Callable[[], bool]) -> None:
        self.goes_on = goes_on
        self.is_over = False
        self.is_open = False  #: True once the database was used, so that connections are repeated

    def may_last(self, began: float, seconds: float) -> bool:
        """Return True while something may be waited for, since ``began``, for so many seconds."""
        limit = seconds if self.goes_on() else ENDING_SECONDS
        self.is_over = self.is_over or time.monotonic() - began > limit
        return not self.is_over


class ServerClock:
    """The time of a server, which the processes on several machines use to share hosts (R4).

    It is an offset to the monotonic clock of this machine, which nobody sets.
    """

    def __init__(self) -> None:
        self._measured_at = -math.inf
        self._ahead, self._wall_ahead = 0.0, math.inf  # of the monotonic clock

    def now(self) -> float:
        """Return epoch seconds by the last measurement."""
        return time.monotonic() + self._ahead

    @property
    def is_old(self) -> bool:
        """Whether it is to be measured again."""
        now = time.monotonic()
        return now - self._measured_at > CLOCK_SECONDS or self._is_set_anew(now)

    def _is_set_anew(self, now: float) -> bool:
        """Whether there is no measurement, or this machine slept, or its clock was set since."""
        return abs(time.time() - now - self._wall_ahead) > MOST_SLEW

    def measure(self, read: Callable[[], float]) -> None:
        """Measure it; ``read`` reads the server's clock, and returns epoch seconds."""
        began = time.monotonic()
        now = read()
        ended = time.monotonic()
        ahead = now - (began + ended) / 2  # the server looked at its clock in between
        if abs(ahead - self._ahead) > (ended - began) / 2 or self._is_set_anew(ended):
            self._ahead = ahead  # else a slow answer may be less exact than the last one
        self._wall_ahead = time.time() - ended
        self._measured_at = ended


class StateFile:
    """The file that a state's URL names.

    SQLite takes an empty file for a new database, and ignores a write-ahead log that it cannot
    read. It goes on writing into a file that was deleted. All three would lose the state silently,
    so they are errors here (decision 29).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: tuple[int, int] | None = None

    @classmethod
    def of(cls, url: URL) -> Self | None:
        """Return the file of a database; None for a server, or a database in memory."""
        return cls(Path(str(url.database))) if _is_file(url) else None

    @property
    def number(self) -> str:
        """The inode that was opened: a move on its disk keeps it, a copy next to it has another."""
        return str(self._opened[1]) if self._opened else ""

    @property
    def exists(self) -> bool:
        """Whether there is a file, sound or not. Raises StateError if that cannot be seen."""
        with self._readable():
            return self.path.is_file()

    def check_sound(self) -> None:
        """Raise StateError for an empty file, and for a write-ahead log that is none."""
        deadline = time.monotonic() + CREATING_SECONDS
        log = Path(f"{self.path}-wal")
        with self._readable():
            while self.exists and self.path.stat().st_size == 0:
                if time.monotonic() > deadline:
                    raise StateError(
                        f"the state {self.path} is an empty file, so its content is lost; restore "
                        "a backup, or delete the file to begin an empty state"
                    )
                time.sleep(_REPEAT_SECONDS)
            if self.exists and log.is_file():
                with log.open("rb") as file:
                    start = file.read(4)
                if start and start not in _LOG_STARTS:
                    raise StateError(
                        f"the state cannot be used: {log} is damaged, and its newest commits are "
                        "in there; restore a backup, or move that file away to go on without them"
                    )

    def check_same(self) -> None:
        """Raise StateError if the name no longer leads to the file that was first found there."""
        try:
            stat = self.path.stat()
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        found = stat.st_dev, stat.st_ino
        self._opened = self._opened or found
        if found != self._opened:
            raise self._lost("another file has its name")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raise StateError for an OSError of the block."""
        try:
            yield
        except OSError as error:
            raise StateError(
                f"the state {self.path} cannot be used: {error.strerror} ({error.filename}); "
                "check the permission to read and write the file and its folder, then start again"
            ) from error

    def _lost(self, why: str) -> StateError:
        return StateError(
            f"the state {self.path} was deleted or replaced while it was in use ({why}), and "
            "further writes would be lost; stop all crawls that use it, put it or a backup back, "
            "then start again"
        )


def exists(url: str) -> bool:
    """Return True if a state was ever created at ``url``; create none.

    Raises StateError if the database cannot be read.
    """
    engine = _bare_engine(url)
    if file := StateFile.of(engine.url):
        if not file.exists:
            return False
        file.check_sound()
    elif engine.dialect.name == "sqlite":
        return False
    try:
        with engine.connect() as connection:
            return has_schema(connection)
    except DBAPIError as error:
        raise _state_error(engine, error) from error
    finally:
        engine.dispose()


def files_of(url: str) -> list[Path]:
    """Return where a state has its files, there or not; none for a server. Raises StateError."""
    file = StateFile.of(_bare_engine(url).url)
    return [Path(f"{file.path}{end}") for end in ("", "-wal", "-shm", "-journal") if file]


#: Scheme and user of a URL.
_USER: Final = re.compile("(?:[^/:]*:?//)?[^/:?@]*")
_MALFORMED: Final = "in a password write %40 for @, %2F for /, %3A for : and %3F for ?"


def without_password(url: str | URL) -> str:
    """Return a state's URL for logs and messages: ``***`` for its password, and in its query.

    The URL may be malformed, and the password may have characters that ought to be escaped.
    """
    text = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    if text.startswith("sqlite"):
        return text
    named, (place, mark, query) = _USER.match(text), text.partition("?")
    user = named[0] if named else ""
    if "@" in query:  # the end of the password cannot be found
        return f"{user}:***"
    before, at, host = place.rpartition("@")
    shown = f"{user}:***@{host}" if at and user != before else place
    return f"{shown}?***" if mark else shown


def _open_engine(url: str, waiting: Waiting) -> Engine:
    """Return an engine whose connections wait by ``waiting``. Raises StateError.

    It creates the folder of an SQLite file.
    """
    engine = _bare_engine(url)
    if engine.dialect.name == "sqlite":
        _make_folder(engine.url)
        event.listen(engine, "connect", _tune_sqlite)
    else:
        event.listen(engine, "do_connect", _bounded_connections(waiting))
    return engine


def _bare_engine(url: str) -> Engine:
    """Return an engine that creates and changes nothing by itself. Raises StateError."""
    try:
        address = _address(url)
        engine = _engine_of(address)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as error:
        if getattr(error, "name", None) == "psycopg":
            need = "needs psycopg: pip install 'walsh-scrapy[postgres]'"
            raise StateError(
                f"WALSH_STATE_URL is {without_password(url)!r}, which {need}"
            ) from error
        is_of_file = url.startswith("sqlite")  # of any other it may quote a password
        why = error if is_of_file or isinstance(error, NoSuchModuleError) else _MALFORMED
        raise _no_state(url, why) from None
    if engine.dialect.name not in ("sqlite", "postgresql"):
        raise _no_state(url, f"{engine.dialect.name} is neither SQLite nor PostgreSQL")
    return engine


def _engine_of(address: URL, **options: Any) -> Engine:  # noqa: ANN401 - SQLAlchemy's
    if address.get_backend_name() == "postgresql":
        options["isolation_level"] = "AUTOCOMMIT"  # we begin transactions ourselves
    engine = create_engine(address, connect_args=_arguments(address), **options)
    if _is_pooled(address):
        event.listen(engine, "do_connect", _remove_pooler)
    elif address.get_backend_name() == "postgresql":
        event.listen(engine, "connect", _tune_postgresql)
    if _is_file(address):
        event.listen(engine, "do_connect", _connect_to_read)
    return engine


def _is_pooled(address: URL) -> bool:
    return _POOLER in address.query


def _remove_pooler(
    _dialect: object, _record: object, _arguments: list[Any], options: dict[str, Any]
) -> None:
    """Remove our own part of the URL, which the driver does not know."""
    options.pop(_POOLER, None)


def _connect_to_read(
    _dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]
) -> sqlite3.Connection | None:
    """Open a file that this user may only read; None for any other, which is opened as ever.

    SQLite would write next to it. Without a write-ahead log nothing can change while it is read.
    """
    path = Path(arguments[0])
    if not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return None
    how = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
    opened: sqlite3.Connection = sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, **options)
    return opened


def _address(url: str) -> URL:
    """Parse a URL so that it names one file, and no other: by its absolute path for SQLite.

    In a path ``%20`` is a space, as in every URL. SQLAlchemy before 2.1 does not read it so, and
    takes the part after a ``?`` for options. Raises ValueError.
    """
    address = make_url(url)
    if not _is_file(address):
        if url.count("@") > 1 or "@" in url.partition("?")[2]:
            raise ValueError(_MALFORMED)
        if address.query.get(_POOLER, "1") != "1":
            raise StateError(f"WALSH_STATE_URL: {_POOLER} must be 1, or left out")
        return address
    _, _, written = url.partition(":///")
    if "?" in written:
        raise ValueError("a '?' in the path is written as %3F, and there are no options after it")
    path = unquote(written, errors="strict")
    if not path.isprintable():
        raise ValueError("the path has control characters")
    if path.startswith("~"):
        raise ValueError("no '~' is expanded in it")
    if path != written and Path(written).exists() and not Path(path).exists():
        raise ValueError(f"it names {path!r}, but the file is {written!r}: write %25 for a '%'")
    return address.set(database=str(Path(path).absolute()))


def _is_file(url: URL) -> bool:
    is_sqlite = url.get_backend_name() == "sqlite"
    return is_sqlite and url.database not in (None, "", ":memory:")


def _arguments(address: URL) -> dict[str, Any]:
    if address.get_backend_name() == "postgresql":
        own: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, **_TCP}
        if _is_pooled(address):
            own["prepare_threshold"] = None
        return _POSTGRESQL | {name: own[name] for name in own.keys() - address.query}
    # We begin transactions ourselves: the driver's BEGIN would take the lock too late.
    return {"isolation_level": None, "timeout": LOCKED_SECONDS}


def _make_folder(url: URL) -> None:
    if _is_file(url):
        path = Path(str(url.database))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"WALSH_STATE_URL is in the folder of {path}, which cannot be created: "
                f"{error.strerror}"
            ) from error


def _tune_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DBAPI connection
    # With 2 MiB, the default, the pages of a large index are written and read again and again.
    limits = f"busy_timeout={_BUSY_MS}", f"cache_size=-{_CACHE_KIB}"
    for pragma in (*limits, "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _tune_postgresql(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DBAPI connection
    # A plan that was made while its table was nearly empty would always read all of it.
    plans = "SET plan_cache_mode = 'force_custom_plan'"
    connection.execute(f"{_limits('SET', IDLE_SECONDS)};{plans}")
    connection.commit()


def _limits(command: str, idle_seconds: float) -> str:
    """Return the statements that limit the waits of a session or of a transaction on PostgreSQL.

    A lock that another session holds is an error, as on SQLite, and not an endless wait.
    """
    return (
        f"{command} lock_timeout = {1000 * LOCKED_SECONDS:.0f};"
        f"{command} idle_in_transaction_session_timeout = {1000 * idle_seconds:.0f}"
    )


def _begin(address: URL) -> str:
    """Return the statements that begin a transaction; behind a pooler it has limits of its own."""
    if address.get_backend_name() == "sqlite":
        return "BEGIN"
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
    return f"{begin};{_limits('SET LOCAL', IDLE_SECONDS)}" if _is_pooled(address) else begin


#: The reader of a snapshot may take long. Compiling a view would take longer than running it; and a
#: cursor is read to its end, so a plan must not favour its first rows.
_BEGIN_SNAPSHOT: Final = (
    f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;{_limits('SET LOCAL', 0.0)};"
    "SET LOCAL jit = off;SET LOCAL cursor_tuple_fraction = 1"
)


def _bounded_connections(waiting: Waiting) -> Callable[..., object]:
    """Return a function that connects, and ends a connection whose server is silent for too long.

    A server may be silent without an error: its machine is frozen, or a router drops all packets.
    libpq waits for ever then, and no timeout of the server helps.
    """
    # The driver is in an extra, so it may be absent.
    import psycopg  # noqa: PLC0415
    from psycopg.waiting import Ready  # noqa: PLC0415

    class BoundedConnection(psycopg.Connection[Any]):
        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - psycopg's
            return super().wait(self._bound(gen), *arguments, **options)

        def _bound(self, exchange: Any) -> Generator[Any, Any, Any]:  # noqa: ANN401 - psycopg's
            """Pass an exchange's requests on; psycopg resumes it ten times per second."""
            began = time.monotonic()
            try:
                wanted = next(exchange)
                while True:
                    ready = yield wanted
                    if ready != Ready.NONE:
                        began = time.monotonic()
                    elif not waiting.may_last(began, SILENT_SECONDS):
                        self.close()
                        seconds = time.monotonic() - began
                        raise psycopg.OperationalError(f"the server is silent for {seconds:.0f} s")
                    wanted = exchange.send(ready)
            except StopIteration as end:
                return end.value

    def connect(
        _dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]
    ) -> BoundedConnection:
        if waiting.is_open:
            options = options | {"connect_timeout": RECONNECT_SECONDS}
        return BoundedConnection.connect(*arguments, **options)

    return connect


def _state_error(engine: Engine, error: DBAPIError, subject: str = "") -> StateError:
    """Return the StateError for a driver's error: database, reason and remedy in one sentence.

    The ``subject`` of the transaction goes before it.
    """
    name = without_password(engine.url)
    why = " ".join(_STATEMENT.sub("", str(error.orig)).split())  # PostgreSQL's have several lines
    about = f"{subject} is not recorded: " if subject else ""
    remedy = _remedy(engine, error)
    if "malformed JSON" in why or "syntax for type json" in why:
        names = f"`{program_name()} export -o entries.jsonl` names a damaged entry"
        remedy = f"a row is damaged, and {names}; delete the row, or restore a backup"
    return StateError(f"{about}{name} cannot be used as state: {why}; {remedy}")


def _remedy(engine: Engine, error: DBAPIError) -> str:
    reason = str(error.orig)
    if engine.dialect.name != "sqlite":
        if "lock timeout" in reason:
            return f"another session holds a lock for {LOCKED_SECONDS:.0f} s; end it, start again"
        if _sqlstate(error) in _NOT_PREPARED and not _is_pooled(engine.url):
            return f"there is a pooler in transaction mode: add ?{_POOLER}=1 to WALSH_STATE_URL"
        if "conversion between UTF8 and" in reason:
            return _CREATE_IN_UTF8
        if (_sqlstate(error) or "").startswith(_NO_RESOURCES):
            return "check the server's disk space, memory and connection limit, then start again"
        if _sqlstate(error) == _NO_RIGHTS:
            return "a crawl needs the role that owns the tables, or, for a new state, the database"
        return "check that the server runs and accepts the login, then start again"
    if "locked" in reason:
        return "another process holds its lock; end that process, then start again"
    if "unable to open" in reason:
        return "check the permission to read and write the file and its folder, then start again"
    if "full" in reason or "readonly" in reason or "disk I/O" in reason:
        return "check the free space and the permission to write, then start again"
    return "if the file is damaged, restore a backup, or move it away to start an empty state"


def _is_of_values(error: DBAPIError) -> bool:
    """Return True for an error of the values of a statement, and not of the database."""
    return isinstance(error, (IntegrityError, DataError)) or _sqlstate(error) in _REFUSALS


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def _no_state(url: str, reason: object) -> StateError:
    return StateError(
        f"WALSH_STATE_URL is {without_password(url)!r}, which does not open a database ({reason}); "
        "write sqlite:////absolute/path.sqlite3 or postgresql+psycopg://user@host/database"
    )
