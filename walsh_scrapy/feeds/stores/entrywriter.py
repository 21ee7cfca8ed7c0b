"""Stores the entries of a document, and decides with `metadata.sameentry` which of them are new.

the entries of a document -> `_Reading`: the rows that may be the same -> `judge`
-> changed keys, sightings, rows of new entries -> once more, if a row was there by then
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    and_,
    bindparam,
    case,
    literal_column,
    null,
    or_,
    select,
    union_all,
    update,
)

from walsh_scrapy.feeds.metadata.encoding import REPLACEMENT
from walsh_scrapy.feeds.metadata.sameentry import (
    Known,
    KnownEntry,
    TitleChange,
    change_title,
    is_damaged_copy,
    judge,
)
from walsh_scrapy.policy.entrykeys import EntryKeys, SourceKeys, page_elsewhere, row_key
from walsh_scrapy.policy.wording import storable
from walsh_scrapy.state.records import execute, in_batches, insert_if_new, is_in, text_list
from walsh_scrapy.state.tables import ambiguous_keys, entries, sightings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import BindParameter, Connection

    from walsh_scrapy.feeds.metadata.sameentry import Judgement, Verdict
    from walsh_scrapy.state.records import RowValues

#: Pairs of a stored title and a title of a document that are compared for damage: each entry of a
#: page is compared with each row of that page.
MAX_COMPARED_TITLES: Final = 20_000
#: Entries of a document that are looked up with one statement.
_MAX_LOOKED_UP: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRecord:
    """An entry of a document that may be new."""

    keys: EntryKeys
    is_own: bool = True  #: whether its page is on the host of its source
    has_doubtful_dates: bool = False  #: whether the dates of its document prove nothing
    ambiguous: frozenset[str] = frozenset()  #: ids and pages of several entries of its document
    source: str  #: URL of the source, as declared
    kind: str
    first_seen: float  #: epoch seconds
    item: str  #: the exported item as JSON
    run: int | None = None  #: the number of the run that fetched it


class SeenEntry(NamedTuple):
    """An entry that was seen before."""

    key: str  #: of its row
    first_seen: float  #: epoch seconds


class Written(NamedTuple):
    """What a document has changed, by places in its records."""

    new: Mapping[int, str] = MappingProxyType({})  #: the keys of the rows of new entries
    #: Known entries whose title changed now.
    changed: Mapping[int, SeenEntry] = MappingProxyType({})


_E: Final = entries.c
_S: Final = sightings.c
_OF: Final[BindParameter[str]] = bindparam("of")
#: The item of a row that may change: of the source itself, or one with a damaged title.
_ITEM: Final = case(
    (or_(_E.source == _OF, _E.item.contains(REPLACEMENT), bindparam("with_items")), _E.item)
)


class _KnownRow(NamedTuple):
    """A row of `_KNOWN_SQL`."""

    kind: str  #: "entry", "sighting", or "ambiguous" for a key that is
    key: str
    page_key: str | None
    id_key: str | None
    title_key: str | None
    evident_date: str
    source: str
    first_seen: float
    twin: int | None
    item: str
    former_titles: str | None
    changed_at: float | None
    changed_seq: int | None
    changed_again: float | None


_KEYS: Final = ("key", "page_key", "id_key", "title_key", "evident_date")
_CHANGE_COLUMNS: Final = ("former_titles", "changed_at", "changed_seq", "changed_again")
_ENTRY_SQL: Final = select(
    literal_column("'entry'").label("kind"), *_E[(*_KEYS, "source", "first_seen", "twin")]
).add_columns(_ITEM.label("item"), *_E[_CHANGE_COLUMNS])
_SIGHTING_SQL: Final = select(
    literal_column("'sighting'"), *_S[(*_KEYS, "source")], *(null() for _ in range(7))
).where(_S.source == _OF)
_AMBIGUOUS_SQL: Final = select(
    literal_column("'ambiguous'"), ambiguous_keys.c.key, *(null() for _ in range(12))
).where(ambiguous_keys.c.source == _OF, is_in(ambiguous_keys.c.key, "ambiguous"))
# Each part reads an index over the rows of the source, or of the pages.
_KNOWN_SQL: Final = union_all(
    _ENTRY_SQL.where(is_in(_E.key, "pages")),
    _ENTRY_SQL.where(is_in(_E.page_key, "pages")),
    _ENTRY_SQL.where(_E.source == _OF, is_in(_E.id_key, "ids")),
    _SIGHTING_SQL.where(is_in(_S.page_key, "pages")),
    _SIGHTING_SQL.where(is_in(_S.id_key, "ids")),
    _AMBIGUOUS_SQL,
)
_CHANGES: Final = ("page_key", "id_key", "title_key", "evident_date")
_CHANGE_ENTRY_SQL: Final = (
    update(entries)
    .where(_E.key == bindparam("of_key"))
    .values(
        {name: bindparam(f"new_{name}") for name in (*_CHANGES, "twin", "item", *_CHANGE_COLUMNS)}
    )
)
_CHANGE_SIGHTING_SQL: Final = (
    update(sightings)
    .where(and_(_S.key == bindparam("of_key"), _S.source == _OF))
    .values({name: bindparam(f"new_{name}") for name in _CHANGES})
)


def insert_unseen(
    connection: Connection,
    records: Sequence[EntryRecord],
    *,
    backfill: bool = False,
    is_rerun: bool = False,
) -> Written:
    """Insert the entries of one document that are new, and return them and those that changed.

    ``backfill`` means that their source is read for the first time. With ``is_rerun`` also return
    the entries that an earlier attempt of the transaction inserted or changed. Known entries get
    the link, the title and the keys with which they are listed now.

    Entries are inserted in the order of their pages: of two transactions that insert the same
    entries at the same time, one waits for the other, and they cannot deadlock. The first entry of
    a page is inserted under the key of the page, which only one transaction can do. The other
    entries of that page are judged after that. So are entries that another transaction inserted
    first: PostgreSQL shows its rows by then.
    """
    inserted: dict[int, str] = {}
    changed: dict[int, SeenEntry] = {}
    while records:
        reading = _Reading(connection, records, hidden=frozenset(inserted.values()))
        judgement = reading.judge()
        changes = _Changes(reading, judgement, is_rerun=is_rerun)
        changes.write(connection)
        changed |= changes.changed
        rows = _Rows(reading, backfill=backfill)
        for place, verdict in sorted(enumerate(judgement.verdicts), key=_page_order):
            if place in inserted:
                continue
            if verdict.outcome == "new":
                rows.add(place, verdict.keys)
            elif is_rerun and verdict.entry and reading.is_of_now(verdict.entry):
                inserted[place] = verdict.entry.key
        inserted |= rows.insert(connection)
        if rows.places <= inserted.keys():
            break
    return Written(inserted, changed)


def _page_order(judged: tuple[int, Verdict]) -> tuple[str, ...]:
    keys = judged[1].keys
    return keys.page, keys.title or "", keys.date or "", keys.id or ""


# ---- what may be the same ----


class _Reading:
    """The rows that may be entries of a document, and what they say without the ``hidden`` ones."""

    def __init__(
        self, connection: Connection, records: Sequence[EntryRecord], hidden: frozenset[str]
    ) -> None:
        self.records = records
        self.source = records[0].source
        self.rows: dict[str, _KnownRow] = {}  #: of entries, by their keys
        #: Whole titles in place of damaged ones, by the keys of their rows.
        self.repaired: dict[str, str] = {}
        self.sightings: dict[str, _KnownRow] = {}  #: of the source, by their keys
        self.stored_ambiguous: set[str] = set()  #: ids and pages that the source had before
        self._elsewhere = {
            record.keys.page: page_elsewhere(record.keys.page)
            for record in records
            if not record.is_own
        }
        #: The entries, with the keys under which they are stored.
        self.entries = [self._as_stored(record.keys) for record in records]
        self.ambiguous = {self._elsewhere.get(key, key) for key in records[0].ambiguous}
        self._is_damaged = any(REPLACEMENT in record.item for record in records)
        for places in in_batches(range(len(records)), _MAX_LOOKED_UP):
            self._read(connection, places)
        rows = [row for row in self.rows.values() if row.key not in hidden]
        #: What the source is known to have; the rows of other sources come first.
        self.here = [
            *(
                KnownEntry(row.key, self.source, _keys_of(row), is_sighting=True)
                for row in self.sightings.values()
            ),
            *(self._known_here(row) for row in rows if row.source == self.source),
        ]
        self._known_elsewhere = [
            KnownEntry(row.key, row.source, self._keys_elsewhere(row))
            for row in rows
            if row.source != self.source
        ]

    def judge(self) -> Judgement:
        """Return what the entries are."""
        self._compare_damaged_titles()
        known = Known(self.here, self._known_elsewhere, self.stored_ambiguous | self.ambiguous)
        doubtful = self.records[0].has_doubtful_dates
        return judge(self.entries, known, has_doubtful_dates=doubtful)

    def is_of_now(self, entry: KnownEntry) -> bool:
        """Return True if the source inserted the row of an entry at the time of the document."""
        row = self.rows.get(entry.key)
        now = self.records[0].first_seen
        return row is not None and (row.source, row.first_seen) == (self.source, now)

    def _as_stored(self, keys: EntryKeys) -> EntryKeys:
        return keys._replace(page=self._elsewhere.get(keys.page, keys.page))

    def _read(self, connection: Connection, places: Sequence[int]) -> None:
        """Read the rows that may be the entries at these places."""
        pages: set[str] = set()
        ids: set[str] = set()
        for place in places:
            keys = self.entries[place]
            pages.update((keys.page, self.records[place].keys.page, keys.without_id.page))
            if keys.id is not None:
                ids.add(keys.id)
        params = {
            "of": self.source,
            "pages": text_list(connection, pages),
            "ids": text_list(connection, ids),
            "ambiguous": text_list(connection, pages | ids),
            "with_items": self._is_damaged,
        }
        for row in map(_KnownRow._make, execute(connection, _KNOWN_SQL, params)):
            if row.kind == "ambiguous":
                self.stored_ambiguous.add(row.key)
            elif row.kind == "sighting":
                self.sightings[row.key] = row
            else:
                self.rows[row.key] = row

    def _known_here(self, row: _KnownRow) -> KnownEntry:
        keys = self._as_stored(_keys_of(row))
        if not _fields_of(row.item).get("url"):
            without_link = SourceKeys(self.source).of(None, None, _title_of(row.item))
            keys = keys._replace(linkless_page=without_link.page)
        return KnownEntry(row.key, self.source, keys)

    def _keys_elsewhere(self, row: _KnownRow) -> EntryKeys:
        """Return the keys of an entry of another source, for comparison with entries of this one.

        For a page on another host the dates of other sources prove nothing: each source may give
        the same article a date of its own.
        """
        keys = self._as_stored(_keys_of(row))
        is_foreign = keys.page in self._elsewhere.values()
        return keys._replace(date=None) if is_foreign else keys

    # ---- damaged titles ----

    def _compare_damaged_titles(self) -> None:
        """Note for each known entry the titles that differ from its own only by damage.

        Damage is text in a wrong encoding. A row gets the title from the document if that is less
        damaged and comes from the row's own source.
        """
        known = [
            entry
            for entry in (*self.here, *self._known_elsewhere)
            if entry.key in self.rows and not entry.is_sighting and self._may_be_damaged(entry)
        ]
        if not known:
            return
        places: defaultdict[str | None, set[int]] = defaultdict(set)
        for place, keys in enumerate(self.entries):
            places[keys.page].add(place)
            places[keys.id].add(place)
        titles = {(entry.keys.page, entry.keys.title) for entry in self.here}
        compared = 0
        for entry in known:
            alike = places[entry.keys.page]
            if entry.keys.id is not None:
                alike = alike | places[entry.keys.id]
            compared += len(alike)
            if compared > MAX_COMPARED_TITLES:
                return
            for place in sorted(alike):
                self._compare_titles(entry, place, titles)

    def _may_be_damaged(self, entry: KnownEntry) -> bool:
        item = self.rows[entry.key].item
        return item is not None and (self._is_damaged or REPLACEMENT in item)

    def _compare_titles(
        self, entry: KnownEntry, place: int, titles: set[tuple[str, str | None]]
    ) -> None:
        """Compare the titles of a known entry and of an entry in the document.

        ``titles`` are all of the source, with their pages: two rows do not get the same title.
        """
        keys = self.entries[place]
        if None not in (keys.id, entry.keys.id) and keys.id != entry.keys.id:
            return
        stored_title = self.repaired.get(entry.key) or _title_of(self.rows[entry.key].item)
        title = _title_of(self.records[place].item)
        is_less_damaged = is_damaged_copy(stored_title, of=title)
        if not is_less_damaged and not is_damaged_copy(title, of=stored_title):
            return
        if keys.title is not None:
            entry.damaged_titles.add(keys.title)
        is_known = keys.title is not None and (entry.keys.page, keys.title) in titles
        if is_less_damaged and entry.source == self.source and not is_known:
            titles.add((entry.keys.page, keys.title))
            self.repaired[entry.key] = title
            if entry.keys.title is not None:
                entry.damaged_titles.add(entry.keys.title)
            entry.keys = entry.keys._replace(title=keys.title)


def _fields_of(item: str) -> dict[str, Any]:
    """Return the fields of an item; none if it cannot be read."""
    try:
        fields = json.loads(item)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _title_of(item: str) -> str:
    return _fields_of(item).get("title") or ""


def _keys_of(row: _KnownRow) -> EntryKeys:
    return EntryKeys(
        row.page_key or row.key,
        row.id_key,
        row.title_key or None,
        date=row.evident_date or None,
    )


def _columns_of(keys: EntryKeys) -> dict[str, Any]:
    """Return the columns of the keys of an entry."""
    return {
        "page_key": keys.page,
        "id_key": keys.id,
        "title_key": keys.title or "",
        "evident_date": keys.date or "",
    }


# ---- what changes ----


class _Changes:
    """What a judgement says of rows that exist."""

    def __init__(self, reading: _Reading, judgement: Judgement, *, is_rerun: bool) -> None:
        self.changed: dict[int, SeenEntry] = {}  #: entries whose title changes now, by place
        self._titles: dict[str, tuple[str, TitleChange]] = {}  # that change, by the keys of rows
        self._is_rerun = is_rerun
        self._reading = reading
        self._judgement = judgement
        self._latest = {
            (entry.key, entry.is_sighting): entry.keys
            for entry in (*reading.here, *judgement.unidentified)
        }
        self._urls: dict[str, str] = {}  # of entries that their ids confirm, by the keys of rows
        for place, verdict in enumerate(judgement.verdicts):
            if verdict.entry is None or verdict.latest is None:
                continue
            item = reading.records[place].item
            self._latest[verdict.entry.key, verdict.entry.is_sighting] = verdict.latest
            url = _fields_of(item).get("url") if verdict.is_confirmed else None
            if url is not None:
                self._urls[verdict.entry.key] = url
            if not verdict.entry.is_sighting:
                self._compare_title(place, verdict, reading.rows[verdict.entry.key])

    def _compare_title(self, place: int, verdict: Verdict, row: _KnownRow) -> None:
        """Note the title of an entry if its row has another one.

        The titles of an llms.txt have no keys.
        """
        record = self._reading.records[place]
        changed_at = row.changed_at if self._is_rerun else None
        if verdict.keys.title is None or verdict.keys.title != row.title_key:
            former = tuple(json.loads(row.former_titles or "[]"))
            known = TitleChange(former, row.changed_at, row.changed_seq, row.changed_again)
            title = _title_of(record.item)
            change = change_title(_title_of(row.item), title, known, record.first_seen)
            if change is not None:
                self._titles[row.key] = title, change
                changed_at = change.at
        if changed_at == record.first_seen:
            self.changed[place] = SeenEntry(row.key, row.first_seen)

    def write(self, connection: Connection) -> None:
        """Write ambiguous ids and pages, sightings, and the latest keys, links and titles."""
        source = self._reading.source
        keys = self._judgement.ambiguous | self._reading.ambiguous
        keys -= self._reading.stored_ambiguous
        ambiguous = [{"source": source, "key": key} for key in sorted(keys)]
        sighted = [
            {"key": verdict.elsewhere.key, "source": source, **_columns_of(verdict.keys)}
            for verdict in self._judgement.verdicts
            if verdict.elsewhere is not None
        ]
        for table, rows in ((ambiguous_keys, ambiguous), (sightings, sighted)):
            if rows:
                insert_if_new(connection, table, rows)
        changed = {True: list(self._changed_sightings()), False: list(self._changed_entries())}
        for is_sighting, statement in ((True, _CHANGE_SIGHTING_SQL), (False, _CHANGE_ENTRY_SQL)):
            if changed[is_sighting]:
                connection.execute(statement, changed[is_sighting])

    def _changed_sightings(self) -> Iterator[RowValues]:
        for entry in self._reading.here:
            if not entry.is_sighting:
                continue
            columns = _columns_of(self._latest[entry.key, True])
            if columns != _columns_of(_keys_of(self._reading.sightings[entry.key])):
                yield _changes_of(entry.key, columns) | {"of": self._reading.source}

    def _changed_entries(self) -> Iterator[RowValues]:
        for entry in self._reading.here:
            if entry.is_sighting:
                continue
            row = self._reading.rows[entry.key]
            columns = _columns_of(self._latest[entry.key, False])
            is_changed = columns != _columns_of(_keys_of(row))
            item = self._latest_item(entry.key, row.item)
            if is_changed or item != row.item:
                columns["page_key"] = (
                    columns["page_key"] if columns["page_key"] != row.key else None
                )
                columns |= {"twin": None if is_changed else row.twin, "item": item}
                columns |= self._change_columns(row)
                yield _changes_of(row.key, columns)

    def _change_columns(self, row: _KnownRow) -> RowValues:
        """Return the columns of the last change of an entry."""
        if row.key not in self._titles:
            return {name: getattr(row, name) for name in _CHANGE_COLUMNS}
        change = self._titles[row.key][1]
        former = storable(json.dumps(change.former, ensure_ascii=False))
        return dict(zip(_CHANGE_COLUMNS, (former, *change[1:]), strict=True))

    def _latest_item(self, key: str, stored: str) -> str:
        """Return the item of a row, with its latest link and title."""
        changes = {}
        if key in self._urls:
            changes["url"] = self._urls[key]
        if key in self._reading.repaired:
            changes["title"] = self._reading.repaired[key]
        if key in self._titles:
            changes["title"] = self._titles[key][0]
        if not changes:
            return stored
        item = _fields_of(stored)
        if not item or all(item.get(name) == value for name, value in changes.items()):
            return stored
        return storable(json.dumps(item | changes, ensure_ascii=False))


def _changes_of(key: str, columns: RowValues) -> dict[str, Any]:
    """Return the parameters of a statement that changes columns of the row with a key."""
    return {"of_key": key, **{f"new_{name}": value for name, value in columns.items()}}


# ---- new entries ----


class _Rows:
    """The rows of new entries that are inserted at once."""

    def __init__(self, reading: _Reading, *, backfill: bool) -> None:
        self.places: set[int] = set()  #: of all new entries
        self._records = reading.records
        self._backfill = backfill
        self._rows: dict[int, RowValues] = {}
        self._keys = set(reading.rows)
        self._pages: set[str] = set()
        self._new_pages: set[str] = set()
        self._twins: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        for row in reading.rows.values():
            keys = _keys_of(row)
            self._pages.add(keys.page)
            if row.twin is not None:
                twins = self._twins[_twins_of(keys)]
                self._twins[_twins_of(keys)] = max(twins, row.twin + 1)

    def add(self, place: int, keys: EntryKeys) -> None:
        """Add a new entry, unless one of its page, which is new too, is inserted before."""
        self.places.add(place)
        if keys.page in self._new_pages:
            return
        is_first = keys.page not in self._pages and keys.page not in self._keys
        if is_first:
            self._new_pages.add(keys.page)
        key = keys.page if is_first else self._free_key(keys)
        self._keys.add(key)
        record = self._records[place]
        columns = _columns_of(keys)
        if is_first:
            columns["page_key"] = None
        self._rows[place] = columns | {
            "key": key,
            "twin": self._twins[_twins_of(keys)],
            "source": record.source,
            "kind": record.kind,
            "first_seen": record.first_seen,
            "item": storable(record.item),
            "backfill": self._backfill,
            "run": record.run,
        }
        self._twins[_twins_of(keys)] += 1

    def _free_key(self, keys: EntryKeys) -> str:
        attempt = 0
        while (key := row_key(keys, attempt)) in self._keys:
            attempt += 1
        return key

    def insert(self, connection: Connection) -> dict[int, str]:
        """Insert the rows that no other transaction has inserted; return their keys by places."""
        rows = list(self._rows.values())
        keys = {place: row["key"] for place, row in self._rows.items()}
        if not rows or insert_if_new(connection, entries, rows) == len(rows):
            return keys
        names = ("key", "source", "first_seen", "id_key", "title_key")
        wanted = {tuple(row[name] for name in names) for row in rows}
        stored = {
            row.key
            for batch in in_batches(list(keys.values()))
            for row in connection.execute(select(*_E[names]).where(_E.key.in_(batch)))
            if tuple(row) in wanted
        }
        return {place: key for place, key in keys.items() if key in stored}


def _twins_of(keys: EntryKeys) -> tuple[str, str, str]:
    return keys.page, keys.title or "", keys.date or ""
