"""Entries as they were first seen: each is written once and never changed (decisions 18, 19)."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, bindparam, case, not_, or_, select, update

from walsh_scrapy.metadata.encoding import REPLACEMENT
from walsh_scrapy.metadata.entries import (
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
from walsh_scrapy.state.records import Row, in_parts, insert_if_new
from walsh_scrapy.state.tables import entries, repeated_pages, sightings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import BindParameter, Connection
    from sqlalchemy import Row as SqlRow

#: Pairs of a stored title and one of a document that are compared for damage at once: each entry of
#: a page is compared with each of its rows.
MAX_COMPARED_TITLES: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRecord:
    """One entry to be written; ``item`` is the exported item as JSON."""

    key: str  #: of its page and its id; see `metadata.entries.with_keys`
    page_key: str
    title_key: str | None = None  #: of its page and its title
    #: Of publication, if it is evidence (RFC 3339); see `metadata.entries.document_keys`.
    evident_date: str | None = None
    is_own: bool = True  #: False if its page is on another host than its source
    is_page_repeated: bool = False  #: True if its document lists its page more than once
    has_doubtful_dates: bool = False  #: True if the dates of its document are no evidence
    source: str  #: URL of the source, as declared
    kind: str
    first_seen: float  #: epoch seconds
    item: str
    run: int | None = None  #: the number of the run that found it

    @property
    def keys(self) -> EntryKeys:
        """The fields that are compared with those of other entries."""
        return EntryKeys(self.page_key, self.key, self.title_key, self.evident_date)

    @property
    def has_id(self) -> bool:
        """True if its key is of an id, and not of its page alone or of the title in its place."""
        has_title_as_id = self.is_page_repeated and self.key == self.title_key
        return self.key != self.page_key and not has_title_as_id


class StoredEntry(NamedTuple):
    """An entry as it is stored: its key, and its exported item as JSON."""

    key: str
    item: str
    source: str
    is_backfill: bool  #: it was there when its source was read for the first time
    also_in: tuple[str, ...] = ()  #: the other sources that had it too, by URL


class EntryStore(Store):
    """Reads the entries of all runs, even while a run writes more."""

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open the entries as they are now, without those that are written during the block.

        Raises StateError if the database fails meanwhile.
        """
        with self._database.snapshot() as connection, ExitStack() as opened:
            yield Snapshot(connection, opened)

    def latest_run(self, until: float) -> int | None:
        """Return the run that found the newest entry until a moment; None if no run is named."""
        run: int | None = self._database.scalar(_LATEST_RUN, until=until)
        return run


_LATEST_RUN: Final = (
    select(entries.c.run)
    .where(entries.c.run.is_not(None), entries.c.first_seen <= bindparam("until"))
    .order_by(entries.c.first_seen.desc())
    .limit(1)
)
_PAGES: Final[BindParameter[str]] = bindparam("pages", expanding=True)
_IS_DAMAGED: Final = or_(entries.c.item.contains(REPLACEMENT), bindparam("with_items"))
_KNOWN: Final = (
    select(*entries.c["key", "page_key", "own_key", "title_key", "evident_date", "source"])
    .add_columns(case((_IS_DAMAGED, entries.c.item)).label("item"))
    .where(or_(entries.c.key.in_(_PAGES), entries.c.page_key.in_(_PAGES)))
)
_REPEATED_PAGES: Final = select(repeated_pages.c.page_key).where(
    repeated_pages.c.source == bindparam("of")
)
_OURS: Final = select(entries.c.own_key).where(
    entries.c.source == bindparam("of"), entries.c.first_seen == bindparam("at")
)
_STORED: Final = select(*entries.c["key", "item", "source", "backfill"])
_IS_ELSEWHERE: Final = and_(
    sightings.c.key == entries.c.key, sightings.c.source != entries.c.source
)
_SIGHTED: Final = _STORED.add_columns(sightings.c.source).select_from(
    entries.outerjoin(sightings, _IS_ELSEWHERE)
)
_NEWEST: Final = (
    _STORED.where(entries.c.source == bindparam("url"))
    .order_by(entries.c.first_seen.desc(), entries.c.key)
    .limit(1)
)


class Snapshot:
    """The entries as of one moment. Open queries are closed before their connection."""

    def __init__(self, connection: Connection, opened: ExitStack) -> None:
        self._connection = connection
        self._open = opened

    def matching(
        self,
        *,
        since: float = 0.0,
        sources: Sequence[str] = (),
        has_backfill: bool = True,
        newest_first: bool = False,
    ) -> Iterator[StoredEntry]:
        """Yield entries, those first seen earliest first, or last first.

        They were first seen at ``since``, in epoch seconds, or later. ``sources`` are the URLs of
        their sources as declared, even of those that had an entry of another; empty for all.
        Without ``has_backfill`` it omits those that the first reading of their source had.

        At most a thousand are in memory at once. Entries of one response have the same time; they
        come in the order of their keys, which is the same on every database and after a restore.
        """
        found = _SIGHTED.where(entries.c.first_seen >= since)
        if sources:
            seen_there = select(sightings.c.key).where(sightings.c.source.in_(sources))
            found = found.where(or_(entries.c.source.in_(sources), entries.c.key.in_(seen_there)))
        if not has_backfill:
            found = found.where(not_(entries.c.backfill))
        moment, key = entries.c.first_seen, entries.c.key
        order = (moment.desc(), key.desc()) if newest_first else (moment, key)
        ordered = found.order_by(*order, sightings.c.source)
        rows = self._connection.execute(ordered)
        self._open.callback(rows.close)
        for stored, of_one in groupby(rows, key=lambda row: tuple(row[:-1])):
            also_in = tuple(each[-1] for each in of_one if each[-1] is not None)
            yield StoredEntry(*stored)._replace(also_in=also_in)

    def newest(self, source: str) -> StoredEntry | None:
        """Return the entry of a source that was first seen last, or None if there is none."""
        row = self._connection.execute(_NEWEST, {"url": source}).first()
        return None if row is None else StoredEntry(*row)


def insert_unseen(
    connection: Connection,
    found: Sequence[EntryRecord],
    *,
    backfill: bool = False,
    is_rerun: bool = False,
) -> frozenset[str]:
    """Insert the entries of one document that are not known; return their keys (decision 19).

    ``backfill`` means that their source is read for the first time. With ``is_rerun`` the entries
    are returned too that an earlier try of the transaction inserted. An entry of a page on another
    host is compared with the entries of that host's sources. It is stored under keys that none of
    these uses. So nobody can take an entry from the source of its host.
    """
    if not found:
        return frozenset()
    repeated = _RepeatedPages(connection, found)
    identified = _judge_ids(connection, found, repeated)
    names: dict[str, str] = {}  # the keys as found, by the keys as they are stored
    for entry, as_found in zip(identified, found, strict=True):
        names.setdefault(entry.key, as_found.key)
    own = [entry for entry in identified if entry.is_own]
    others = [entry for entry in identified if not entry.is_own]
    known, elsewhere = _known_entries(connection, others, repeated)
    for entry in others:
        if known.has(entry.keys):
            _write_sightings(connection, entry, elsewhere)
        else:
            known.add(entry.keys)
            own.append(_as_of_another_host(entry))
            names[own[-1].key] = names[entry.key]
    new = _insert_unseen(connection, own, repeated, backfill=backfill)
    if is_rerun:
        ours = connection.scalars(_OURS, {"of": found[0].source, "at": found[0].first_seen})
        new |= {key for key in ours if key in names}
    return frozenset(names[key] for key in new)


class _RepeatedPages:
    """The keys of pages that a source has listed more than once in one document.

    They are kept in the state, and read from it only when they are needed.
    """

    def __init__(self, connection: Connection, found: Sequence[EntryRecord]) -> None:
        self._connection = connection
        self._source = found[0].source
        self._pages: set[str] | None = None
        for some in in_parts(sorted({entry.page_key for entry in found if entry.is_page_repeated})):
            rows = [{"source": self._source, "page_key": page} for page in some]
            insert_if_new(connection, repeated_pages, rows)

    def __contains__(self, page_key: object) -> bool:
        if self._pages is None:
            pages = set(self._connection.scalars(_REPEATED_PAGES, {"of": self._source}))
            self._pages = pages | {_foreign_key(page) for page in pages}
        return page_key in self._pages


def _judge_ids(
    connection: Connection, found: Sequence[EntryRecord], repeated: _RepeatedPages
) -> list[EntryRecord]:
    """Return the entries with the keys that are compared.

    An id that is no evidence counts as a missing one, and the title stands for a missing id on a
    page that is a repeated one.
    """
    ids_count = not _has_doubtful_ids(connection, found)
    identified = []
    for entry in found:
        keys = entry.keys if ids_count else entry.keys._replace(key=entry.page_key)
        key = with_title_as_id(keys, repeated).key
        identified.append(entry if key == entry.key else replace(entry, key=key))
    return identified


def _has_doubtful_ids(connection: Connection, found: Sequence[EntryRecord]) -> bool:
    """Return True if the ids of a document seem to be made anew each time, as its dates are.

    All of them are new then, but some of its pages are known with the same title.
    """
    if not any(entry.has_doubtful_dates for entry in found):
        return False
    ids: set[str] = set()
    titles: set[str | None] = set()
    pages: set[str] = set()
    for entry in found:
        for same in (entry,) if entry.is_own else (entry, _as_of_another_host(entry)):
            pages.add(same.page_key)
            if same.has_id:
                ids.add(same.key)
            titles.add(same.title_key)
    are_titles_known = False
    for some in in_parts(pages):
        for row in connection.execute(_KNOWN, {"pages": some, "with_items": False}).all():
            if row.own_key in ids:
                return False
            if row.title_key is not None and row.title_key in titles:
                are_titles_known = True
    return are_titles_known


def _foreign_key(key: str) -> str:
    """Return the key that stands for a key of a page on another host than its source."""
    return sha256(f"elsewhere {key}".encode()).hexdigest()


def _as_of_another_host(entry: EntryRecord) -> EntryRecord:
    """Return an entry with other keys than it has in a source of the host of its page."""
    return replace(
        entry,
        key=_foreign_key(entry.key),
        page_key=_foreign_key(entry.page_key),
        title_key=_foreign_key(entry.title_key) if entry.title_key else None,
    )


def _insert_unseen(
    connection: Connection,
    found: Sequence[EntryRecord],
    repeated: _RepeatedPages,
    *,
    backfill: bool,
) -> frozenset[str]:
    """Insert the entries that are not known; return their keys.

    They are inserted in the order of their pages. So of two transactions that insert the same
    entries at once, one waits for the other, and they cannot block each other. Entries with a date
    come first, because an entry without one differs from no other of its title.

    The first entry of a page is inserted under the key of the page, which only one transaction can
    do. The others of that page are checked after that, and so are those that another transaction
    inserted first: PostgreSQL then shows the rows of that one.
    """
    known, elsewhere = _known_entries(connection, found, repeated)
    rows, later, begun = [], [], set()
    for entry in sorted(
        found, key=lambda entry: (entry.page_key, entry.evident_date is None, entry.key)
    ):
        page = entry.page_key
        is_first = not known.has_page(page)
        if page in begun:
            later.append(entry)
        elif known.has(entry.keys):
            _write_sightings(connection, entry, elsewhere)
        else:
            known.add(entry.keys)
            rows.append(_row(entry, is_first=is_first, backfill=backfill))
            if is_first:
                begun.add(page)
    if not rows:
        return frozenset()
    new = _insert(connection, rows)
    unsettled = {row["own_key"] for row in rows} - new
    later += [entry for entry in found if entry.key in unsettled]
    if later:
        new |= _insert_unseen(connection, later, repeated, backfill=backfill)
    return new


def _insert(connection: Connection, rows: Sequence[Row]) -> frozenset[str]:
    """Insert those of the rows that another transaction has not inserted; return their keys."""
    if insert_if_new(connection, entries, rows) == len(rows):
        return frozenset(row["own_key"] for row in rows)
    names = ("key", "own_key", "source", "first_seen")
    ours = {tuple(row[name] for name in names) for row in rows}
    stored = select(*entries.c[names])
    keys = [row["key"] for row in rows]
    return frozenset(
        row.own_key
        for some in in_parts(keys)
        for row in connection.execute(stored.where(entries.c.key.in_(some)))
        if tuple(row) in ours
    )


def _row(entry: EntryRecord, *, is_first: bool, backfill: bool) -> dict[str, Any]:
    """Return the row of an entry: by name, which is faster for thousands of them than `row_of`."""
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
    """The rows of other sources, by the entries that are the same."""

    def __init__(self) -> None:
        self._rows: defaultdict[Place, list[str]] = defaultdict(list)

    def add(self, row: str, entry: EntryKeys) -> None:
        """File a row, by its key, with the keys of its entry."""
        for place in places_of(entry):
            self._rows[place].append(row)

    def same_as(self, entry: EntryKeys) -> set[str]:
        """Return the keys of the rows that are the same as an entry."""
        same: set[str] = set()
        for place in places_of_same(entry):
            same.update(self._rows.get(place, ()))
        return same


def _known_entries(
    connection: Connection, found: Sequence[EntryRecord], repeated: _RepeatedPages
) -> tuple[KnownEntries, _RowsElsewhere]:
    """Return the stored entries of the pages of these, and those of other sources.

    The dates in other sources say nothing about an entry of a page on another host: each of these
    sources has a date of its own for one article.
    """
    known = KnownEntries()
    elsewhere = _RowsElsewhere()
    by_page: defaultdict[str, list[EntryRecord]] = defaultdict(list)
    for entry in found:
        by_page[entry.page_key].append(entry)
    with_items = any(REPLACEMENT in entry.item for entry in found)
    for pages in in_parts(by_page):
        rows = connection.execute(_KNOWN, {"pages": pages, "with_items": with_items}).all()
        for row in rows:
            keys = _keys_of(row)
            is_elsewhere = row.source != found[0].source
            if is_elsewhere and not by_page[keys.page_key][0].is_own:
                keys = keys._replace(date=None)
            keys = with_title_as_id(keys, repeated)
            known.add(keys)
            if row.page_key is not None:
                known.add(keys._replace(key=row.key))  # of the title before `_write_title`
            if is_elsewhere:
                elsewhere.add(row.key, keys)
        for keys in _damaged_copies(connection, rows, by_page):
            known.add(with_title_as_id(keys, repeated))
    return known, elsewhere


def _keys_of(row: SqlRow[Any]) -> EntryKeys:
    date = row.evident_date or None
    return EntryKeys(row.page_key or row.key, row.own_key, row.title_key, date)


def _damaged_copies(
    connection: Connection,
    rows: Sequence[SqlRow[Any]],
    by_page: Mapping[str, Sequence[EntryRecord]],
) -> Iterator[EntryKeys]:
    """Yield the keys of rows with a title of the document that differs from theirs only in damage.

    A row gets the title of its own source if that is less damaged.
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
        stored = item.get("title") or ""
        for entry in entries_of_page:
            has_no_id = keys.key in (keys.page_key, keys.title_key) or entry.key == keys.page_key
            title = json.loads(entry.item).get("title") or ""
            is_less_damaged = is_damaged_copy(stored, of=title)
            is_copy = is_less_damaged or is_damaged_copy(title, of=stored)
            if not is_copy or not (has_no_id or entry.key == keys.key):
                continue
            yield keys._replace(title_key=entry.title_key)
            is_known = entry.title_key and (keys.page_key, entry.title_key) in titles
            if is_less_damaged and row.source == entry.source and not is_known:
                stored = title
                titles.add((keys.page_key, entry.title_key))
                _write_title(connection, row, item | {"title": title}, entry.title_key)


def _write_title(
    connection: Connection, row: SqlRow[Any], item: Mapping[str, object], title_key: str | None
) -> None:
    """Give a row a title without its damage."""
    changes = {"item": storable(json.dumps(item, ensure_ascii=False)), "title_key": title_key}
    if row.own_key == row.title_key:
        changes["own_key"] = title_key
    connection.execute(update(entries).where(entries.c.key == row.key).values(changes))


def _write_sightings(connection: Connection, entry: EntryRecord, elsewhere: _RowsElsewhere) -> None:
    """Write which entries of other sources an entry is."""
    for row in sorted(elsewhere.same_as(entry.keys)):
        insert_if_new(connection, sightings, {"key": row, "source": entry.source})
