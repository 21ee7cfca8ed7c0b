"""What a database of the state is opened with: its URL, its waits, its errors and its engine.

It is SQLite or PostgreSQL, by SQLAlchemy.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from sqlalchemy import URL, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError, IntegrityError, NoSuchModuleError

from walsh_scrapy.programname import program_name

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from sqlalchemy import Engine
    from sqlalchemy.exc import DBAPIError


# The URL: `WALSH_STATE_URL`

#: The query parameter that says that a connection pooler in transaction mode is in between, so that
#: each transaction may have another session. Statements are not prepared then, because the next
#: session does not know them; a first visit takes a fifth longer.
POOLER: Final = "pooler"
MALFORMED: Final = "in a password write %40 for @, %2F for /, %3A for : and %3F for ?"
#: Scheme and user of a URL.
_USER: Final = re.compile("(?:[^/:]*:?//)?[^/:?@]*")


def parse_url(text: str) -> URL:
    """Parse a URL; for SQLite it gets the absolute path of its file.

    In a path ``%20`` is a space, as in every URL. SQLAlchemy before 2.1 does not decode it, and
    takes the part after a ``?`` for options. Raises ValueError.
    """
    url = make_url(text)
    if not names_file(url):
        if text.count("@") > 1 or "@" in text.partition("?")[2]:
            raise ValueError(MALFORMED)
        return url
    _, _, written = text.partition(":///")
    if "?" in written:
        raise ValueError("a '?' in the path is written as %3F, and no options may follow it")
    path = unquote(written, errors="strict")
    if not path.isprintable():
        raise ValueError("the path has control characters")
    if path.startswith("~"):
        raise ValueError("a '~' in the path is not expanded")
    if path != written and Path(written).exists() and not Path(path).exists():
        raise ValueError(f"it names {path!r}, but the file is {written!r}: write %25 for a '%'")
    return url.set(database=str(Path(path).absolute()))


def names_file(url: URL) -> bool:
    """Return True for an SQLite file; False for SQLite in memory, and for a server."""
    is_sqlite = url.get_backend_name() == "sqlite"
    return is_sqlite and url.database not in (None, "", ":memory:")


def is_pooled(url: URL) -> bool:
    """Return True if the URL says that a connection pooler in transaction mode is in between."""
    return POOLER in url.query


def setting_of(text: str) -> str:
    """Return a URL of a database as it may stand in a file of settings: without its password."""
    url = parse_url(text)
    if names_file(url):
        return f"sqlite:///{quote(str(url.database))}"
    shown = URL.create(  # `URL.set` cannot remove a password
        url.drivername,
        username=url.username,
        host=url.host,
        port=url.port,
        database=url.database,
        query=url.query,
    )
    return shown.difference_update_query(["password", "sslpassword"]).render_as_string()


def without_password(url: str | URL) -> str:
    """Return a URL for logs and messages, with ``***`` for the password and the query.

    The URL may be malformed, and its password may have characters that should be escaped.
    """
    text = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    if text.startswith("sqlite"):
        return text
    place, mark, query = text.partition("?")
    scheme_and_user = _USER.match(text)
    user = scheme_and_user[0] if scheme_and_user else ""
    if "@" in query:  # where the password ends cannot be told
        return f"{user}:***"
    before, at, host = place.rpartition("@")
    shown = f"{user}:***@{host}" if at and user != before else place
    return f"{shown}?***" if mark else shown


# Waits: for a lock, a silent server, or one that went away

#: Seconds of waiting for another process's transaction before that is an error.
LOCK_TIMEOUT_SECONDS: Final = 10.0
#: Seconds that a transaction may stay idle. That is less than others wait for its locks, so a
#: process that is frozen within a transaction harms nobody.
IDLE_TIMEOUT_SECONDS: Final = 5.0
#: Seconds that a server may stay silent. That is more than it waits for a lock without a word.
SILENCE_TIMEOUT_SECONDS: Final = 20.0
#: The same for a statement of an upgrade, which changes all rows of a table.
UPGRADE_SILENCE_TIMEOUT_SECONDS: Final = 3600.0
#: Seconds that a crawl waits for a database server that went away.
LOST_SERVER_TIMEOUT_SECONDS: Final = 120.0
#: Seconds of an attempt to connect: of the first one, and of each later one. libpq accepts no time
#: shorter than 2 s.
CONNECT_TIMEOUT_SECONDS: Final = 10.0
RECONNECT_TIMEOUT_SECONDS: Final = 2.0
#: Seconds of any wait once the run is to end.
ENDING_TIMEOUT_SECONDS: Final = 1.0


class Waiting:
    """The waits of one `Database`; after a wait that took too long there is no other one.

    ``may_wait`` returns False once the run is to end. So a run that was stopped or failed ends
    within seconds, however many transactions follow. Moments are times of the monotonic clock.
    A server may be silent for ``silence_seconds`` during a statement.
    """

    def __init__(
        self, may_wait: Callable[[], bool], silence_seconds: float = SILENCE_TIMEOUT_SECONDS
    ) -> None:
        self.may_wait = may_wait
        self.silence_seconds = silence_seconds
        self.is_over = False
        self.is_open = False  #: True once the database was used, so that connections are repeated

    def may_last(self, began: float, seconds: float) -> bool:
        """Return True while a wait that ``began`` then may go on, ``seconds`` at most.

        The first wait that takes too long ends all waits.
        """
        limit = seconds if self.may_wait() else ENDING_TIMEOUT_SECONDS
        self.is_over = self.is_over or time.monotonic() - began > limit
        return not self.is_over


def bounded_connector(waiting: Waiting) -> Callable[..., object]:
    """Return a function that opens connections which are closed if their server is silent too long.

    A server may be silent without an error: its machine is frozen, or a router drops all packets.
    libpq would wait forever then, and no timeout of the server helps.
    """
    # The driver is in an extra, so it may be absent.
    import psycopg  # noqa: PLC0415
    from psycopg.waiting import Ready  # noqa: PLC0415

    class BoundedConnection(psycopg.Connection[Any]):
        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - psycopg's
            return super().wait(self._bound(gen), *arguments, **options)

        def _bound(self, exchange: Any) -> Generator[Any, Any, Any]:  # noqa: ANN401 - psycopg's
            """Pass on what an exchange waits for; psycopg resumes it ten times per second."""
            began = time.monotonic()
            try:
                wanted = next(exchange)
                while True:
                    ready = yield wanted
                    if ready != Ready.NONE:
                        began = time.monotonic()
                    elif not waiting.may_last(began, waiting.silence_seconds):
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
            options = options | {"connect_timeout": RECONNECT_TIMEOUT_SECONDS}
        return BoundedConnection.connect(*arguments, **options)

    return connect


# Errors

#: The remedy for a database on PostgreSQL whose encoding cannot store every text.
CREATE_IN_UTF8: Final = (
    "create another one with CREATE DATABASE name ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C' "
    "TEMPLATE template0, and name that one"
)
#: The remedy for an SQLite file with a damaged page.
DAMAGED: Final = "if the file is damaged, restore a backup, or move it away to start an empty state"
#: PostgreSQL's serialization_failure and deadlock_detected, and the error of a prepared statement
#: whose table another process has upgraded: the transaction may be run again.
CONFLICTS: Final = ("40001", "40P01", "0A000")
#: PostgreSQL's read_only_sql_transaction: after a failover, or for a role that may only read.
READ_ONLY: Final = "25006"
#: PostgreSQL's invalid_sql_statement_name and duplicate_prepared_statement.
_NOT_PREPARED: Final = ("26000", "42P05")
_OTHER_TABLES: Final = (
    "its tables are not as walsh-scrapy made them; restore a backup, or name another database"
)
#: The remedies for errors of PostgreSQL by their SQLSTATE, or by a class of SQLSTATEs.
_REMEDIES: Final = {
    "08": "check that the server runs and accepts the login, then start again",
    "25006": "the server, the database or the role only allows reading: wait until a failover is "
    "over, name the primary server, or set default_transaction_read_only = off "
    "for the role, then start again",
    "25P03": "set a longer idle_in_transaction_session_timeout for the role, then start again",
    "25P04": "set a longer transaction_timeout for the role, then start again",
    "3D000": "create the database, or name another one",
    "3F000": "set the search_path of the role to a schema that exists, then start again",
    "40": "other sessions change the same rows again and again; end them, then start again",
    "42": _OTHER_TABLES,
    "42501": "a crawl needs the role that owns the tables, or, for a new state, the database",
    "53": "check the server's disk space, memory and connection limit, then start again",
    "53300": "a crawl and a command need two connections each: raise the connection limit of the "
    "server, the database or the role, or end other sessions, then start again",
    "55P03": f"another session holds a lock for {LOCK_TIMEOUT_SECONDS:.0f} s; end it, start again",
    "57014": "the server stopped a statement: set statement_timeout = 0 for the role (ALTER ROLE "
    "... SET ...), then start again",
    "58": "the server cannot read or write its files; see its log, then start again",
    "XX": "the server failed, or its files are damaged; see its log, or restore a backup",
}
#: How PostgreSQL says that there are too many connections. An error of a connection that was not
#: made has no SQLSTATE.
_TOO_MANY_CONNECTIONS: Final = re.compile("too many connections|too many clients|connection slots")
#: The remedies for errors of SQLite by their primary code.
_SQLITE_REMEDIES: Final = {
    sqlite3.SQLITE_ERROR: _OTHER_TABLES,
    sqlite3.SQLITE_BUSY: "another process holds its lock; end that process, then start again",
    sqlite3.SQLITE_LOCKED: "another process holds its lock; end that process, then start again",
    sqlite3.SQLITE_CANTOPEN: "check the permission to read and write the file and its folder, then "
    "start again",
    sqlite3.SQLITE_FULL: "check the free space and the permission to write, then start again",
    sqlite3.SQLITE_READONLY: "check the free space and the permission to write, then start again",
    sqlite3.SQLITE_IOERR: "check the free space and the permission to write, then start again",
}
#: The low bits of SQLite's extended error codes.
_PRIMARY_CODE: Final = 0xFF
#: PostgreSQL's errors for values beyond a limit, such as the size of a row in an index, and for
#: values that a trigger or a view refuses. SQLAlchemy has no class for these errors.
_REFUSED_VALUES: Final = ("54000", "54001", "P0001", "44000")
#: The statement that PostgreSQL's messages quote, with a mark below it.
_QUOTED_STATEMENT: Final = re.compile(r"\nLINE \d+: .*\n *\^")


class StateError(RuntimeError):
    """The state cannot be used: the database, the reason, and the remedy."""


class RefusedValues(ValueError):
    """The database does not accept a value of a transaction, of which nothing was written."""


def describe_error(engine: Engine, error: DBAPIError, subject: str = "") -> StateError:
    """Return the StateError for an error of the driver.

    ``subject`` is what the transaction was about, for example a URL; the message begins with it.
    """
    name = without_password(engine.url)
    # PostgreSQL's messages have several lines.
    reason = " ".join(_QUOTED_STATEMENT.sub("", str(error.orig)).split())
    prefix = f"{subject} is not recorded: " if subject else ""
    remedy = _remedy(engine, error)
    if "malformed JSON" in reason or "syntax for type json" in reason:
        names = f"`{program_name()} export -o entries.jsonl` names a damaged entry"
        remedy = f"a row is damaged, and {names}; delete the row, or restore a backup"
    return StateError(f"{prefix}{name} cannot be used as state: {reason}; {remedy}")


def _remedy(engine: Engine, error: DBAPIError) -> str:
    if engine.dialect.name == "sqlite":
        return _SQLITE_REMEDIES.get(primary_code(error), DAMAGED)
    state = sqlstate_of(error) or ""
    if state in _NOT_PREPARED and not is_pooled(engine.url):
        return f"there is a pooler in transaction mode: add ?{POOLER}=1 to the URL"
    if "conversion between UTF8 and" in str(error.orig):
        return CREATE_IN_UTF8
    if _TOO_MANY_CONNECTIONS.search(str(error.orig)):
        state = "53300"
    return _REMEDIES.get(state) or _REMEDIES.get(state[:2]) or _REMEDIES["08"]


def primary_code(error: DBAPIError) -> int:
    """Return the primary error code of an error of SQLite; 0 for another error."""
    code: int = getattr(error.orig, "sqlite_errorcode", 0)
    return code & _PRIMARY_CODE


def refuses_values(error: DBAPIError) -> bool:
    """Return True if an error is about the values of a statement, and not about the database."""
    return isinstance(error, (IntegrityError, DataError)) or sqlstate_of(error) in _REFUSED_VALUES


def sqlstate_of(error: DBAPIError) -> str | None:
    """Return the SQLSTATE of an error of PostgreSQL, which has five characters."""
    return getattr(error.orig, "sqlstate", None)


# Engines

#: What errors call the URL of a state, which is a setting.
SETTING_NAME: Final = "WALSH_STATE_URL"
#: Milliseconds that SQLite itself waits for a lock. It waits in C, where Python handles no signal.
_BUSY_TIMEOUT_MS: Final = 100
#: With 2 MiB, SQLite's default, the pages of a large index are written and read again and again.
_MAX_CACHE_KIB: Final = 16 * 1024
#: A connection whose packets are lost is an error after 30 s, and no router forgets an idle one.
_TCP: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,  # milliseconds
}
#: Texts are sent in UTF-8, whatever the environment (PGCLIENTENCODING) says.
_ENCODING: Final = {"client_encoding": "UTF8"}


def open_engine(url: str, waiting: Waiting, name: str = SETTING_NAME) -> Engine:
    """Return the engine of a `Database`, and create the folder of an SQLite file.

    Connections wait for a silent server as ``waiting`` allows. Raises StateError, which calls the
    URL by ``name``.
    """
    engine = bare_engine(url, name)
    if engine.dialect.name == "sqlite":
        _make_folder(engine.url, name)
        event.listen(engine, "connect", _tune_sqlite)
    else:
        event.listen(engine, "do_connect", bounded_connector(waiting))
    return engine


def bare_engine(url: str, name: str = SETTING_NAME) -> Engine:
    """Return an engine that creates and changes nothing by itself.

    Raises StateError, which calls the URL by ``name``.
    """
    try:
        address = parse_url(url)
        if address.query.get(POOLER, "1") != "1":
            raise StateError(f"{name}: {POOLER} must be 1, or left out")
        engine = engine_of(address)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as error:
        if getattr(error, "name", None) == "psycopg":
            need = "needs psycopg: pip install 'walsh-scrapy[postgres]'"
            raise StateError(f"{name} is {without_password(url)!r}, which {need}") from error
        # The error of another URL than SQLite's may quote a password.
        is_safe = url.startswith("sqlite") or isinstance(error, NoSuchModuleError)
        raise _unusable_url(name, url, error if is_safe else MALFORMED) from None
    if engine.dialect.name not in ("sqlite", "postgresql"):
        raise _unusable_url(name, url, f"{engine.dialect.name} is neither SQLite nor PostgreSQL")
    return engine


def _unusable_url(name: str, url: str, reason: object) -> StateError:
    """Return the StateError for a URL that names no database that can be opened."""
    return StateError(
        f"{name} is {without_password(url)!r}, which does not open a database ({reason}); "
        "write sqlite:////absolute/path.sqlite3 or postgresql+psycopg://user@host/database"
    )


def engine_of(url: URL, **options: Any) -> Engine:  # noqa: ANN401 - SQLAlchemy's
    """Return an engine for a parsed URL; ``options`` go to ``create_engine``."""
    if url.get_backend_name() == "postgresql":
        options["isolation_level"] = "AUTOCOMMIT"  # we begin transactions ourselves
    engine = create_engine(url, connect_args=_driver_arguments(url), **options)
    if is_pooled(url):
        event.listen(engine, "do_connect", _remove_pooler)
    elif url.get_backend_name() == "postgresql":
        event.listen(engine, "connect", _tune_postgresql)
    if names_file(url):
        event.listen(engine, "do_connect", _connect_read_only)
    return engine


def begin_statement(url: URL) -> str:
    """Return the SQL that begins a transaction; behind a pooler it also has the settings."""
    if url.get_backend_name() == "sqlite":
        return "BEGIN"
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
    return (
        f"{begin};{_session_settings('SET LOCAL', IDLE_TIMEOUT_SECONDS)}"
        if is_pooled(url)
        else begin
    )


def _driver_arguments(url: URL) -> dict[str, Any]:
    """Return the arguments of the driver's ``connect`` that the URL does not set itself."""
    if url.get_backend_name() == "postgresql":
        defaults: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_SECONDS, **_TCP}
        if is_pooled(url):
            defaults["prepare_threshold"] = None
        return _ENCODING | {name: defaults[name] for name in defaults.keys() - url.query}
    # We begin transactions ourselves: the driver's BEGIN would take the lock too late.
    return {"isolation_level": None, "timeout": LOCK_TIMEOUT_SECONDS}


def _remove_pooler(
    _dialect: object, _record: object, _arguments: list[Any], options: dict[str, Any]
) -> None:
    """Remove the parameter of the URL that the driver does not know."""
    options.pop(POOLER, None)


def _connect_read_only(
    _dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]
) -> sqlite3.Connection | None:
    """Open a file that this user may only read; None for any other file, which SQLAlchemy opens.

    SQLite would write beside the file. Without a write-ahead log nothing can change the file while
    it is read.
    """
    path = Path(arguments[0])
    if not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return None
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
    opened: sqlite3.Connection = sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, **options)
    return opened


def _make_folder(url: URL, name: str) -> None:
    if names_file(url):
        path = Path(str(url.database))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"{name} is in the folder of {path}, which cannot be created: {error.strerror}"
            ) from error


def _tune_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DBAPI connection
    limits = f"busy_timeout={_BUSY_TIMEOUT_MS}", f"cache_size=-{_MAX_CACHE_KIB}"
    for pragma in (*limits, "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _tune_postgresql(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DBAPI connection
    # A plan that was made while its table was nearly empty would always read the whole table.
    plans = "SET plan_cache_mode = 'force_custom_plan'"
    connection.execute(f"{_session_settings('SET', IDLE_TIMEOUT_SECONDS)};{plans}")
    connection.commit()


def _session_settings(command: str, idle_seconds: float) -> str:
    """Return the statements that set up a session or a transaction on PostgreSQL.

    A lock that another session holds becomes an error, as on SQLite, and not an endless wait. To
    compile a view would take longer than to run it.
    """
    return (
        f"{command} lock_timeout = {1000 * LOCK_TIMEOUT_SECONDS:.0f};"
        f"{command} idle_in_transaction_session_timeout = {1000 * idle_seconds:.0f};"
        f"{command} jit = off"
    )


#: Begins the transaction of a snapshot, which may be read slowly. The reader wants all rows, so a
#: plan must not favour the first ones.
BEGIN_SNAPSHOT: Final = (
    f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;{_session_settings('SET LOCAL', 0.0)};"
    "SET LOCAL cursor_tuple_fraction = 1"
)
