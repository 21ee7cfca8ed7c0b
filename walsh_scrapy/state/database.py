"""The state's database: SQLite or PostgreSQL, opened with checks, used in short transactions.

A transaction is a function that takes SQLAlchemy's `Connection` and returns a value. If the server
goes away, or another transaction is in the way, the function is run again. So it must not change
anything in memory, and it must recognize its own rows: its COMMIT may have succeeded, and only the
answer to it been lost.

All workers share the clock of the database. A statement reads the present as `NOW`, so that two
machines whose clocks differ still agree how long a host must wait. `ServerClock` gives the same
time between statements.
"""

from __future__ import annotations

import errno
import logging
import math
import sqlite3
import time
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import finalize

from sqlalchemy import Double, bindparam, create_engine, func, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import NullPool
from sqlalchemy.sql.functions import FunctionElement

from walsh_scrapy.programname import program_name
from walsh_scrapy.state.engine import (
    BEGIN_SNAPSHOT,
    CONFLICTS,
    CREATE_IN_UTF8,
    LOCK_TIMEOUT_SECONDS,
    LOST_SERVER_TIMEOUT_SECONDS,
    READ_ONLY,
    SETTING_NAME,
    SILENCE_TIMEOUT_SECONDS,
    UPGRADE_SILENCE_TIMEOUT_SECONDS,
    RefusedValues,
    StateError,
    Waiting,
    bare_engine,
    begin_statement,
    describe_error,
    engine_of,
    names_file,
    open_engine,
    primary_code,
    refuses_values,
    sqlstate_of,
    without_password,
)
from walsh_scrapy.state.records import by_key, commit, record_of, run_by_driver
from walsh_scrapy.state.tables import (
    FIRST_VERSION,
    LOCK_NUMBER,
    VERSION,
    create,
    has_schema,
    last_writer,
    versions,
)
from walsh_scrapy.state.views import ViewQuery, create_views, has_views, read_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Self

    from _typeshed import DataclassInstance
    from sqlalchemy import URL, ColumnElement, Connection, Engine, Executable, Row, Table
    from sqlalchemy.sql.dml import UpdateBase

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_Record = TypeVar("_Record", bound="DataclassInstance")

#: Rows that a snapshot has in memory at once.
MAX_ROWS_IN_MEMORY: Final = 1000
#: Seconds between two attempts to reach a server that went away.
_RECONNECT_SECONDS: Final = 1.0
#: Seconds between two attempts to lock the database. SQLite itself does not wait while another
#: process switches the file to WAL mode.
_LOCK_RETRY_SECONDS: Final = 0.02
_ENCODING_SQL: Final = text("SHOW server_encoding")
_LOCK_SQL: Final = text("SELECT pg_try_advisory_xact_lock(hashtextextended(:name, 0))")
_CLOCK_SQL: Final = text("SELECT extract(epoch FROM clock_timestamp())::double precision")


class Database:
    """The state's database, for use by one thread.

    Raises StateError for a database that cannot be reached, is damaged, or was written by another
    version; existing data is never overwritten. If the database fails after that, methods raise
    ``wrap_error(StateError)``. If a server goes away, or only allows reading although it has
    accepted a write, they wait for at most two minutes, while ``may_wait`` returns True. Nothing
    more is sent to a server that stayed silent or did not come
    back. ``clock``, which returns epoch seconds, replaces the clock of the database. ``upgrade`` is
    called for a state of an older schema; without it, such a state is refused. ``is_target`` opens
    a database that gets the rows of another state: whatever tables it has, they are left to the
    caller, and a statement may take as long as it needs.
    """

    def __init__(
        self,
        url: str,
        wrap_error: Callable[[StateError], Exception] = lambda error: error,
        may_wait: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] | None = None,
        upgrade: Callable[[Database], None] | None = None,
        *,
        is_target: bool = False,
    ) -> None:
        self._waiting = Waiting(may_wait, math.inf if is_target else SILENCE_TIMEOUT_SECONDS)
        self._simulated_clock = clock
        name = "the target" if is_target else SETTING_NAME
        self._engine = open_engine(url, self._waiting, name)
        # A crawl that was refused at its start does not call ``close``.
        self._kept: list[Connection] = []  #: the connection of the last transaction, or none
        finalize(self, _close, self._engine, self._kept).atexit = False
        self.is_sqlite = self._engine.dialect.name == "sqlite"
        self._begin_sql = begin_statement(self._engine.url)
        self.file = StateFile.from_url(self._engine.url)  #: None on a server, and in memory
        self._server_clock = ServerClock()
        self._wrap_error: Callable[[StateError], Exception] = lambda error: error
        self._final_error: StateError | None = None
        self._is_closed = False
        self._has_written = False
        try:
            if self.file is not None:
                self.file.check_sound()
            self._check_encoding()
            if not is_target:
                self._prepare(upgrade)
        except DBAPIError as error:
            self.close()
            raise describe_error(self._engine, error) from error
        except StateError:
            self.close()
            raise
        self._waiting.is_open = True
        self._wrap_error = wrap_error

    def __str__(self) -> str:
        return without_password(self._engine.url)

    @property
    def is_in_memory(self) -> bool:
        """Whether the database ends with this process."""
        return self.is_sqlite and self.file is None

    def write(self, work: Callable[[Connection], _Result], subject: str = "") -> _Result:
        """Run ``work`` in one transaction, and return its value after the commit.

        On SQLite the transaction holds the database's write lock from its beginning. So no other
        process changes the rows that ``work`` reads, and a time that it reads from the clock is the
        time of the write, however long the transaction waited for the lock.

        Raises ``wrap_error(StateError)`` if the database fails; the message names the ``subject``
        of the transaction, for example a URL. Raises RefusedValues for values that the database
        does not accept because of their encoding, length or size, or because of a constraint.
        """
        begin = "BEGIN IMMEDIATE" if self.is_sqlite else self._begin_sql
        result = self._run(work, begin, subject)
        self._has_written = True
        return result

    def read(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run ``work``, which only reads, and return its value; no writer waits for it.

        Raises ``wrap_error(StateError)`` if the database fails.
        """
        return self._run(work, self._begin_sql)

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

        At most a thousand rows of a statement are in memory at once. Raises
        ``wrap_error(StateError)`` if the database fails during the block.
        """
        engine = self._snapshot_engine()
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("BEGIN" if self.is_sqlite else BEGIN_SNAPSHOT)
                yield connection.execution_options(yield_per=MAX_ROWS_IN_MEMORY)
        except DBAPIError as error:
            raise self._wrap_error(describe_error(engine, error)) from error
        finally:
            engine.dispose()

    @contextmanager
    def lock(self, name: str) -> Iterator[bool]:
        """Hold a lock for a block; False if another process holds the one with this name.

        The lock is of no row, and no transaction waits for it. It ends with its process. A state in
        memory needs none.
        """
        if self.is_sqlite:
            with _file_lock(self.file, name) as is_locked:
                yield is_locked
            return
        with self.snapshot() as connection:
            is_locked = connection.scalar(_LOCK_SQL, {"name": f"{LOCK_NUMBER} {name}"})
            yield bool(is_locked)

    def _snapshot_engine(self) -> Engine:
        """Return an engine for a separate connection; of a state in memory it reads a copy."""
        if not self.is_in_memory:
            return engine_of(self._engine.url, poolclass=NullPool)
        copy = sqlite3.connect(":memory:", isolation_level=None)
        with self._engine.connect() as connection:
            driver_connection: Any = connection.connection.driver_connection
            driver_connection.backup(copy)
        return create_engine("sqlite://", creator=lambda: copy, poolclass=NullPool)

    def rows(self, query: ViewQuery, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a view; see `State.rows`."""
        now = self._simulated_clock() if self._simulated_clock else None
        with self.snapshot() as connection:
            yield from read_view(connection, query, params, now)

    def view(self, query: ViewQuery) -> list[dict[str, Any]]:
        """Return the rows of a view, read by the connection of the stores."""
        now = self._simulated_clock() if self._simulated_clock else None
        return self.read(lambda connection: list(read_view(connection, query, {}, now)))

    def now(self) -> float:
        """Return epoch seconds by a clock that all processes on the database share.

        That is the clock of the server, as a transaction has seen it in the second before it began.
        SQLite has no clock, so there it is the clock of this machine.
        """
        return time.time() if self.is_sqlite else self._server_clock.now()

    def close(self) -> None:
        """Close the connections; committed rows stay."""
        self._is_closed = True
        _close(self._engine, self._kept)

    def _check_encoding(self) -> None:
        """Raise StateError for a database on PostgreSQL that cannot store every text."""
        encoding = None if self.is_sqlite else self.scalar(_ENCODING_SQL)
        if encoding not in (None, "UTF8"):
            raise StateError(
                f"{self} cannot be used as state: its encoding is {encoding}, which cannot store "
                f"every text; {CREATE_IN_UTF8}"
            )

    def _prepare(self, upgrade: Callable[[Database], None] | None) -> None:
        """Create the tables if there are none, check their version, and bring views up to date."""
        # Without the first look each start would wait for the write lock.
        is_new = not self.read(has_schema) and self.write(create_schema)
        if is_new:
            logger.info("created the state database %s", self)
        if self._is_old():
            if upgrade is None:
                raise StateError(
                    f"{self} was written by an older version, and is not upgraded yet: call "
                    f"`{program_name()} upgrade`, or start a crawl, which does the same"
                )
            self._waiting.silence_seconds = UPGRADE_SILENCE_TIMEOUT_SECONDS
            upgrade(self)
            self._waiting.silence_seconds = SILENCE_TIMEOUT_SECONDS
        if not is_new and not self.read(has_views):
            try:
                self.write(create_views)
            except StateError as error:  # for example a role that may only read
                logger.warning("cannot update the views, which another version made: %s", error)

    def _is_old(self) -> bool:
        """Return True for an older schema that can be upgraded.

        Raises StateError for a newer one, and for a version that is none.
        """
        stored = self.read(versions)
        if stored == [VERSION]:
            return False
        if len(stored) == 1 and FIRST_VERSION <= stored[0] < VERSION:
            return True
        if len(stored) == 1 and stored[0] > VERSION:
            writer = self.read(last_writer) or "a newer version"
            raise StateError(
                f"{self} was written by {writer}, with schema {stored[0]}; this one knows schemas "
                f"up to {VERSION}: use the version that wrote it, or another database"
            )
        raise StateError(
            f"{self} has schema version {stored}, this walsh-scrapy knows {VERSION}; "
            "use the version that wrote it, or another database"
        )

    def _run(self, work: Callable[[Connection], _Result], begin: str, subject: str = "") -> _Result:
        """Run ``work`` in a transaction, again if the database was lost or locked."""
        if self._is_closed:
            raise StateError(f"{self} is closed")
        if self._final_error is not None:
            raise self._wrap_error(self._final_error)
        began = time.monotonic()
        times_lost = 0
        while True:
            try:
                result = self._run_once(work, begin)
                break
            except (UnicodeEncodeError, OverflowError) as error:  # the driver refuses a value
                raise RefusedValues(str(error)) from error
            except DBAPIError as error:
                if refuses_values(error):
                    raise RefusedValues(str(error.orig).partition("\n")[0]) from error
                if not self._may_run_again(error, began):
                    raise self._wrap_error(self._give_up(error, subject)) from error
                if error.connection_invalidated:
                    times_lost += 1
                self._pause(error, times_lost)
        if times_lost:
            logger.warning("%s is back; the crawl continues", self)
        self._check_file()  # the rows may be in a file that nobody can open
        return result

    def _pause(self, error: DBAPIError, times_lost: int) -> None:
        """Sleep before a transaction runs again; the server was lost ``times_lost`` times."""
        if not error.connection_invalidated:
            time.sleep(_LOCK_RETRY_SECONDS)
        elif times_lost > 1:
            time.sleep(_RECONNECT_SECONDS)
        else:  # mostly only the connection is lost, and a new one works at once
            reason = str(error.orig).partition("\n")[0]
            logger.warning("%s is lost (%s); the crawl waits for it", self, reason)

    def _connect(self) -> Connection:
        """Return the kept connection, or a new one; a transaction within another gets its own."""
        connection = self._kept.pop() if self._kept else None
        if connection is None or connection.invalidated:
            try:
                connection = self._engine.connect()
            except DBAPIError as error:
                # A server that accepts no connection is treated like one that was lost.
                error.connection_invalidated = not self.is_sqlite
                raise
            if self._simulated_clock:
                connection.execution_options(clock=self._simulated_clock)
        return connection

    def _run_once(self, work: Callable[[Connection], _Result], begin: str) -> _Result:
        connection = self._connect()
        try:
            run_by_driver(connection, begin)
            if not self.is_sqlite and self._server_clock.is_old:
                self._server_clock.measure(
                    lambda: float(connection.execute(_CLOCK_SQL).scalar_one())
                )
            try:
                result = work(connection)
            except StateError as error:  # the state is not what it was when it was opened
                raise self._wrap_error(error) from error
            except DBAPIError as error:
                if sqlstate_of(error) == READ_ONLY and self._has_written:
                    # After a failover the next connection may lead to the new primary server.
                    connection.invalidate()
                    error.connection_invalidated = True
                raise
            commit(connection)
        except BaseException:
            connection.close()  # this rolls back
            raise
        if self._kept or self._is_closed:
            connection.close()
        else:
            self._kept.append(connection)
        return result

    def _may_run_again(self, error: DBAPIError, began: float) -> bool:
        """Return True if a failure may be over soon, and the time to wait for that is not."""
        if self.is_sqlite:
            is_locked = primary_code(error) == sqlite3.SQLITE_BUSY
            return is_locked and self._waiting.may_last(began, LOCK_TIMEOUT_SECONDS)
        is_lost = error.connection_invalidated or sqlstate_of(error) in CONFLICTS
        may_wait = is_lost and self._waiting.is_open
        return may_wait and self._waiting.may_last(began, LOST_SERVER_TIMEOUT_SECONDS)

    def _give_up(self, error: DBAPIError, subject: str) -> StateError:
        """Return the StateError for a failure. A server that did not come back gets no more."""
        state_error = describe_error(self._engine, error, subject)
        if not self.is_sqlite and self._waiting.is_over:  # a lock of SQLite may end at any time
            self._final_error = state_error
        return state_error

    def _check_file(self) -> None:
        """Raise ``wrap_error(StateError)`` if the file of the state is no longer there."""
        if self.file is None:
            return
        try:
            self.file.check_same()
        except StateError as error:
            raise self._wrap_error(error) from error


def _close(engine: Engine, kept: list[Connection]) -> None:
    """Close all connections of an engine."""
    while kept:
        kept.pop().close()
    engine.dispose()


def create_schema(connection: Connection) -> bool:
    """Create tables and views, if there are no tables, and return True if there were none."""
    is_new = create(connection)
    if is_new:
        create_views(connection)
    return is_new


class Store:
    """Reads and writes one kind of row.

    Methods raise ``wrap_error(StateError)`` if the database fails: by default the StateError, in a
    crawl `StateUnavailable`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._all = database.all

    def _find(self, kind: type[_Record], table: Table, key: object) -> _Record | None:
        """Return the record of the row with this primary key, or None."""
        row = self._database.first(by_key(kind, table), key=key)
        return None if row is None else record_of(kind, row)


def exists(url: str) -> bool:
    """Return True if a state was ever created at ``url``; create none.

    Raises StateError if the database cannot be read.
    """
    engine = bare_engine(url)
    if file := StateFile.from_url(engine.url):
        if not file.exists:
            return False
        file.check_sound()
    elif engine.dialect.name == "sqlite":
        return False
    try:
        with engine.connect() as connection:
            return has_schema(connection)
    except DBAPIError as error:
        raise describe_error(engine, error) from error
    finally:
        engine.dispose()


def files_of(url: str) -> list[Path]:
    """Return the paths of a state's files, whether they exist or not; an empty list for a server.

    Raises StateError.
    """
    file = StateFile.from_url(bare_engine(url).url)
    ends = ("", "-wal", "-shm", "-journal", "-locks")
    return [Path(f"{file.path}{end}") for end in ends if file]


# ---- the clock that all workers share ----

#: Seconds after which the clock of the server is read again, because somebody may have set it.
MAX_CLOCK_AGE_SECONDS: Final = 1.0
#: Seconds that the time of day may move against the monotonic clock, for example while NTP slews
#: it. After a larger step the machine was suspended, which stops its monotonic clock, or its time
#: of day was set.
MAX_SLEW_SECONDS: Final = 0.05


class _ServerNow(FunctionElement[float]):
    type = Double()
    inherit_cache = True


@compiles(_ServerNow, "postgresql")
def _compile_for_postgresql(*_: object, **__: object) -> str:
    # One moment for the whole statement, from before it waits for a lock: ages count to it.
    return "extract(epoch FROM statement_timestamp())::double precision"


@compiles(_ServerNow, "sqlite")
def _compile_for_sqlite(*_: object, **__: object) -> str:
    return "NULL"


#: The present in epoch seconds, for statements that are run with the parameter of `clock_of`.
NOW: Final[ColumnElement[float]] = func.coalesce(bindparam("now", type_=Double), _ServerNow())


def clock_of(connection: Connection) -> dict[str, float | None]:
    """Return the parameter of `NOW`.

    It is None on PostgreSQL, which reads its own clock. SQLite gets the clock of this machine. The
    execution option ``clock``, a function that returns epoch seconds, replaces both.
    """
    clock = connection.get_execution_options().get("clock")
    if clock is None and connection.dialect.name == "sqlite":
        clock = time.time
    return {"now": None if clock is None else clock()}


class ServerClock:
    """The time of a server without a query each time: an offset to this machine's monotonic clock.

    Nobody sets the monotonic clock, so the offset stays right until the server's clock is set.
    """

    def __init__(self) -> None:
        self._measured_at = -math.inf
        # Seconds that each clock is ahead of the monotonic clock.
        self._server_ahead = 0.0
        self._wall_ahead = math.inf

    def now(self) -> float:
        """Return epoch seconds by the last measurement."""
        return time.monotonic() + self._server_ahead

    @property
    def is_old(self) -> bool:
        """Whether the server's clock should be measured again."""
        now = time.monotonic()
        return now - self._measured_at > MAX_CLOCK_AGE_SECONDS or self._wall_clock_jumped(now)

    def _wall_clock_jumped(self, now: float) -> bool:
        """Return True before the first measurement, and if this machine slept or was set since."""
        return abs(time.time() - now - self._wall_ahead) > MAX_SLEW_SECONDS

    def measure(self, read: Callable[[], float]) -> None:
        """Measure the offset; ``read`` queries the server's clock and returns epoch seconds."""
        began = time.monotonic()
        now = read()
        ended = time.monotonic()
        ahead = now - (began + ended) / 2  # the server looked at its clock in between
        # A slow answer may be less exact than the last measurement: keep that if both can be true.
        if abs(ahead - self._server_ahead) > (ended - began) / 2 or self._wall_clock_jumped(ended):
            self._server_ahead = ahead
        self._wall_ahead = time.time() - ended
        self._measured_at = ended


# ---- locks beside an SQLite file ----

#: Each lock is a byte of a file. Of two names with the same byte, one would wait for the other.
_MAX_LOCK_BYTE: Final = 2**31


@contextmanager
def _file_lock(file: StateFile | None, name: str) -> Iterator[bool]:
    """Hold a lock in the file FILE-locks for a block; False if another process holds it."""
    if file is None or fcntl is None:
        yield True
        return
    byte = int.from_bytes(sha256(name.encode()).digest()[:4], "big") % _MAX_LOCK_BYTE
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(Path(f"{file.path}-locks").open("ab"))
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            is_locked = True
        except OSError as error:
            is_locked = False
            # Which of both an occupied lock is depends on the system.
            if error.errno not in (errno.EAGAIN, errno.EACCES) or error.filename:
                raise StateError(
                    f"{file.path}-locks cannot be locked: {error.strerror}; check the permission "
                    "to write in its folder, then start again"
                ) from error
        yield is_locked


# ---- the file of an SQLite state ----

#: Seconds of waiting for the first page of a file that another process is creating.
CREATION_TIMEOUT_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.02
#: The first bytes of a write-ahead log: SQLite's, in either byte order, or none written yet.
_LOG_STARTS: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83", b"\0\0\0\0")


class StateFile:
    """The file of an SQLite state.

    SQLite takes an empty file for a new database, ignores a write-ahead log that it cannot read,
    and goes on writing into a file that was deleted. Each of the three would lose the state without
    a word, so here they are errors (decision 29).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: tuple[int, int] | None = None

    @classmethod
    def from_url(cls, url: URL) -> Self | None:
        """Return the file of a database; None for a server, and for SQLite in memory."""
        return cls(Path(str(url.database))) if names_file(url) else None

    @property
    def inode(self) -> str:
        """The inode of the opened file. A moved file keeps it; a copy beside it has another one."""
        return str(self._opened[1]) if self._opened else ""

    @property
    def exists(self) -> bool:
        """Whether the file exists, sound or not. Raises StateError if that cannot be told."""
        with self._raising_state_errors():
            return self.path.is_file()

    def check_sound(self) -> None:
        """Raise StateError for an empty file, and for a damaged write-ahead log."""
        deadline = time.monotonic() + CREATION_TIMEOUT_SECONDS
        log = Path(f"{self.path}-wal")
        with self._raising_state_errors():
            while self.exists and self.path.stat().st_size == 0:
                if time.monotonic() > deadline:
                    raise StateError(
                        f"the state {self.path} is an empty file, so its content is lost; restore "
                        "a backup, or delete the file to begin an empty state"
                    )
                time.sleep(_POLL_SECONDS)
            if self.exists and log.is_file():
                with log.open("rb") as file:
                    start = file.read(4)
                if start and start not in _LOG_STARTS:
                    raise StateError(
                        f"the state cannot be used: {log} is damaged, and its newest commits are "
                        "in there; restore a backup, or move that file away to go on without them"
                    )

    def check_same(self) -> None:
        """Raise StateError if the path no longer leads to the file that was opened first."""
        try:
            stat = self.path.stat()
        except OSError as error:
            raise self._lost_error(error.strerror or str(error)) from error
        device_and_inode = stat.st_dev, stat.st_ino
        self._opened = self._opened or device_and_inode
        if device_and_inode != self._opened:
            raise self._lost_error("another file has its name")

    @contextmanager
    def _raising_state_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateError(
                f"the state {self.path} cannot be used: {error.strerror} ({error.filename}); "
                "check the permission to read and write the file and its folder, then start again"
            ) from error

    def _lost_error(self, reason: str) -> StateError:
        return StateError(
            f"the state {self.path} was deleted or replaced while it was in use ({reason}), and "
            "further writes would be lost; stop all crawls that use it, put it or a backup back, "
            "then start again"
        )
