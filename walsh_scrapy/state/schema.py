"""The schema of the state: created in a new database; a state of another version is refused."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sqlalchemy import insert, select

from walsh_scrapy.state import tables
from walsh_scrapy.state.engines import StateError
from walsh_scrapy.state.views import create_views

if TYPE_CHECKING:
    from sqlalchemy import Connection

logger = logging.getLogger(__name__)

#: The version of the schema that this code reads and writes.
VERSION: Final = 1
#: Number of the PostgreSQL advisory lock under which tables are created.
_LOCK_NUMBER = 9309


def has_schema(connection: Connection) -> bool:
    """Return True if the database has the tables of a state, of any version."""
    return connection.dialect.has_table(connection, tables.schema_version.name)


def is_current(connection: Connection) -> bool:
    """Return True if the database has the tables of this version."""
    return has_schema(connection) and _versions(connection) == [VERSION]


def create(connection: Connection, database: str) -> None:
    """Create the tables, within the transaction of ``connection``, if there are none.

    It takes a lock first, so the second of two processes that start at the same time waits.
    Raises StateError for a version that this code does not know; the message names ``database``.
    """
    is_sqlite = connection.dialect.name == "sqlite"
    lock = "BEGIN IMMEDIATE" if is_sqlite else f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})"
    connection.exec_driver_sql(lock)
    if not has_schema(connection):
        tables.metadata.create_all(connection)
        create_views(connection)
        connection.execute(insert(tables.schema_version), {"version": VERSION})
        logger.info("%s is a new state: no source was visited, and no host is on hold", database)
        return
    found = _versions(connection)
    if found != [VERSION]:
        raise StateError(
            f"{database} has schema version {found}, this walsh-scrapy knows {VERSION}; "
            "use the version that wrote it, or another database"
        )


def _versions(connection: Connection) -> list[int]:
    """Return the rows of the version table: exactly one in a sound state."""
    return list(connection.scalars(select(tables.schema_version.c.version)))
