"""Entries as they were first seen: each is written once and never changed (decisions 18, 19)."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import bindparam, func, select

from walsh_scrapy.state._statements import Statement
from walsh_scrapy.state.tables import entries
from walsh_scrapy.state.upsert import insert_new, row_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection

    from walsh_scrapy.state.database import Database

#: Rows that a reader has in memory at once.
ROWS_AT_ONCE: Final = 1000
#: Keys in one SELECT; databases limit the parameters of a statement.
KEYS_AT_ONCE: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRecord:
    """One entry to be written; ``item`` is the exported item as JSON."""

    key: str  #: its full key or its page key; see ``metadata.keys``
    full_key: str
    page_key: str  #: looked up beside the full key; it has no column of its own
    source: str  #: URL of the source, as declared
    kind: str
    first_seen: float  #: epoch seconds
    item: str
    run: int | None = None  #: the number of the run that found it


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """Which entries to read: by default all."""

    since: float | None = None  #: epoch seconds: first seen then or later
    sources: tuple[str, ...] = ()  #: URLs as they were declared; empty for all
    kind: str | None = None


class StoredEntry(NamedTuple):
    """An entry as it is stored: its key, and its exported item as JSON."""

    key: str
    item: str


class EntryStore:
    """Reads the entries of all runs, also while a run writes more."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open the entries as they are now; what is written during the block is not seen.

        Raises StateError if the database fails meanwhile.
        """
        with self._database.snapshot() as connection, ExitStack() as opened:
            yield Snapshot(connection, opened)

    def latest_run(self) -> int | None:
        """Return the number of the run that found the newest entry; None if no run is named."""
        with self._database.read() as connection:
            return connection.scalar(_LATEST_RUN)


_LATEST_RUN: Final = (
    select(entries.c.run)
    .where(entries.c.run.is_not(None))
    .order_by(entries.c.first_seen.desc())
    .limit(1)
)
_NEWEST: Final = (
    select(entries.c.key, entries.c.item)
    .where(entries.c.source == bindparam("url"))
    .order_by(entries.c.first_seen.desc(), entries.c.key)
    .limit(1)
)


class Snapshot:
    """The entries as of one moment. What is being read is closed before its connection is."""

    def __init__(self, connection: Connection, opened: ExitStack) -> None:
        self._connection = connection
        self._open = opened

    def count(self, wanted: EntryFilter) -> int:
        """Return the number of entries that pass a filter."""
        counted = select(func.count()).select_from(entries).where(*_conditions(wanted))
        return self._connection.scalar(counted) or 0

    def matching(self, wanted: EntryFilter) -> Iterator[StoredEntry]:
        """Yield the entries that pass a filter, those first seen earliest first.

        At most a thousand are in memory at once. Entries of one response have the same time; they
        come in the order of their keys, which is the same on every database and after a restore.
        """
        found = select(entries.c.key, entries.c.item).where(*_conditions(wanted))
        ordered = found.order_by(entries.c.first_seen, entries.c.key)
        options = {"yield_per": ROWS_AT_ONCE}
        rows = self._connection.execute(ordered, execution_options=options)
        self._open.callback(rows.close)
        for row in rows:
            yield StoredEntry(*row)

    def newest(self, source: str) -> StoredEntry | None:
        """Return the entry of a source that was first seen last, or None if there is none."""
        row = self._connection.execute(_NEWEST, {"url": source}).one_or_none()
        return None if row is None else StoredEntry(*row)


def insert_unseen(connection: Connection, found: Sequence[EntryRecord]) -> frozenset[str]:
    """Insert the entries that are known by neither of their keys; return the keys inserted.

    They are inserted in the order of their keys. So of two transactions that insert the same
    entries at once, one waits for the other, and they cannot block each other.
    """
    known = _known_keys(connection, found)
    unseen = [entry for entry in found if known.isdisjoint((entry.key, entry.full_key))]
    unseen.sort(key=lambda entry: entry.key)
    rows = [_row(entry) for entry in unseen]
    return insert_new(connection, entries, rows)


def _row(entry: EntryRecord) -> dict[str, Any]:
    row = row_of(entry)
    del row["page_key"]
    return row


def _known_keys(connection: Connection, found: Sequence[EntryRecord]) -> frozenset[str]:
    """Return the keys and full keys of stored entries that may be one of these.

    An entry is stored under its full key or its page key, so the index of keys finds it.
    """
    known: set[str] = set()
    wanted = sorted({key for entry in found for key in (entry.full_key, entry.page_key)})
    for start in range(0, len(wanted), KEYS_AT_ONCE):
        some = wanted[start : start + KEYS_AT_ONCE]
        # The last key is repeated up to a power of two, so that few statements are compiled.
        size = 1 << (len(some) - 1).bit_length()
        keys = {f"key{at}": some[min(at, len(some) - 1)] for at in range(size)}
        known.update(*_select_keys(size).all(connection, keys))
    return frozenset(known)


@cache
def _select_keys(size: int) -> Statement:
    """Return the statement that looks up ``size`` keys."""
    wanted = entries.c.key.in_([bindparam(f"key{at}") for at in range(size)])
    return Statement(select(entries.c.key, entries.c.full_key).where(wanted))


def _conditions(wanted: EntryFilter) -> Iterator[ColumnElement[bool]]:
    if wanted.since is not None:
        yield entries.c.first_seen >= wanted.since
    if wanted.sources:
        yield entries.c.source.in_(wanted.sources)
    if wanted.kind is not None:
        yield entries.c.kind == wanted.kind
