"""Upgrades of a state that an older version wrote, from schema 5 on.

All changes are made in one transaction, so a process that is killed leaves the state as it was. An
SQLite file is copied before that, to a file beside it that the operator may delete.

A version that begins or takes a host reads the schema in the same statement, so a worker of an
older schema that was frozen meanwhile sends nothing more. Workers that are alive would fail: an
upgrade waits until they have ended.
"""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, insert, select, update
from sqlalchemy.schema import CreateColumn

from walsh_scrapy.files import atomic_file
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.pacing import BEAT_SECONDS, WORKER_SECONDS
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.state.database import NOW, Database, clock_of
from walsh_scrapy.state.errors import StateError
from walsh_scrapy.state.retention import BackupStore
from walsh_scrapy.state.tables import (
    LAST_SEQ,
    VERSION,
    choices,
    entries,
    first_choices,
    lock_schema,
    readers,
    runs,
    schema_version,
    set_dialect_options,
    versions,
    workers,
)
from walsh_scrapy.state.views import create_views

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Column, Connection

#: Seconds that an upgrade waits for workers to end.
WAIT_SECONDS: Final = 30.0
#: Seconds after its last beat after which a worker counts as dead here.
_SILENT_SECONDS: Final = 3 * BEAT_SECONDS
_POLL_SECONDS: Final = 0.5
_MIB: Final = 2**20
#: Free space that the folder of an SQLite file needs, in sizes of the file: for the copy, for new
#: indexes, and for the write-ahead log.
_FREE_SIZES: Final = 3

_BEATING_SQL: Final = (
    select(runs.c.id, runs.c.spider, runs.c.started_at)
    .select_from(workers.outerjoin(runs, runs.c.id == workers.c.run))
    .where(workers.c.expires_at - WORKER_SECONDS > NOW - _SILENT_SECONDS)
    .order_by(runs.c.id)
)


def _to_6(connection: Connection) -> None:
    """Numbers of entries, readers, and the id of the state."""
    _add_column(connection, entries.c.seq)
    readers.create(connection)
    connection.execute(insert(choices), first_choices())
    places = select(
        entries.c.key,
        func.row_number().over(order_by=(entries.c.first_seen, entries.c.key)).label("place"),
    ).subquery()
    by_place = update(entries).where(entries.c.key == places.c.key).values(seq=places.c.place)
    last = str(connection.execute(by_place).rowcount)
    connection.execute(update(choices).where(choices.c.name == LAST_SEQ).values(value=last))


#: What each schema has that the one before it has not.
STEPS: Final[Mapping[int, Callable[[Connection], None]]] = {6: _to_6}


def _add_column(connection: Connection, column: Column[object]) -> None:
    """Add a column that its table has now, after the others, and the indexes that need it."""
    definition = CreateColumn(column).compile(dialect=connection.dialect)
    connection.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {definition}")
    for index in column.table.indexes:
        if column.name in index.columns:
            index.create(connection)


def upgrade(database: Database, report: Callable[[str], None]) -> None:
    """Upgrade a state of an older schema; ``report`` gets a line for each step.

    Waits for workers of the state to end, for half a minute. Raises StateError if they do not, and
    if there is too little space for the copy of an SQLite file; nothing has changed then.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    is_waiting = False
    while busy := database.write(partial(_upgrade, database, report)):
        if time.monotonic() > deadline:
            raise StateError(
                f"{database} is not upgraded to schema {VERSION} while other crawls use it: "
                f"{', '.join(busy)}; end them, then start again"
            )
        if not is_waiting:
            is_waiting = True
            report(f"{database} has an older schema; waiting for {count_of(len(busy), 'crawl')}")
        time.sleep(_POLL_SECONDS)


def _upgrade(
    database: Database, report: Callable[[str], None], connection: Connection
) -> Sequence[str]:
    """Upgrade the state in a transaction; return the live workers instead, if there are any."""
    lock_schema(connection)
    (version,) = versions(connection)
    if version == VERSION:  # another process was first
        return ()
    if busy := live_workers(connection):
        return busy
    report(f"upgrading {database} from schema {version} to {VERSION}")
    if database.file is not None:
        report(f"its copy is {_copy(database, database.file.path, version)}; you may delete it")
    began = time.monotonic()
    set_dialect_options(connection)
    for step in range(version + 1, VERSION + 1):
        STEPS[step](connection)
    connection.execute(update(schema_version).values(version=VERSION))
    create_views(connection)
    report(f"the changes took {time.monotonic() - began:.1f} s")
    return ()


def live_workers(connection: Connection) -> list[str]:
    """Return the names of the workers that beat: run, spider and start of each."""
    return [_name_of(*row) for row in connection.execute(_BEATING_SQL, clock_of(connection))]


def _copy(database: Database, path: Path, version: int) -> Path:
    """Copy the file of a state to a new file beside it, and return its path."""
    log = Path(f"{path}-wal")
    size = path.stat().st_size + (log.stat().st_size if log.exists() else 0)
    free = shutil.disk_usage(path.parent).free
    if free < _FREE_SIZES * size:
        raise StateError(
            f"{database} is not upgraded to schema {VERSION}: that needs "
            f"{_FREE_SIZES * size / _MIB:.0f} MiB of free space in its folder, for a copy among "
            f"others, and there are {free / _MIB:.0f} MiB; make room, then start again"
        )
    copy = Path(f"{path}.schema-{version}")
    number = 1
    while copy.exists():  # of an upgrade that was killed, or of another file with this name
        number += 1
        copy = Path(f"{path}.schema-{version}.{number}")
    try:
        with atomic_file(copy) as file:
            BackupStore(database).copy(Path(file.name))
            Path(file.name).chmod(path.stat().st_mode & 0o777)
    except OSError as error:
        raise StateError(
            f"{database} is not upgraded to schema {VERSION}, because it cannot be copied to "
            f"{copy}: {error.strerror}; make room, or check the permission to write, then start "
            "again"
        ) from error
    return copy


def _name_of(number: int | None, spider: str, started_at: float) -> str:
    if number is None:
        return "a crawl that is starting"
    return f"run {number} ({spider}), since {format_moment(started_at)}"
