"""The databases of the benchmarks: an SQLite file, and the PostgreSQL of this machine."""

import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import OperationalError

SERVER = "postgresql+psycopg://postgres@127.0.0.1:5432/test"


def states() -> Iterator[tuple[str, str]]:
    """Yield the name and the URL of a new SQLite file, and of PostgreSQL where there is one."""
    with tempfile.TemporaryDirectory() as folder:
        yield "SQLite", f"sqlite:///{Path(folder, 'state.sqlite3')}"
    if _has_server():
        with new_database() as (url, _):
            yield "PostgreSQL", url


@contextmanager
def new_database() -> Iterator[tuple[str, Connection]]:
    """Create a database, and drop it at the end."""
    name = f"walsh_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    server = create_engine(SERVER, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        try:
            yield f"{SERVER.rpartition('/')[0]}/{name}", connection
        finally:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


def _has_server() -> bool:
    server = create_engine(SERVER, connect_args={"connect_timeout": 5})
    try:
        server.connect().close()
    except OperationalError:
        return False
    finally:
        server.dispose()
    return True
