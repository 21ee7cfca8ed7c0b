"""The move of a state to another database: from SQLite to PostgreSQL, back, or to another server.

All rows are read as they are at one moment, so crawls may go on during the copy; what they write
later stays in the old database. The rows are written in one transaction, so a process that is
killed leaves the target as it was. Nobody reads or writes the tables of the target until that
transaction ends: a crawl that starts there waits for ten seconds, and then refuses to start.

The copy is a state of its own, so it gets another id. All other ids stay, and so do the numbers of
entries: their readers go on where they were.
"""

from __future__ import annotations

from contextlib import closing
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.state.database import Database, create_schema
from walsh_scrapy.state.engine import StateError, describe_error, refuses_values
from walsh_scrapy.state.retention import OF_FILE
from walsh_scrapy.state.tables import (
    STATE_ID,
    STATE_ID_SQL,
    VERSION,
    choices,
    metadata,
    schema_version,
    versions,
)
from walsh_scrapy.state.upgrades import live_workers
from walsh_scrapy.state.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from sqlalchemy import Column, Connection, RowMapping, Select, Table

#: Rows that are read and written at once. A row may have a document of half a megabyte.
_BATCH_ROWS: Final = 200
#: Rows between two lines about the progress.
_ROWS_PER_LINE: Final = 50_000
_MAX_KEY_CHARS: Final = 200
#: The tables in an order in which a row comes after those that its foreign keys name.
_TABLES: Final = [table for table in metadata.sorted_tables if table is not schema_version]
#: The columns whose values the database counts up.
_NUMBERED: Final = [
    table.autoincrement_column for table in _TABLES if table.autoincrement_column is not None
]
#: The rows of `choices` that each database has for itself.
_OWN_CHOICES: Final = choices.c.name.in_((STATE_ID, *OF_FILE, *VIEWS))
#: The last number of the sequence of a column; NULL if there is none, or it may not be read.
_POSTGRESQL_LAST_ID_SQL: Final = text(
    "SELECT CASE WHEN has_sequence_privilege(name, 'SELECT')"
    " THEN pg_sequence_last_value(name::regclass) END"
    " FROM pg_get_serial_sequence(:table, :column) AS name"
)
_POSTGRESQL_SET_ID_SQL: Final = text("SELECT setval(pg_get_serial_sequence(:table, :column), :id)")
_SQLITE_LAST_ID_SQL: Final = text("SELECT seq FROM sqlite_sequence WHERE name = :table")
_SQLITE_SET_ID_SQL: Final = (
    text("DELETE FROM sqlite_sequence WHERE name = :table"),
    text("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :id)"),
)


def move(source: Database, url: str, report: Callable[[str], None]) -> Mapping[str, int]:
    """Copy a state to the database at ``url``; return the number of rows of each table.

    That database has no state yet, or one without any row. ``report`` gets a line for each step.
    Raises StateError if the target has rows, if a crawl uses it, or if one of the databases fails;
    the target is then as it was before.
    """
    with closing(Database(url, is_target=True)) as target, source.snapshot() as snapshot:
        return target.write(_Move(source, snapshot, target, report).write)


class _Move:
    """The rows of one state as they are at one moment, and their way to another database."""

    def __init__(
        self,
        source: Database,
        snapshot: Connection,
        target: Database,
        report: Callable[[str], None],
    ) -> None:
        self._source = source
        self._snapshot = snapshot
        self._target = target
        self._report = report
        self._id = token_hex(8)
        self._source_id = snapshot.scalar(STATE_ID_SQL)
        self._counts = {table.name: _count(snapshot, table) for table in _TABLES}
        self._last_ids = {column: _last_id(snapshot, column) for column in _NUMBERED}
        if busy := live_workers(snapshot):
            report(
                f"crawls go on with {source}, and what they write from now on is not copied: "
                f"{', '.join(busy)}"
            )

    def write(self, connection: Connection) -> Mapping[str, int]:
        """Write all rows in one transaction of the target."""
        if connection.dialect.name != "sqlite":  # a batch of the source may come slowly
            connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        if not create_schema(connection):
            self._check_version(connection)
            state_id = connection.scalar(STATE_ID_SQL)
            if state_id == self._id:  # only the answer to COMMIT was lost
                return self._counts
            # Before the lock, which the snapshot of the same database would hold up.
            if state_id == self._source_id:
                raise StateError(
                    f"{self._target} is the state itself, or a copy of it; nothing was copied: "
                    "name another database"
                )
            self._lock_tables(connection)
        self._check_empty(connection)
        connection.execute(delete(choices).where(~_OWN_CHOICES))
        total = sum(self._counts.values())
        self._report(f"copying {count_of(total, 'row')} from {self._source} to {self._target}")
        written = 0
        for table in _TABLES:
            for rows in self._batches(table):
                self._insert(connection, table, rows)
                if written // _ROWS_PER_LINE < (written + len(rows)) // _ROWS_PER_LINE:
                    self._report(f"{written + len(rows)} of {total} rows; now {table.name}")
                written += len(rows)
            self._check_count(connection, table)
        for column, last_id in self._last_ids.items():
            if last_id:
                _set_last_id(connection, column, last_id)
        connection.execute(update(choices).where(choices.c.name == STATE_ID), {"value": self._id})
        return self._counts

    def _check_version(self, connection: Connection) -> None:
        """Raise StateError for a state of the target whose schema is not ours."""
        if versions(connection) != [VERSION]:
            raise StateError(
                f"{self._target} has a state with another schema than {VERSION}; nothing was "
                "copied: name an empty database"
            )

    def _lock_tables(self, connection: Connection) -> None:
        """Let nobody else use the state of the target. Raises StateError if a crawl uses it."""
        if connection.dialect.name != "sqlite":  # a transaction of SQLite has locked all tables
            names = ", ".join(metadata.tables)
            connection.exec_driver_sql(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
        if busy := live_workers(connection):
            raise StateError(
                f"{self._target} is in use: {', '.join(busy)}; nothing was copied: end these "
                "crawls, and name an empty database"
            )

    def _check_empty(self, connection: Connection) -> None:
        """Raise StateError if any table of the target has rows, except for `choices`."""
        tables = (table for table in _TABLES if table is not choices)
        if full := [table.name for table in tables if not _is_empty(connection, table)]:
            raise StateError(
                f"{self._target} already has rows, in {', '.join(full)}; nothing was copied: name "
                "an empty database"
            )

    def _batches(self, table: Table) -> Iterator[Sequence[RowMapping]]:
        """Yield the rows of a table of the source. Raises StateError if it cannot be read."""
        try:
            rows = self._snapshot.execute(
                _rows_of(table), execution_options={"yield_per": _BATCH_ROWS}
            )
            yield from rows.mappings().partitions()
        except DBAPIError as error:
            raise describe_error(self._snapshot.engine, error) from error

    def _insert(self, connection: Connection, table: Table, rows: Sequence[RowMapping]) -> None:
        """Insert rows. Raises StateError with the key of the first row that is refused."""
        try:
            with connection.begin_nested():
                connection.execute(insert(table), [dict(row) for row in rows])
        except (DBAPIError, UnicodeEncodeError, OverflowError) as error:
            if isinstance(error, DBAPIError) and not refuses_values(error):
                raise
            if len(rows) > 1:
                for row in rows:
                    self._insert(connection, table, [row])
                return
            key = {column.name: rows[0][column.name] for column in table.primary_key}
            reason = " ".join(str(getattr(error, "orig", error)).split())
            raise StateError(
                f"{self._target} does not accept a row of {table.name}: {reason}; nothing was "
                f"copied: correct or delete the row with {_shown(key)} in {self._source}, then "
                "start again"
            ) from error

    def _check_count(self, connection: Connection, table: Table) -> None:
        """Raise StateError if the target has not got as many rows as the source has."""
        count = _count(connection, table)
        if count != self._counts[table.name]:
            raise StateError(
                f"{self._target} has {count_of(count, 'row')} of {table.name} after the copy, and "
                f"{self._source} has {self._counts[table.name]}; nothing was copied: look for "
                "triggers and rules on the tables of the target, or name another database"
            )


def _rows_of(table: Table) -> Select[Any]:
    """Return the query for the rows of a table that are copied."""
    return select(table).where(~_OWN_CHOICES) if table is choices else select(table)


def _count(connection: Connection, table: Table) -> int:
    query = select(func.count()).select_from(_rows_of(table).subquery())
    return connection.execute(query).scalar_one()


def _is_empty(connection: Connection, table: Table) -> bool:
    return connection.execute(select(1).select_from(table).limit(1)).first() is None


def _last_id(connection: Connection, column: Column[int]) -> int:
    """Return the largest number that the database remembers of any row; 0 for none."""
    names = {"table": column.table.name, "column": column.name}
    sql = _SQLITE_LAST_ID_SQL if connection.dialect.name == "sqlite" else _POSTGRESQL_LAST_ID_SQL
    largest = connection.scalar(select(func.max(column)))
    return max(largest or 0, connection.scalar(sql, names) or 0)


def _set_last_id(connection: Connection, column: Column[int], last_id: int) -> None:
    """Let the next row get a number after this one; SQLite does so by itself in most tables."""
    values = {"table": column.table.name, "column": column.name, "id": last_id}
    if connection.dialect.name != "sqlite":
        connection.execute(_POSTGRESQL_SET_ID_SQL, values)
    elif column.table.dialect_options["sqlite"]["autoincrement"]:
        for statement in _SQLITE_SET_ID_SQL:
            connection.execute(statement, values)


def _shown(key: Mapping[str, object]) -> str:
    """Return a primary key for a message."""
    parts = (f"{name} = {str(value)[:_MAX_KEY_CHARS]!r}" for name, value in key.items())
    return " and ".join(parts)
