"""SQLAlchemy engines for the two databases, and the settings of their connections."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_engine, event
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from walsh_scrapy.state.errors import StateError
from walsh_scrapy.state.url import (
    MALFORMED,
    POOLER,
    is_pooled,
    names_file,
    parse_url,
    without_password,
)
from walsh_scrapy.state.waiting import (
    CONNECT_TIMEOUT_SECONDS,
    IDLE_TIMEOUT_SECONDS,
    LOCK_TIMEOUT_SECONDS,
    bounded_connector,
)

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

    from walsh_scrapy.state.waiting import Waiting

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
    """Return the SQL that begins a transaction; behind a pooler it also sets the timeouts."""
    if url.get_backend_name() == "sqlite":
        return "BEGIN"
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
    return f"{begin};{_timeouts('SET LOCAL', IDLE_TIMEOUT_SECONDS)}" if is_pooled(url) else begin


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
    connection.execute(f"{_timeouts('SET', IDLE_TIMEOUT_SECONDS)};{plans}")
    connection.commit()


def _timeouts(command: str, idle_seconds: float) -> str:
    """Return the statements that limit the waits of a session or of a transaction on PostgreSQL.

    A lock that another session holds becomes an error, as on SQLite, and not an endless wait.
    """
    return (
        f"{command} lock_timeout = {1000 * LOCK_TIMEOUT_SECONDS:.0f};"
        f"{command} idle_in_transaction_session_timeout = {1000 * idle_seconds:.0f}"
    )


#: Begins the transaction of a snapshot, which may be read slowly. To compile a view would take
#: longer than to run it; and the reader wants all rows, so a plan must not favour the first ones.
BEGIN_SNAPSHOT: Final = (
    f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;{_timeouts('SET LOCAL', 0.0)};"
    "SET LOCAL jit = off;SET LOCAL cursor_tuple_fraction = 1"
)
