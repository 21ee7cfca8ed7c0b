"""The schema of the state: created in a new database, migrated in an old one, else refused.

`tables` and `views` have it as it is now. Whoever changes them after a release adds one step to
`MIGRATIONS`, which makes the same change in a state that has data; the version follows.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sqlalchemy import insert, select, update

from walsh_scrapy.state import tables
from walsh_scrapy.state.engines import StateError
from walsh_scrapy.state.views import create_views, drop_views

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

logger = logging.getLogger(__name__)

#: The steps from version 1 on: the first one makes version 2 of a state of version 1.
MIGRATIONS: Final[list[Callable[[Connection], None]]] = []
#: Number of the PostgreSQL advisory lock under which tables are created and migrated.
_LOCK_NUMBER = 9309


def has_schema(connection: Connection) -> bool:
    """Return True if the database has the tables of a state, of any version."""
    return connection.dialect.has_table(connection, tables.schema_version.name)


def version() -> int:
    """Return the version of the schema that this code reads and writes."""
    return 1 + len(MIGRATIONS)


def is_up_to_date(connection: Connection) -> bool:
    """Return True if the database has the tables of this version."""
    return has_schema(connection) and _versions(connection) == [version()]


def create_or_migrate(connection: Connection, database: str) -> None:
    """Create the tables or migrate them, within the transaction of ``connection``.

    It takes a lock first, so the second of two processes that start at the same time waits.
    Raises StateError for a version that this code does not know; the message names ``database``.
    """
    is_sqlite = connection.dialect.name == "sqlite"
    lock = "BEGIN IMMEDIATE" if is_sqlite else f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})"
    connection.exec_driver_sql(lock)
    if not has_schema(connection):
        tables.metadata.create_all(connection)
        create_views(connection)
        connection.execute(insert(tables.schema_version), {"version": version()})
        logger.info("%s is a new state: no source was visited, and no host is on hold", database)
        return
    found = _versions(connection)
    if len(found) != 1 or not 1 <= found[0] <= version():
        raise StateError(
            f"{database} has schema version {found}, this walsh-scrapy knows {version()}; "
            "use the version that wrote it, or another database"
        )
    if found[0] == version():  # another process was faster
        return
    drop_views(connection)  # they name the columns of the old version
    for step in MIGRATIONS[found[0] - 1 :]:
        step(connection)
    create_views(connection)
    connection.execute(update(tables.schema_version).values(version=version()))


def _versions(connection: Connection) -> list[int]:
    """Return the rows of the version table: exactly one in a sound state."""
    return list(connection.scalars(select(tables.schema_version.c.version)))
