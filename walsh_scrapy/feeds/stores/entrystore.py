"""Entries of feeds and llms.txt files, as they were first seen.

An entry is stored once and then never changed, so that no run reports it again. Whether an entry of
a document is new is decided by its keys: of its page, of its id there, and of its title (decision
19 has the rules). Another source that has the entry too is noted as a *sighting*.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import BigInteger, and_, bindparam, case, cast, func, not_, or_, select, update

from walsh_scrapy.feeds.metadata.encoding import REPLACEMENT
from walsh_scrapy.feeds.metadata.entries import (
    EntryKeys,
    KnownEntries,
    Place,
    is_damaged_copy,
    places_of,
    places_of_same,
    with_title_as_id,
)
from walsh_scrapy.policy.wording import storable
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.records import RowValues, in_batches, insert_if_new
from walsh_scrapy.state.tables import LAST_SEQ, choices, entries, repeated_pages, sightings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import BindParameter, Connection
    from sqlalchemy import Row as SqlRow

#: Pairs of a stored title and a title of a document that are compared for damage: each entry of a
#: page is compared with each row of that page.
MAX_COMPARED_TITLES: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRecord:
    """An entry of a document that may be new."""

    key: str  #: made from its page and its id; see `metadata.entries.with_keys`
    page_key: str
    title_key: str | None = None  #: made from its page and its title
    #: The date of publication (RFC 3339), if it tells entries apart; see
    #: `metadata.entries.document_keys`.
    evident_date: str | None = None
    is_own: bool = True  #: whether its page is on the host of its source
    is_page_repeated: bool = False  #: whether its document lists its page more than once
    has_doubtful_dates: bool = False  #: whether the dates of its document prove nothing
    source: str  #: URL of the source, as declared
    kind: str
    first_seen: float  #: epoch seconds
    item: str  #: the exported item as JSON
    run: int | None = None  #: the number of the run that fetched it

    @property
    def keys(self) -> EntryKeys:
        """The fields that are compared with other entries."""
        return EntryKeys(self.page_key, self.key, self.title_key, self.evident_date)

    @property
    def has_id(self) -> bool:
        """Whether its key was made from an id, and not from its page or title for want of an id."""
        has_title_as_id = self.is_page_repeated and self.key == self.title_key
        return self.key != self.page_key and not has_title_as_id


class StoredEntry(NamedTuple):
    """An entry as the state has it."""

    key: str
    item: str  #: the exported item as JSON
    source: str
    is_backfill: bool  #: whether it was there when its source was read for the first time
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
_PAGES: Final[BindParameter[str]] = bindparam("pages", expanding=True)
_IS_DAMAGED: Final = or_(entries.c.item.contains(REPLACEMENT), bindparam("with_items"))
_STORED_KEYS_SQL: Final = (
    select(*entries.c["key", "page_key", "own_key", "title_key", "evident_date", "source"])
    .add_columns(case((_IS_DAMAGED, entries.c.item)).label("item"))
    .where(or_(entries.c.key.in_(_PAGES), entries.c.page_key.in_(_PAGES)))
)
_REPEATED_PAGES_SQL: Final = select(repeated_pages.c.page_key).where(
    repeated_pages.c.source == bindparam("of")
)
_INSERTED_SQL: Final = select(*entries.c["own_key", "key"]).where(
    entries.c.source == bindparam("of"), entries.c.first_seen == bindparam("at")
)
_ENTRIES_SQL: Final = select(*entries.c["key", "item", "source", "backfill"])
_IS_ELSEWHERE: Final = and_(
    sightings.c.key == entries.c.key, sightings.c.source != entries.c.source
)
_SIGHTED_ENTRIES_SQL: Final = _ENTRIES_SQL.add_columns(sightings.c.source).select_from(
    entries.outerjoin(sightings, _IS_ELSEWHERE)
)
_NEWEST_SQL: Final = (
    _ENTRIES_SQL.where(entries.c.source == bindparam("url"))
    .order_by(entries.c.first_seen.desc(), entries.c.key)
    .limit(1)
)


_IS_LAST: Final = choices.c.name == LAST_SEQ
_HAS_UNNUMBERED_SQL: Final = select(entries.c.key).where(entries.c.seq.is_(None)).limit(1)
# Its lock lets one transaction number at a time. SQLite has no such lock, and needs none.
_LAST_SQL: Final = select(cast(choices.c.value, BigInteger)).where(_IS_LAST)
_LOCK_SQL: Final = _LAST_SQL.with_for_update()
# PostgreSQL allows no window function beside FOR UPDATE. Rows that another transaction changes now
# get a number the next time.
_unnumbered = (
    select(entries.c.key, entries.c.first_seen)
    .where(entries.c.seq.is_(None))
    .with_for_update(skip_locked=True)
    .subquery()
)
_places = select(
    _unnumbered.c.key,
    func.row_number().over(order_by=(_unnumbered.c.first_seen, _unnumbered.c.key)).label("place"),
).subquery()
_NUMBER_SQL: Final = (
    update(entries)
    .where(entries.c.key == _places.c.key)
    .values(seq=bindparam("last") + _places.c.place)
)
_SET_LAST_SQL: Final = update(choices).where(_IS_LAST).values(value=bindparam("last"))


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
        query = _SIGHTED_ENTRIES_SQL.where(entries.c.first_seen >= since)
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
        return None if row is None else StoredEntry(*row)


def has_unnumbered(connection: Connection) -> bool:
    """Return True if an entry has no number yet."""
    return connection.scalar(_HAS_UNNUMBERED_SQL) is not None


def number_entries(connection: Connection) -> None:
    """Give the next numbers to all entries that are committed and have none.

    Readers get entries in this order. The time at which an entry was first seen is no such order,
    because of two transactions the later one may commit first. So an entry is inserted without a
    number, which makes nobody wait. A number is never used again, also if its entry is deleted.
    """
    if not has_unnumbered(connection):
        return
    last = connection.scalars(_LOCK_SQL).one()
    # A statement of its own: on PostgreSQL it sees what was committed before it got the lock.
    numbered = connection.execute(_NUMBER_SQL, {"last": last}).rowcount
    connection.execute(_SET_LAST_SQL, {"last": str(last + numbered)})


def insert_unseen(
    connection: Connection,
    records: Sequence[EntryRecord],
    *,
    backfill: bool = False,
    is_rerun: bool = False,
) -> dict[str, str]:
    """Insert the entries of one document that are new; return the keys of their rows.

    The keys of the result are those of the records. ``backfill`` means that their source is read
    for the first time. With ``is_rerun`` also return the entries that an earlier attempt of the
    transaction inserted.

    An entry whose page is on another host than its source is compared with the entries of the
    sources of that host, and is stored under keys that these do not use. So a source cannot make an
    entry of another host look known, which would keep it from being reported there.
    """
    if not records:
        return {}
    repeated = _RepeatedPages(connection, records)
    identified = _judge_ids(connection, records, repeated)
    original_keys: dict[str, str] = {}  # the keys in the document, by the keys as stored
    for entry, record in zip(identified, records, strict=True):
        original_keys.setdefault(entry.key, record.key)
    to_insert = [entry for entry in identified if entry.is_own]
    foreign = [entry for entry in identified if not entry.is_own]
    stored, elsewhere = _read_stored(connection, foreign, repeated)
    for entry in foreign:
        if stored.has(entry.keys):
            _write_sightings(connection, entry, elsewhere)
        else:
            stored.add(entry.keys)
            to_insert.append(_with_foreign_keys(entry))
            original_keys[to_insert[-1].key] = original_keys[entry.key]
    new = _insert_unseen(connection, to_insert, repeated, backfill=backfill)
    if is_rerun:
        inserted = connection.execute(
            _INSERTED_SQL, {"of": records[0].source, "at": records[0].first_seen}
        )
        new |= {own_key: key for own_key, key in inserted if own_key in original_keys}
    return {original_keys[own_key]: key for own_key, key in new.items()}


class _RepeatedPages:
    """The pages that a source has listed more than once in one document, by their keys.

    They are kept in the state, and are read only if they are needed.
    """

    def __init__(self, connection: Connection, records: Sequence[EntryRecord]) -> None:
        self._connection = connection
        self._source = records[0].source
        self._pages: set[str] | None = None
        for batch in in_batches(
            sorted({entry.page_key for entry in records if entry.is_page_repeated})
        ):
            rows = [{"source": self._source, "page_key": page} for page in batch]
            insert_if_new(connection, repeated_pages, rows)

    def __contains__(self, page_key: object) -> bool:
        if self._pages is None:
            pages = set(self._connection.scalars(_REPEATED_PAGES_SQL, {"of": self._source}))
            self._pages = pages | {_foreign_key(page) for page in pages}
        return page_key in self._pages


def _judge_ids(
    connection: Connection, records: Sequence[EntryRecord], repeated: _RepeatedPages
) -> list[EntryRecord]:
    """Return the entries with the keys by which they are compared.

    An id that proves nothing is treated as missing. On a repeated page the title replaces a missing
    id.
    """
    has_valid_ids = not _has_doubtful_ids(connection, records)
    identified = []
    for entry in records:
        keys = entry.keys if has_valid_ids else entry.keys._replace(key=entry.page_key)
        key = with_title_as_id(keys, repeated).key
        identified.append(entry if key == entry.key else replace(entry, key=key))
    return identified


def _has_doubtful_ids(connection: Connection, records: Sequence[EntryRecord]) -> bool:
    """Return True if a document seems to get new ids each time, as it gets new dates.

    Then none of its ids is stored, but some of its pages are, with the same title.
    """
    if not any(entry.has_doubtful_dates for entry in records):
        return False
    ids: set[str] = set()
    titles: set[str | None] = set()
    pages: set[str] = set()
    for entry in records:
        for variant in (entry,) if entry.is_own else (entry, _with_foreign_keys(entry)):
            pages.add(variant.page_key)
            if variant.has_id:
                ids.add(variant.key)
            titles.add(variant.title_key)
    has_known_title = False
    for batch in in_batches(pages):
        for row in connection.execute(
            _STORED_KEYS_SQL, {"pages": batch, "with_items": False}
        ).all():
            if row.own_key in ids:
                return False
            if row.title_key is not None and row.title_key in titles:
                has_known_title = True
    return has_known_title


def _foreign_key(key: str) -> str:
    """Return the key under which an entry is stored whose page is on another host."""
    return sha256(f"elsewhere {key}".encode()).hexdigest()


def _with_foreign_keys(entry: EntryRecord) -> EntryRecord:
    """Return an entry with keys that differ from its keys in a source on the host of its page."""
    return replace(
        entry,
        key=_foreign_key(entry.key),
        page_key=_foreign_key(entry.page_key),
        title_key=_foreign_key(entry.title_key) if entry.title_key else None,
    )


def _insert_unseen(
    connection: Connection,
    records: Sequence[EntryRecord],
    repeated: _RepeatedPages,
    *,
    backfill: bool,
) -> dict[str, str]:
    """Insert the entries that are not stored yet; return the keys of their rows by their own keys.

    Entries are inserted in the order of their pages: of two transactions that insert the same
    entries at the same time, one waits for the other, and they cannot deadlock. Entries with a date
    come first, because an entry without a date is the same as any entry with its title.

    The first entry of a page is inserted under the key of the page, which only one transaction can
    do. The other entries of that page are checked after that. So are entries that another
    transaction inserted first: PostgreSQL shows its rows by then.
    """
    stored, elsewhere = _read_stored(connection, records, repeated)
    rows: list[RowValues] = []
    later: list[EntryRecord] = []
    new_pages: set[str] = set()
    for entry in sorted(
        records, key=lambda entry: (entry.page_key, entry.evident_date is None, entry.key)
    ):
        page = entry.page_key
        is_first = not stored.has_page(page)
        if page in new_pages:
            later.append(entry)
        elif stored.has(entry.keys):
            _write_sightings(connection, entry, elsewhere)
        else:
            stored.add(entry.keys)
            rows.append(_row(entry, is_first=is_first, backfill=backfill))
            if is_first:
                new_pages.add(page)
    if not rows:
        return {}
    new = _insert_rows(connection, rows)
    lost_races = {row["own_key"] for row in rows} - new.keys()
    later += [entry for entry in records if entry.key in lost_races]
    if later:
        new |= _insert_unseen(connection, later, repeated, backfill=backfill)
    return new


def _insert_rows(connection: Connection, rows: Sequence[RowValues]) -> dict[str, str]:
    """Insert the rows that no other transaction has inserted; return their keys by own key."""
    if insert_if_new(connection, entries, rows) == len(rows):
        return {row["own_key"]: row["key"] for row in rows}
    names = ("key", "own_key", "source", "first_seen")
    wanted = {tuple(row[name] for name in names) for row in rows}
    stored = select(*entries.c[names])
    keys = [row["key"] for row in rows]
    return {
        row.own_key: row.key
        for batch in in_batches(keys)
        for row in connection.execute(stored.where(entries.c.key.in_(batch)))
        if tuple(row) in wanted
    }


def _row(entry: EntryRecord, *, is_first: bool, backfill: bool) -> dict[str, Any]:
    """Return the row of an entry. For thousands of entries `row_of` would be slower."""
    return {
        "key": entry.page_key if is_first else entry.key,
        "page_key": None if is_first else entry.page_key,
        "own_key": entry.key,
        "title_key": entry.title_key,
        "evident_date": entry.evident_date or "",
        "source": entry.source,
        "kind": entry.kind,
        "first_seen": entry.first_seen,
        "item": storable(entry.item),
        "backfill": backfill,
        "run": entry.run,
    }


class _RowsElsewhere:
    """The stored entries of other sources, found by an entry that is the same."""

    def __init__(self) -> None:
        self._rows: defaultdict[Place, list[str]] = defaultdict(list)

    def add(self, row: str, entry: EntryKeys) -> None:
        """Add the key of a row, with the keys of its entry."""
        for place in places_of(entry):
            self._rows[place].append(row)

    def find_same(self, entry: EntryKeys) -> set[str]:
        """Return the keys of the rows whose entry is the same as this one."""
        same: set[str] = set()
        for place in places_of_same(entry):
            same.update(self._rows.get(place, ()))
        return same


def _read_stored(
    connection: Connection, records: Sequence[EntryRecord], repeated: _RepeatedPages
) -> tuple[KnownEntries, _RowsElsewhere]:
    """Return the stored entries of the same pages: all of them, and the rows of other sources.

    For a page on another host the dates of other sources prove nothing: each source may give the
    same article a date of its own.
    """
    stored = KnownEntries()
    elsewhere = _RowsElsewhere()
    by_page: defaultdict[str, list[EntryRecord]] = defaultdict(list)
    for entry in records:
        by_page[entry.page_key].append(entry)
    with_items = any(REPLACEMENT in entry.item for entry in records)
    for pages in in_batches(by_page):
        rows = connection.execute(
            _STORED_KEYS_SQL, {"pages": pages, "with_items": with_items}
        ).all()
        for row in rows:
            keys = _keys_of(row)
            is_elsewhere = row.source != records[0].source
            if is_elsewhere and not by_page[keys.page_key][0].is_own:
                keys = keys._replace(date=None)
            keys = with_title_as_id(keys, repeated)
            stored.add(keys)
            if row.page_key is not None:
                stored.add(keys._replace(key=row.key))  # of the title before `_write_title`
            if is_elsewhere:
                elsewhere.add(row.key, keys)
        for keys in _damaged_copies(connection, rows, by_page):
            stored.add(with_title_as_id(keys, repeated))
    return stored, elsewhere


def _keys_of(row: SqlRow[Any]) -> EntryKeys:
    date = row.evident_date or None
    return EntryKeys(row.page_key or row.key, row.own_key, row.title_key, date)


def _damaged_copies(
    connection: Connection,
    rows: Sequence[SqlRow[Any]],
    by_page: Mapping[str, Sequence[EntryRecord]],
) -> Iterator[EntryKeys]:
    """Yield the keys of rows whose title differs from one in the document only by damage.

    Damage is text in a wrong encoding. A row gets the title from the document if that is less
    damaged and comes from the row's own source.
    """
    titles = {(row.page_key or row.key, row.title_key) for row in rows}
    compared = 0
    for row in rows:
        if row.item is None:
            continue
        keys = _keys_of(row)
        entries_of_page = by_page[keys.page_key]
        compared += len(entries_of_page)
        if compared > MAX_COMPARED_TITLES:
            return
        item = json.loads(row.item)
        stored_title = item.get("title") or ""
        for entry in entries_of_page:
            has_no_id = keys.key in (keys.page_key, keys.title_key) or entry.key == keys.page_key
            title = json.loads(entry.item).get("title") or ""
            is_less_damaged = is_damaged_copy(stored_title, of=title)
            is_copy = is_less_damaged or is_damaged_copy(title, of=stored_title)
            if not is_copy or not (has_no_id or entry.key == keys.key):
                continue
            yield keys._replace(title_key=entry.title_key)
            is_known = entry.title_key and (keys.page_key, entry.title_key) in titles
            if is_less_damaged and row.source == entry.source and not is_known:
                stored_title = title
                titles.add((keys.page_key, entry.title_key))
                _write_title(connection, row, item | {"title": title}, entry.title_key)


def _write_title(
    connection: Connection, row: SqlRow[Any], item: Mapping[str, object], title_key: str | None
) -> None:
    """Replace a damaged title of a row."""
    changes = {"item": storable(json.dumps(item, ensure_ascii=False)), "title_key": title_key}
    if row.own_key == row.title_key:
        changes["own_key"] = title_key
    connection.execute(update(entries).where(entries.c.key == row.key).values(changes))


def _write_sightings(connection: Connection, entry: EntryRecord, elsewhere: _RowsElsewhere) -> None:
    """Note that the source of an entry has the same entries of other sources too."""
    for row in sorted(elsewhere.find_same(entry.keys)):
        insert_if_new(connection, sightings, {"key": row, "source": entry.source})
