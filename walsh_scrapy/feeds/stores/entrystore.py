"""Entries of feeds and llms.txt files, as they were first seen, and their hand-over to readers.

`entrywriter` stores them. Another source that has an entry too is noted as a *sighting*. Each
reader gets every entry, in the order of the entries' numbers.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from sqlalchemy import (
    BigInteger,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    not_,
    or_,
    select,
    update,
)

from walsh_scrapy.state.database import NOW, Store, clock_of
from walsh_scrapy.state.engine import StateError
from walsh_scrapy.state.records import insert_into
from walsh_scrapy.state.tables import (
    LAST_SEQ,
    STATE_ID,
    STATE_ID_SQL,
    choices,
    entries,
    readers,
    sightings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Update


#: The item of an entry that was forgotten: only its keys are kept.
FORGOTTEN: Final = ""


class StoredEntry(NamedTuple):
    """An entry as the state has it."""

    key: str
    item: str  #: the exported item as JSON
    source: str
    is_backfill: bool  #: whether it was there when its source was read for the first time
    changed_at: float | None = None  #: when its title changed, in epoch seconds
    former_titles: str | None = None  #: JSON: the titles that it had, the latest one first
    also_in: tuple[str, ...] = ()  #: the URLs of other sources that had it too


class EntryStore(Store):
    """Reads the entries of all runs, even while a run writes more."""

    @contextmanager
    def snapshot(self) -> Iterator[EntrySnapshot]:
        """Open the entries as they are now; entries that are written during the block are not seen.

        Raises StateError if the database fails.
        """
        with self._database.snapshot() as connection, ExitStack() as opened:
            yield EntrySnapshot(connection, opened)

    def latest_run(self, until: float) -> int | None:
        """Return the run that stored the newest entry until a moment; None if that is unknown."""
        run: int | None = self._database.scalar(_LATEST_RUN_SQL, until=until)
        return run


_LATEST_RUN_SQL: Final = (
    select(entries.c.run)
    .where(entries.c.run.is_not(None), entries.c.first_seen <= bindparam("until"))
    .order_by(entries.c.first_seen.desc())
    .limit(1)
)
_ENTRIES_SQL: Final = select(
    *entries.c["key", "item", "source", "backfill"],
    case((func.coalesce(entries.c.changed_seq, 1) > 0, entries.c.changed_at)).label("changed_at"),
    entries.c.former_titles,
)
_HAS_ITEM: Final = entries.c.item != FORGOTTEN
_IS_ELSEWHERE: Final = and_(
    sightings.c.key == entries.c.key, sightings.c.source != entries.c.source
)
_SIGHTED_ENTRIES_SQL: Final = _ENTRIES_SQL.add_columns(sightings.c.source).select_from(
    entries.outerjoin(sightings, _IS_ELSEWHERE)
)
_NEWEST_SQL: Final = (
    _ENTRIES_SQL.where(entries.c.source == bindparam("url"), _HAS_ITEM)
    .order_by(entries.c.first_seen.desc(), entries.c.key)
    .limit(1)
)


_IS_LAST: Final = choices.c.name == LAST_SEQ
# Its lock lets one transaction number at a time. SQLite has no such lock, and needs none.
_LAST_SQL: Final = select(cast(choices.c.value, BigInteger)).where(_IS_LAST)
_LOCK_SQL: Final = _LAST_SQL.with_for_update()
_SET_LAST_SQL: Final = update(choices).where(_IS_LAST).values(value=bindparam("last"))
# Each of these reads an index.
_IS_NEW: Final = entries.c.seq.is_(None)
_IS_CHANGED: Final = and_(entries.c.changed_at.is_not(None), entries.c.changed_seq.is_(None))
_IS_CHANGED_AGAIN: Final = entries.c.changed_again <= NOW
_HAS_UNNUMBERED_SQL: Final = select(
    or_(*(exists().where(place) for place in (_IS_NEW, _IS_CHANGED, _IS_CHANGED_AGAIN)))
)


def _number_sql(is_next: ColumnElement[bool], time: Column[float], number: str) -> Update:
    """Return the statement that gives numbers to the rows that are next, in the order of a time.

    PostgreSQL allows no window function beside FOR UPDATE. Rows that another transaction changes
    now get a number the next time.
    """
    unnumbered = (
        select(entries.c.key, time.label("time"))
        .where(is_next)
        .with_for_update(skip_locked=True)
        .subquery()
    )
    order = (unnumbered.c.time, unnumbered.c.key)
    place = func.row_number().over(order_by=order).label("place")
    places = select(unnumbered.c.key, place).subquery()
    return (
        update(entries)
        .where(entries.c.key == places.c.key)
        .values({number: bindparam("last") + places.c.place})
    )


_NUMBER_SQL: Final = (
    _number_sql(_IS_NEW, entries.c.first_seen, "seq"),
    _number_sql(_IS_CHANGED, entries.c.changed_at, "changed_seq"),
    _number_sql(_IS_CHANGED_AGAIN, entries.c.changed_again, "changed_seq").values(
        changed_at=NOW, changed_again=None
    ),
)


class EntrySnapshot:
    """The entries at one moment. ``opened`` closes open queries before their connection."""

    def __init__(self, connection: Connection, opened: ExitStack) -> None:
        self._connection = connection
        self._open = opened

    def matching(
        self,
        *,
        since: float = 0.0,
        sources: Sequence[str] = (),
        has_backfill: bool = True,
    ) -> Iterator[StoredEntry]:
        """Yield the entries that were first seen since a moment, the oldest first.

        ``since`` is in epoch seconds. ``sources`` are URLs as declared, empty for all sources;
        entries that such a source shares with another source are included. Without
        ``has_backfill``, entries that the first reading of their source had are omitted.

        At most a thousand entries are in memory at once. Entries of one response have the same
        time; they come in the order of their keys, which is the same on every database and after a
        restore.
        """
        query = _SIGHTED_ENTRIES_SQL.where(entries.c.first_seen >= since, _HAS_ITEM)
        if sources:
            sighted_keys = select(sightings.c.key).where(sightings.c.source.in_(sources))
            query = query.where(or_(entries.c.source.in_(sources), entries.c.key.in_(sighted_keys)))
        if not has_backfill:
            query = query.where(not_(entries.c.backfill))
        ordered = query.order_by(entries.c.first_seen, entries.c.key, sightings.c.source)
        rows = self._connection.execute(ordered)
        self._open.callback(rows.close)
        for stored, rows_of_entry in groupby(rows, key=lambda row: tuple(row[:-1])):
            also_in = tuple(row[-1] for row in rows_of_entry if row[-1] is not None)
            yield StoredEntry(*stored)._replace(also_in=also_in)

    def newest(self, source: str) -> StoredEntry | None:
        """Return the newest entry of a source, or None."""
        row = self._connection.execute(_NEWEST_SQL, {"url": source}).first()
        return None if row is None else StoredEntry(*tuple(row))


def has_unnumbered(connection: Connection) -> bool:
    """Return True if an entry or a change may get a number now."""
    return bool(connection.scalar(_HAS_UNNUMBERED_SQL, clock_of(connection)))


def number_entries(connection: Connection) -> None:
    """Give the next numbers to all entries and changes that are committed and have none.

    Readers get them in this order. The time at which an entry was first seen is no such order,
    because of two transactions the later one may commit first. So an entry is inserted without a
    number, which makes nobody wait. A number is never used again, also if its entry is deleted.
    """
    if not has_unnumbered(connection):
        return
    first = last = connection.scalars(_LOCK_SQL).one()
    # Statements of their own: on PostgreSQL they see what was committed before it got the lock.
    for statement in _NUMBER_SQL:
        values = {"last": last, **clock_of(connection)}
        last += connection.execute(statement, values).rowcount
    if last > first:
        connection.execute(_SET_LAST_SQL, {"last": str(last)})


_POSITION: Final = re.compile(r"([0-9a-f]{16}):([0-9]{1,18})")
_POSITION_SQL: Final = select(choices).where(choices.c.name.in_((STATE_ID, LAST_SEQ)))
_SEQ_SQL: Final = select(readers.c.seq).where(readers.c.name == bindparam("reader"))


class Position(NamedTuple):
    """A place in the order in which readers get the entries of a state."""

    state: str | None  #: the id of the state; None before the first entry
    seq: int  #: the number of the last entry that the reader has got, 0 for none

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a position such as `0123456789abcdef:42`, or `0`: the begin. Raises ValueError."""
        if text == "0":
            return cls(None, 0)
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text[:60]!r} is not a position: copy one from the column `position` of "
                "`walsh new --json`, or write 0 to begin with the first entry"
            )
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        return f"{self.state}:{self.seq}"


class HandoverStore(Store):
    """Numbers entries, and remembers how far each reader has got."""

    def last_position(self) -> Position:
        """Give a number to all entries that have none; return the position of the last entry.

        A role that may only read can call this while every entry has its number.
        """
        if self._database.read(has_unnumbered):
            self._database.write(number_entries)
        return self._database.read(_last_position)

    @contextmanager
    def open_reader(self, name: str) -> Iterator[int | None]:
        """Keep other processes from reading as this reader for a block.

        The value is the number of the last entry that it has got, None for a new reader. Raises
        StateError if another process reads now.
        """
        # With the id, because the states of two bots may be schemas of one database.
        state_id = self._database.scalar(STATE_ID_SQL)
        with self._database.lock(f"reader {state_id} {name}") as is_free:
            if not is_free:
                raise StateError(
                    f"another process reads as {name!r} now; wait until it has ended, or read "
                    "under another name"
                )
            yield self._database.scalar(_SEQ_SQL, reader=name)

    def remember(self, name: str, seq: int, now: float) -> None:
        """Remember that a reader has got all entries up to a number.

        ``now`` is in epoch seconds.
        """
        changes = {"seq": seq, "read_at": now}

        def write(connection: Connection) -> None:
            new = insert_into(connection.dialect.name, readers).values(name=name, **changes)
            connection.execute(new.on_conflict_do_update(index_elements=["name"], set_=changes))

        self._database.write(write)

    def check(self, position: Position, last: Position) -> None:
        """Raise StateError for a position that is not one of this state.

        ``last`` is the position of the last entry.
        """
        if position.state not in (None, last.state):
            raise StateError(
                f"the position {position} is of another state than {self._database}, whose id is "
                f"{last.state}: a copy or a restored backup has an id of its own; compare what you "
                f"have with all entries (`walsh new --after 0`), then go on at the "
                "last position"
            )
        if position.seq > last.seq:
            raise StateError(
                f"the position {position} is after the last entry of {self._database}, "
                f"{last}: was a backup restored? Compare what you have with all entries "
                f"(`walsh new --after 0`), then go on at the last position"
            )


def _last_position(connection: Connection) -> Position:
    values = {row.name: row.value for row in connection.execute(_POSITION_SQL)}
    return Position(values[STATE_ID], int(values[LAST_SEQ]))
