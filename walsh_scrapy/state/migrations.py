"""Migrations: they bring a state of an earlier version up to this version, never back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, inspect, select, update
from sqlalchemy.schema import CreateColumn, CreateIndex

from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.state import tables
from walsh_scrapy.state.evidence import keep_copy
from walsh_scrapy.state.views import create_views, drop_views

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Connection, Table


#: Documents in memory while they are copied; one may have 500 KiB.
_BODIES_AT_ONCE: Final = 100
_EVIDENCE: Final = (
    "purpose",
    "pause",
    "hold",
    "rule",
    "line",
    "robots",
    "robots_at",
    "blocklist",
)


def migrate(connection: Connection, found: int) -> bool:
    """Bring a state of version ``found`` up to date, in the transaction of ``connection``.

    The views are made anew, because they name the columns of this version. Return False, and change
    nothing, for a version that this code does not know.
    """
    if not tables.SCHEMA_VERSION - len(_STEPS) <= found <= tables.SCHEMA_VERSION:
        return False
    if found == tables.SCHEMA_VERSION:
        return True
    drop_views(connection)
    for version in range(found, tables.SCHEMA_VERSION):
        _STEPS[version](connection)
        connection.execute(update(tables.schema_version).values(version=version + 1))
    create_views(connection)
    return True


def _add_update_hints_moves_and_holders(connection: Connection) -> None:
    for name in (
        "status",
        "wished_interval",
        "skip_hours",
        "skip_days",
        "moved_to",
        "moved_since",
        "move_settled",
    ):
        _add_column(connection, tables.sources, name)
    _add_column(connection, tables.hosts, "holder")
    _add_index(connection, tables.entries, "entries_by_source")


def _add_choices(connection: Connection) -> None:
    tables.choices.create(connection)
    # The first states of version 2 were created without it.
    if "holder" not in {column["name"] for column in inspect(connection).get_columns("hosts")}:
        _add_column(connection, tables.hosts, "holder")


def _add_asked_interval(connection: Connection) -> None:
    """Add ``asked_interval``, computed from ``due_at``, as version 3 did not record it.

    It is one millisecond less than the difference, which rounding may have made longer.
    """
    _add_column(connection, tables.sources, "asked_interval")
    columns = tables.sources.c
    waits = update(tables.sources).where(
        columns.due_at > columns.fetched_at, columns.due_at != NEVER
    )
    connection.execute(waits.values(asked_interval=columns.due_at - columns.fetched_at - 0.001))


def _add_indexes(connection: Connection) -> None:
    tables.indexes.create(connection)


def _add_failing_and_onward_moves(connection: Connection) -> None:
    for name in ("move_failing_since", "onward_to", "onward_since"):
        _add_column(connection, tables.sources, name)


def _drop_second_index_of_keys(connection: Connection) -> None:
    connection.exec_driver_sql("DROP INDEX IF EXISTS ix_entries_full_key")


def _add_silences(connection: Connection) -> None:
    for name in ("silences", "silent_at"):
        _add_column(connection, tables.hosts, name)


def _add_pauses_and_acts(connection: Connection) -> None:
    _add_column(connection, tables.hosts, "pause")
    tables.acts.create(connection)


def _add_validators_of_robots(connection: Connection) -> None:
    """Add the validators of robots.txt, and forget those of the blocklist.

    Version 9 kept them for the URL that was asked for, also if another one answered.
    """
    for name in ("validator_url", "etag", "last_modified"):
        _add_column(connection, tables.robots, name)
    tables.robots_waits.create(connection)
    connection.execute(update(tables.robots).values(unused=False))
    connection.execute(update(tables.blocklist).values(etag=None, last_modified=None))


def _add_runs_and_evidence(connection: Connection) -> None:
    for table in (tables.runs, tables.copies, tables.denials):
        table.create(connection)
    for table in (tables.entries, tables.requests):
        _add_column(connection, table, "run")
    for name in _EVIDENCE:
        _add_column(connection, tables.requests, name)
    _add_index(connection, tables.requests, "requests_by_host")
    for table in (tables.robots, tables.blocklist):
        _add_column(connection, table, "copy")
    _add_index(connection, tables.robots, "robots_by_copy")
    _keep_copies_in_force(connection)


def _keep_copies_in_force(connection: Connection) -> None:
    """Keep what version 10 had in force as copies: from now on requests may name them."""
    for table, key, moment in (
        (tables.robots, tables.robots.c.origin, tables.robots.c.fetched_at),
        (tables.blocklist, tables.blocklist.c.url, tables.blocklist.c.checked_at),
    ):
        has_body = select(key).where(table.c.body.is_not(None)).order_by(moment)
        places = connection.scalars(has_body).all()
        documents = select(key, moment, table.c.body).order_by(moment)
        name_it = update(table).where(key == bindparam("place")).values(copy=bindparam("name"))
        for start in range(0, len(places), _BODIES_AT_ONCE):
            some = key.in_(places[start : start + _BODIES_AT_ONCE])
            names = [
                {
                    "place": place,
                    "name": keep_copy(connection, table.name, place, body, now=at, last=None),
                }
                for place, at, body in connection.execute(documents.where(some)).all()
            ]
            connection.execute(name_it, names)


def _add_column(connection: Connection, table: Table, name: str) -> None:
    column = CreateColumn(table.c[name]).compile(dialect=connection.dialect)
    connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {column}")


def _add_index(connection: Connection, table: Table, name: str) -> None:
    (index,) = (index for index in table.indexes if index.name == name)
    connection.execute(CreateIndex(index))


#: Each step, by the version that it starts from.
_STEPS: Final[Mapping[int, Callable[[Connection], None]]] = {
    1: _add_update_hints_moves_and_holders,
    2: _add_choices,
    3: _add_asked_interval,
    4: _add_indexes,
    5: _add_failing_and_onward_moves,
    6: _drop_second_index_of_keys,
    7: _add_silences,
    8: _add_pauses_and_acts,
    9: _add_validators_of_robots,
    10: _add_runs_and_evidence,
}
