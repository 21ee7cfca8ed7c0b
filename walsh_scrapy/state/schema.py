"""The schema of the state, which is created in a new database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import insert, select

from walsh_scrapy.state import tables
from walsh_scrapy.state.views import create_views

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: The version of the schema that this code reads and writes.
VERSION: Final = 1
#: Number of the PostgreSQL advisory lock under which tables are created.
_LOCK_NUMBER = 9309


def has_schema(connection: Connection) -> bool:
    """Return True if the database has the tables of a state, of any version."""
    return connection.dialect.has_table(connection, tables.schema_version.name)


def versions(connection: Connection) -> list[int]:
    """Return the rows of the version table: exactly one in a sound state."""
    return list(connection.scalars(select(tables.schema_version.c.version)))


def create(connection: Connection) -> bool:
    """Create the tables, if there are none, and return True if there were none.

    The second of two processes that start at the same time waits: for the lock of the transaction
    on SQLite, and for one that is taken here on PostgreSQL.
    """
    if connection.dialect.name != "sqlite":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})")
    if has_schema(connection):
        return False
    tables.metadata.create_all(connection)
    create_views(connection)
    connection.execute(insert(tables.schema_version), {"version": VERSION})
    return True
