"""SQLAlchemy engines for ``WALSH_STATE_URL``, and the error if it cannot be used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from sqlalchemy import create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool, StaticPool

from walsh_scrapy.state.waiting import (
    BUSY_SECONDS,
    CONNECT_SECONDS,
    LOCKED_SECONDS,
    RECONNECT_SECONDS,
    SQLiteConnection,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import URL, Engine
    from sqlalchemy.exc import DBAPIError

    from walsh_scrapy.state.waiting import Waiting

#: A connection whose packets are lost is an error after 30 s, and no router forgets an idle one.
_TCP: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,  # milliseconds
}
#: PostgreSQL's insufficient_privilege.
_NO_RIGHTS: Final = "42501"
#: How PostgreSQL's messages quote the statement, with a mark below it.
_STATEMENT: Final = re.compile(r"\nLINE \d+: .*\n *\^")
#: Memory of SQLite for pages, at most.
_CACHE_KIB: Final = 16 * 1024


class StateError(RuntimeError):
    """The state cannot be used: which database, why, and what to do."""

    #: True if only the connection was lost: its transaction was rolled back, and the next
    #: transaction opens another one.
    connection_lost = False


def open_engine(url: str, waiting: Waiting) -> Engine:
    """Return an engine whose connections wait as ``waiting`` says. Raises StateError.

    It creates a missing SQLite file and its folder.
    """
    engine = bare_engine(url)
    if engine.dialect.name == "sqlite":
        _make_folder(engine.url.database)
        event.listen(engine, "do_connect", _sqlite_connections(waiting))
        event.listen(engine, "connect", _tune_sqlite)
    else:
        event.listen(engine, "do_connect", _postgresql_connections(waiting))
    return engine


def bare_engine(url: str) -> Engine:
    """Return an engine that creates and changes nothing by itself. Raises StateError."""
    try:
        address = _address(url)
        engine = create_engine(address, **_arguments(address))
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as error:
        if getattr(error, "name", None) == "psycopg":
            need = "needs psycopg: pip install 'walsh-scrapy[postgres]'"
            raise StateError(f"WALSH_STATE_URL is {_mask(url)!r}, which {need}") from error
        raise _no_state(url, error) from error
    if engine.dialect.name == "sqlite":
        return engine
    if engine.dialect.name != "postgresql":
        raise _no_state(url, f"{engine.dialect.name} is neither SQLite nor PostgreSQL")
    event.listen(engine, "connect", _tune_postgresql)
    return engine


def separate_engine(engine: Engine) -> Engine:
    """Return another engine on the same database, with connections of its own."""
    arguments = _arguments(engine.url) | {"poolclass": NullPool}
    return create_engine(engine.url, **arguments)


def without_password(url: str) -> str:
    """Return a state's URL for logs and messages: its password is replaced by ``***``."""
    return make_url(url).render_as_string(hide_password=True)


def state_error(engine: Engine, error: DBAPIError) -> StateError:
    """Return the StateError for a driver's error: database, reason and remedy in one sentence."""
    name = engine.url.render_as_string(hide_password=True)
    why = " ".join(_STATEMENT.sub("", str(error.orig)).split())  # PostgreSQL's have several lines
    return StateError(f"{name} cannot be used as state: {why}; {_remedy(engine, error)}")


def _remedy(engine: Engine, error: DBAPIError) -> str:
    if engine.dialect.name != "sqlite":
        if "lock timeout" in str(error.orig):
            return f"another session holds a lock for {LOCKED_SECONDS:.0f} s; end it, start again"
        if getattr(error.orig, "sqlstate", None) == _NO_RIGHTS:
            return "a crawl needs the role that owns the tables, or, for a new state, the database"
        return "check that the server runs and accepts the login, then start again"
    reason = str(error.orig)
    if "locked" in reason:
        return "another process holds its lock; end that process, then start again"
    if "unable to open" in reason:
        return "check the permission to read and write the file and its folder, then start again"
    if "full" in reason or "readonly" in reason or "disk I/O" in reason:
        return "check the free space and the permission to write, then start again"
    return "if the file is damaged, restore a backup, or move it away to start an empty state"


def _mask(url: str) -> str:
    """Return a URL that may be malformed without its password."""
    return re.sub(r"(://[^/:@]*):.*@", r"\1:***@", url)


def _address(url: str) -> URL:
    """Parse a URL so that it names one file, and no other: by its absolute path for SQLite.

    In a path ``%20`` is a space, as in every URL. SQLAlchemy before 2.1 does not read it so, and
    takes what follows a ``?`` for options. Raises ValueError.
    """
    address = make_url(url)
    if address.get_backend_name() != "sqlite" or address.database in (None, "", ":memory:"):
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


def _no_state(url: str, reason: object) -> StateError:
    return StateError(
        f"WALSH_STATE_URL is {_mask(url)!r}, which does not open a database ({reason}); write "
        "sqlite:////absolute/path.sqlite3 or postgresql+psycopg://user@host/database"
    )


def _arguments(address: URL) -> dict[str, Any]:
    if address.get_backend_name() == "postgresql":
        own = {"connect_timeout": CONNECT_SECONDS, **_TCP}
        return {"connect_args": {name: own[name] for name in own.keys() - address.query}}
    if address.get_backend_name() != "sqlite":
        return {}
    # We begin transactions ourselves: the driver's own BEGIN would take the lock too late.
    manual = {"isolation_level": None, "timeout": LOCKED_SECONDS}
    return {"poolclass": StaticPool, "connect_args": manual}


def _make_folder(path: str | None) -> None:
    if path and path != ":memory:":
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"WALSH_STATE_URL is in the folder of {path}, which cannot be created: "
                f"{error.strerror}"
            ) from error


def _sqlite_connections(waiting: Waiting) -> Callable[..., SQLiteConnection]:
    def connect(
        _dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]
    ) -> SQLiteConnection:
        connection = SQLiteConnection(*arguments, **options | {"timeout": BUSY_SECONDS})
        connection.waiting = waiting
        return connection

    return connect


def _postgresql_connections(waiting: Waiting) -> Callable[..., object]:
    # The driver is in an extra, so it may be absent.
    from walsh_scrapy.state.postgresqlconnection import PostgreSQLConnection  # noqa: PLC0415

    def connect(
        _dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]
    ) -> PostgreSQLConnection:
        if waiting.is_open:
            options = options | {"connect_timeout": RECONNECT_SECONDS}
        connection = PostgreSQLConnection.connect(*arguments, **options)
        connection.waiting = waiting
        return connection

    return connect


def _tune_sqlite(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DBAPI connection
    # With 2 MiB, the default, the pages of a large index are written and read again and again.
    memory = f"cache_size=-{_CACHE_KIB}"
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", memory):
        connection.execute(f"PRAGMA {pragma}").close()


def _tune_postgresql(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DBAPI connection
    """Let a lock that another session holds be an error, as on SQLite, and no endless wait."""
    connection.execute(f"SET lock_timeout = '{LOCKED_SECONDS:.0f}s'")
    connection.commit()
