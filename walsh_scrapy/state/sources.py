"""What is known of each declared source, and the entries it gave (R7, R8; rulings 17 to 20)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, func, or_, select

from walsh_scrapy.state.rows import row_of
from walsh_scrapy.state.tables import entries, sources
from walsh_scrapy.state.upsert import insert_new, upsert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from walsh_scrapy.state.database import Database


#: Keys looked up at once; databases bound the parameters of a statement.
IN_ONE_QUESTION = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """One source's line; times are epoch seconds."""

    url: str
    kind: str
    fetched_at: float | None = None
    due_at: float = 0.0
    outcome: str = "new"
    detail: str = ""
    failures: int = 0
    status: int | None = None  #: of the last answer
    wished_interval: float = 0.0  #: seconds
    skip_hours: str = ""  #: numbers with commas between them; so are the days' names
    skip_days: str = ""
    moved_to: str | None = None
    moved_since: float | None = None
    move_settled: bool = False  #: from now on it is asked for there
    validator_url: str | None = None  #: the one URL that the validators may be sent to
    etag: bytes | None = None
    last_modified: bytes | None = None


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """One entry as it was first seen; ``item`` is the exported item as JSON."""

    key: str
    full_key: str
    source: str
    kind: str
    first_seen: float
    item: str


_KNOWN: Final = select(entries.c.key, entries.c.full_key).where(
    or_(
        entries.c.key.in_(bindparam("keys", expanding=True)),
        entries.c.full_key.in_(bindparam("keys", expanding=True)),
    )
)
_COLUMNS: Final = tuple(sources.c[field.name] for field in fields(SourceRecord))
_FIND: Final = select(*_COLUMNS).where(sources.c.url == bindparam("key"))


class SourceStore:
    """Remembers each source, and commits what one response gave in one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, url: str) -> SourceRecord | None:
        """Return what is known of a source, or None if it was never tried."""
        with self._database.read() as connection:
            row = connection.execute(_FIND, {"key": url}).one_or_none()
        return None if row is None else _record(row)

    def due_times(self) -> dict[str, float]:
        """Return for every source ever tried when it is due again."""
        with self._database.read() as connection:
            return dict(connection.execute(select(sources.c.url, sources.c.due_at)).all())

    def commit(self, record: SourceRecord, found: Sequence[EntryRecord] = ()) -> frozenset[str]:
        """Write a source's outcome and its entries, both or neither; return the new keys.

        Validators and the entries they vouch for stand or fall together: a crash at any point
        loses no entry and repeats none (ruling 17).
        """
        with self._database.write() as connection:
            upsert(connection, sources, row_of(record))
            known = _known(connection, found)
            fresh = [entry for entry in found if known.isdisjoint((entry.key, entry.full_key))]
            return insert_new(connection, entries, [row_of(entry) for entry in fresh])

    def count_entries(self) -> int:
        """Return how many entries were ever seen."""
        with self._database.read() as connection:
            return connection.scalar(select(func.count()).select_from(entries)) or 0


def _known(connection: Connection, found: Sequence[EntryRecord]) -> frozenset[str]:
    """Return which keys of these entries were seen before, under either name."""
    known: set[str] = set()
    wanted = sorted({key for entry in found for key in (entry.key, entry.full_key)})
    for start in range(0, len(wanted), IN_ONE_QUESTION):
        some = {"keys": wanted[start : start + IN_ONE_QUESTION]}
        for found_keys in connection.execute(_KNOWN, some):
            known.update(found_keys)
    return frozenset(known)


def _record(row: Sequence[object]) -> SourceRecord:
    names = (field.name for field in fields(SourceRecord))
    return SourceRecord(**dict(zip(names, row, strict=True)))  # type: ignore[arg-type]
