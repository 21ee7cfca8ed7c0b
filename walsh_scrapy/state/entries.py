"""The entries as they were first seen: written once, read as of one moment (decision 18)."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import bindparam, func, select

from walsh_scrapy.state.statements import Statement
from walsh_scrapy.state.tables import entries
from walsh_scrapy.state.upsert import insert_new

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection

    from walsh_scrapy.state.database import Database

#: Rows held in memory at once, however many there are.
AT_ONCE: Final = 1000
#: Keys looked up at once; databases bound the parameters of a statement.
IN_ONE_QUESTION: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRecord:
    """One entry as it was first seen; ``item`` is the exported item as JSON."""

    key: str  #: its full key or its page key; see ``metadata.keys``
    full_key: str
    page_key: str  #: where it is looked for beside its full key; no column of its own
    source: str
    kind: str
    first_seen: float
    item: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which entries: all, unless something is said."""

    since: float | None = None  #: epoch seconds: first seen then or later
    sources: tuple[str, ...] = ()  #: URLs as they were declared
    kind: str | None = None


class Seen(NamedTuple):
    """An entry: what it is known by, and its exported item as JSON."""

    key: str
    item: str


class EntryStore:
    """Reads what runs have written, beside whoever is writing more."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Give the entries as they are now, whatever is written until the block ends.

        Raises StateError if the database fails meanwhile.
        """
        with self._database.snapshot() as connection:
            yield Snapshot(connection)


_NEWEST: Final = (
    select(entries.c.key, entries.c.item)
    .where(entries.c.source == bindparam("url"))
    .order_by(entries.c.first_seen.desc(), entries.c.key)
    .limit(1)
)


class Snapshot:
    """The entries as of one moment."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def count(self, choice: Choice) -> int:
        """Return how many entries a choice has."""
        counted = select(func.count()).select_from(entries).where(*_conditions(choice))
        return self._connection.scalar(counted) or 0

    def chosen(self, choice: Choice) -> Iterator[Seen]:
        """Yield the entries of a choice, a thousand in memory at once, the earliest seen first.

        Those of one response were seen at one moment; they come in the order of their keys, which
        is the same on every database and after every restore.
        """
        wanted = select(entries.c.key, entries.c.item).where(*_conditions(choice))
        ordered = wanted.order_by(entries.c.first_seen, entries.c.key)
        rows = self._connection.execute(ordered, execution_options={"yield_per": AT_ONCE})
        for row in rows:
            yield Seen(*row)

    def newest(self, source: str) -> Seen | None:
        """Return an entry that was last found new at a source, or None if it gave none."""
        row = self._connection.execute(_NEWEST, {"url": source}).one_or_none()
        return None if row is None else Seen(*row)


_COLUMNS: Final = tuple(column.name for column in entries.c)


def write_unseen(connection: Connection, found: Sequence[EntryRecord]) -> frozenset[str]:
    """Write the entries that were seen under neither of their keys; return the keys of these.

    In the order of their keys: of two transactions that write the same ones at once, one waits for
    the other, and neither for what the other waits for.
    """
    known = _known(connection, found)
    unseen = [entry for entry in found if known.isdisjoint((entry.key, entry.full_key))]
    unseen.sort(key=lambda entry: entry.key)
    rows = [{name: getattr(entry, name) for name in _COLUMNS} for entry in unseen]
    return insert_new(connection, entries, rows)


def _known(connection: Connection, found: Sequence[EntryRecord]) -> frozenset[str]:
    """Return the keys and full keys of what was seen before and may be one of these entries.

    An entry is kept under its full key or its page key, so one index finds it: that of the keys.
    """
    known: set[str] = set()
    wanted = sorted({key for entry in found for key in (entry.full_key, entry.page_key)})
    for start in range(0, len(wanted), IN_ONE_QUESTION):
        some = wanted[start : start + IN_ONE_QUESTION]
        # Filled up with the last one to a power of two: so few statements are written.
        size = 1 << (len(some) - 1).bit_length()
        keys = {f"key{at}": some[min(at, len(some) - 1)] for at in range(size)}
        known.update(*_known_among(size).all(connection, keys))
    return frozenset(known)


@cache
def _known_among(size: int) -> Statement:
    """Return the statement that looks for so many keys at once."""
    wanted = entries.c.key.in_([bindparam(f"key{at}") for at in range(size)])
    return Statement(select(entries.c.key, entries.c.full_key).where(wanted))


def _conditions(choice: Choice) -> Iterator[ColumnElement[bool]]:
    if choice.since is not None:
        yield entries.c.first_seen >= choice.since
    if choice.sources:
        yield entries.c.source.in_(choice.sources)
    if choice.kind is not None:
        yield entries.c.kind == choice.kind
