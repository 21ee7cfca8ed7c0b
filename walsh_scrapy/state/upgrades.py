"""Upgrades of a state that an older version wrote, from schema 5 on.

All changes are made in one transaction, so a process that is killed leaves the state as it was. An
SQLite file is copied before that, to a file beside it that the operator may delete.

A version that begins or takes a host reads the schema in the same statement, so a worker of an
older schema that was frozen during the upgrade sends nothing more. Workers that are alive would
fail: an upgrade waits until they have ended.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import defaultdict
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.schema import CreateColumn

from walsh_scrapy.files import atomic_file
from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.policy.entrykeys import EntryKeys, SourceKeys, page_elsewhere
from walsh_scrapy.policy.pacing import BEAT_SECONDS, WORKER_SECONDS
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.state.database import NOW, Database, clock_of
from walsh_scrapy.state.engine import StateError
from walsh_scrapy.state.records import in_batches
from walsh_scrapy.state.retention import BackupStore
from walsh_scrapy.state.tables import (
    LAST_SEQ,
    VERSION,
    ambiguous_keys,
    choices,
    declared,
    entries,
    files,
    first_choices,
    lock_schema,
    metadata,
    overrides,
    readers,
    reports,
    runs,
    schema_version,
    set_dialect_options,
    sightings,
    sources,
    versions,
    workers,
)
from walsh_scrapy.state.views import create_views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Select
    from sqlalchemy import Row as SqlRow

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

#: Rows that are read at once, and after how many of them a line says so.
_PAGE_ROWS: Final = 5_000
_PROGRESS_ROWS: Final = 200_000
_E: Final = entries.c
_OLD_ENTRY: Final = _E["key", "page_key", "source", "kind", "item"]
_OLD_SIGHTINGS_SQL: Final = select(
    *sightings.c["key", "source"], _E.source.label("found_by"), *_E["kind", "item"]
).join(entries, _E.key == sightings.c.key)
_REPEATED_PAGES_SQL: Final = text("SELECT source, page_key FROM repeated_pages")
_RENEWED: Final[dict[str, Any]] = {
    "page_key": bindparam("page"),
    "id_key": bindparam("id"),
    "title_key": bindparam("title"),
}
_HAS_KEY: Final = _E.key == bindparam("of")
_ROW_ID: Final[ColumnElement[Any]] = literal_column("entries.rowid")
_RENEW_BY_ROW_ID_SQL: Final = update(entries).where(bindparam("of") == _ROW_ID).values(_RENEWED)
_RENEW_BY_KEY_SQL: Final = text(
    "UPDATE entries SET page_key = new.page, id_key = new.id, title_key = new.title FROM unnest("
    "CAST(:of AS text[]), CAST(:page AS text[]), CAST(:id AS text[]), CAST(:title AS text[])"
    ") AS new(key, page, id, title) WHERE entries.key = new.key"
)
_MOVE_ENTRY_SQL: Final = update(entries).where(_HAS_KEY).values(page_key=bindparam("page"))
_RENEW_SIGHTING_SQL: Final = (
    update(sightings)
    .where(sightings.c.key == bindparam("of"), sightings.c.source == bindparam("of_source"))
    .values(_RENEWED)
)


def _number_of(column: Column[Any]) -> ColumnElement[int]:
    """Return the number of different texts in a column."""
    return func.count(func.nullif(column, "").distinct())


_SHARED_IDS_SQL: Final = (
    select(_E.source, _E.id_key, _E.first_seen)
    .where(_E.id_key.is_not(None))
    .group_by(_E.source, _E.id_key, _E.first_seen)
    .having(or_(_number_of(_E.page_key) > 1, _number_of(_E.title_key) > 1))
)
_IS_AMBIGUOUS: Final = and_(ambiguous_keys.c.source == _E.source, ambiguous_keys.c.key == _E.id_key)
_AMBIGUOUS_ENTRIES_SQL: Final = select(*_E["key", "source", "kind", "item"]).join(
    ambiguous_keys, _IS_AMBIGUOUS
)
_by_age: Final = (
    select(
        _E.key,
        func.row_number()
        .over(partition_by=(_E.source, _E.id_key), order_by=(_E.first_seen.desc(), _E.key))
        .label("number"),
    )
    .where(_E.id_key.is_not(None))
    .subquery()
)
_EARLIER_ENTRIES_SQL: Final = select(_by_age.c.key).where(_by_age.c.number > 1)


def _to_6(connection: Connection, report: Callable[[str], None]) -> None:
    """Numbers of entries, readers, the id of the state, and keys of entries without the scheme."""
    _add_columns(connection, entries.c.seq, *overrides.c["url", "requests"])
    _create_indexes(connection, "entries_by_seq")
    readers.create(connection)
    connection.execute(insert(choices), first_choices())
    places = select(
        entries.c.key,
        func.row_number().over(order_by=(entries.c.first_seen, entries.c.key)).label("place"),
    ).subquery()
    by_place = update(entries).where(entries.c.key == places.c.key).values(seq=places.c.place)
    last = str(connection.execute(by_place).rowcount)
    connection.execute(update(choices).where(choices.c.name == LAST_SEQ).values(value=last))
    added = ("repeated", "read_at", "deferred_until", "feed_title", "feed_host")
    _add_columns(connection, *sources.c[added])
    _add_columns(connection, declared.c.added_at)
    was_read = func.coalesce(sources.c.failing_since, sources.c.visited_at)
    connection.execute(update(sources).where(sources.c.format != "").values(read_at=was_read))
    file_read_at = select(files.c.read_at).where(files.c.id == declared.c.file).scalar_subquery()
    connection.execute(update(declared).values(added_at=func.coalesce(file_read_at, 0.0)))
    reports.create(connection)
    connection.exec_driver_sql("DROP VIEW IF EXISTS readable_problems")
    connection.execute(delete(choices).where(choices.c.name == "readable_problems"))
    _renew_entry_keys(connection, report)


def _renew_entry_keys(connection: Connection, report: Callable[[str], None]) -> None:
    """Make the keys of all entries anew, from their items.

    A row that cannot be read keeps its old keys. No row gets another primary key.
    """
    for index in ("entries_by_page", "entries_by_source", "sightings_by_source"):
        connection.exec_driver_sql(f"DROP INDEX {index}")
    added = ("id_key", "twin", "former_titles", "changed_at", "changed_seq", "changed_again")
    _add_columns(connection, *entries.c[added])
    _add_columns(connection, *sightings.c["page_key", "id_key", "title_key", "evident_date"])
    ambiguous_keys.create(connection)
    ambiguous = _renew_entries(connection, report)
    _renew_sightings(connection)
    _keep_ids_apart(connection, ambiguous)
    for statement in ("DROP TABLE repeated_pages", "ALTER TABLE entries DROP COLUMN own_key"):
        connection.exec_driver_sql(statement)
    _create_indexes(connection, "entries_by_page", "entries_by_id")
    _create_indexes(connection, "entries_by_change", "entries_by_change_again")
    _create_indexes(connection, "sightings_by_id", "sightings_by_page")


def _renew_entries(connection: Connection, report: Callable[[str], None]) -> set[tuple[str, str]]:
    """Renew the keys of entries; return the pages that sources listed more than once."""
    repeated: defaultdict[str, set[str]] = defaultdict(set)
    for source, page in connection.execute(_REPEATED_PAGES_SQL):
        repeated[page].add(source)
        repeated[page_elsewhere(page)].add(source)
    ambiguous: set[tuple[str, str]] = set()
    done = 0
    is_sqlite = connection.dialect.name == "sqlite"
    # On SQLite, rows in the order of the file, because those in the order of keys are anywhere.
    place = _ROW_ID if is_sqlite else _E.key
    for rows in _pages_of(connection, select(place.label("place"), *_OLD_ENTRY), 1):
        changes = []
        for row in rows:
            entry = _read_entry(row.source, row.kind, row.item)
            if entry is None:
                continue
            changes.append({"of": row.place, **_new_keys(entry.stored_in(row.source))})
            pages = (entry.keys.page, page_elsewhere(entry.keys.page))
            sources_of_page = repeated.get(row.page_key or row.key, ())
            ambiguous.update((source, page) for source in sources_of_page for page in pages)
        if changes:
            _renew_rows(connection, changes)
        done += len(rows)
        if done % _PROGRESS_ROWS == 0:
            report(f"renewed the keys of {done:,} entries")
    return ambiguous


def _renew_rows(connection: Connection, changes: Sequence[Mapping[str, Any]]) -> None:
    """Write new keys of entries; to a server all at once, because it waits between statements."""
    if connection.dialect.name == "sqlite":
        connection.execute(_RENEW_BY_ROW_ID_SQL, changes)
        return
    columns = {name: [change[name] for change in changes] for name in changes[0]}
    connection.execute(_RENEW_BY_KEY_SQL, columns)


def _renew_sightings(connection: Connection) -> None:
    """Give sightings the keys of their entries."""
    for rows in _pages_of(connection, _OLD_SIGHTINGS_SQL, 2):
        changes = []
        for row in rows:
            entry = _read_entry(row.found_by, row.kind, row.item)
            if entry is not None:
                keys = entry.stored_in(row.source)._replace(id=None)
                changes.append({"of": row.key, "of_source": row.source, **_new_keys(keys)})
        if changes:
            connection.execute(_RENEW_SIGHTING_SQL, changes)


def _keep_ids_apart(connection: Connection, ambiguous: set[tuple[str, str]]) -> None:
    """Leave each id in one row of its source, and note the ids and pages of several entries.

    An id that entries of one visit share proves nothing. Otherwise the last entry with an id has
    it: the others are the same with another link, or other entries that had the id before.
    """
    ambiguous.update((source, id_key) for source, id_key, _ in connection.execute(_SHARED_IDS_SQL))
    rows = [{"source": source, "key": key} for source, key in sorted(ambiguous)]
    for batch in in_batches(rows):
        connection.execute(insert(ambiguous_keys), batch)
    linkless = []
    for row in connection.execute(_AMBIGUOUS_ENTRIES_SQL):
        entry = _read_entry(row.source, row.kind, row.item)
        if entry is not None and entry.keys.linkless_page is not None:
            linkless.append({"of": row.key, "page": entry.keys.linkless_page})
    if linkless:
        connection.execute(_MOVE_ENTRY_SQL, linkless)
    for no_ids in (_AMBIGUOUS_ENTRIES_SQL, _EARLIER_ENTRIES_SQL):
        keys = no_ids.with_only_columns(no_ids.selected_columns.key)
        connection.execute(update(entries).where(entries.c.key.in_(keys)).values(id_key=None))


class _OldEntry(NamedTuple):
    """An entry, as its item says."""

    keys: EntryKeys
    host: str  #: of its page

    def stored_in(self, source: str) -> EntryKeys:
        """Return its keys as a source stores them."""
        is_own = self.host in ("", host_of(source))
        return self.keys if is_own else self.keys._replace(page=page_elsewhere(self.keys.page))


def _read_entry(source: str, kind: str, item: str) -> _OldEntry | None:
    """Return the entry of an item that a source found; None if it cannot be read."""
    try:
        values = json.loads(item)
        url, id_, title = (values.get(name) for name in ("url", "id", "title"))
        keys = _keys_of_source(source).of(url, id_, None if kind == "llms" else title)
    except (ValueError, TypeError, AttributeError):
        return None
    return _OldEntry(keys, host_of(url or id_ or ""))


_keys_of_source = lru_cache(maxsize=1024)(SourceKeys)


def _new_keys(keys: EntryKeys) -> dict[str, str | None]:
    return {"page": keys.page, "id": keys.id, "title": keys.title or ""}


def _pages_of(
    connection: Connection, query: Select[Any], keys: int
) -> Iterator[Sequence[SqlRow[Any]]]:
    """Yield the rows of a query some thousands at a time; its first columns are their keys."""
    columns = list(query.selected_columns)[:keys]
    ordered = query.order_by(*columns).limit(_PAGE_ROWS)
    page = ordered
    while rows := connection.execute(page).all():
        yield rows
        page = ordered.where(tuple_(*columns) > tuple_(*rows[-1][:keys]))


#: What each schema has that the one before it has not.
STEPS: Final[Mapping[int, Callable[[Connection, Callable[[str], None]], None]]] = {6: _to_6}


def _add_columns(connection: Connection, *columns: Column[Any]) -> None:
    """Add columns that a table has now, after the others."""
    for column in columns:
        definition = CreateColumn(column).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {definition}")


def _create_indexes(connection: Connection, *names: str) -> None:
    """Create indexes that tables have now."""
    for table in metadata.sorted_tables:
        for index in table.indexes:
            if index.name in names:
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
    if not database.is_sqlite:  # between two statements an upgrade may compute for long
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
    set_dialect_options(connection)
    for step in range(version + 1, VERSION + 1):
        STEPS[step](connection, report)
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
