"""Entries as they were first seen: each is written once and never changed (decisions 18, 19)."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import and_, bindparam, not_, or_, select

from walsh_scrapy.metadata.entries import KnownEntries
from walsh_scrapy.policy.wording import storable
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.records import Row, in_parts, insert_if_new
from walsh_scrapy.state.tables import entries, sightings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import BindParameter, Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRecord:
    """One entry to be written; ``item`` is the exported item as JSON."""

    key: str  #: of its page and its id; see `metadata.entries.with_keys`
    page_key: str
    title_key: str | None = None  #: of its page and its title
    is_own: bool = True  #: False if its page is on another host than its source
    source: str  #: URL of the source, as declared
    kind: str
    first_seen: float  #: epoch seconds
    item: str
    run: int | None = None  #: the number of the run that found it


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
_KNOWN: Final = select(*entries.c["key", "page_key", "own_key", "title_key", "source"]).where(
    or_(entries.c.key.in_(_PAGES), entries.c.page_key.in_(_PAGES))
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
    connection: Connection, found: Sequence[EntryRecord], *, backfill: bool = False
) -> frozenset[str]:
    """Insert the entries of one visit that are not known; return their keys (decision 19).

    ``backfill`` means that their source is read for the first time. An entry of a page on another
    host is compared with the entries of that host's sources. It is stored under keys that none of
    these uses. So nobody can take an entry from the source of its host.
    """
    own = [entry for entry in found if entry.is_own]
    others = [entry for entry in found if not entry.is_own]
    known, elsewhere = _known_entries(connection, others)
    keys = dict[str, str]()
    for entry in others:
        if known.adds(entry.page_key, entry.key, entry.title_key):
            own.append(_as_of_another_host(entry))
            keys[own[-1].key] = entry.key
        else:
            _write_sightings(connection, entry, elsewhere.get(entry.page_key, ()))
    return frozenset(keys.get(key, key) for key in _insert_unseen(connection, own, backfill))


def _as_of_another_host(entry: EntryRecord) -> EntryRecord:
    """Return an entry with other keys than it has in a source of the host of its page."""

    def elsewhere(key: str) -> str:
        return sha256(f"elsewhere {key}".encode()).hexdigest()

    title_key = elsewhere(entry.title_key) if entry.title_key else None
    page_key, key = elsewhere(entry.page_key), elsewhere(entry.key)
    return replace(entry, page_key=page_key, key=key, title_key=title_key)


def _insert_unseen(
    connection: Connection, found: Sequence[EntryRecord], backfill: bool
) -> frozenset[str]:
    """Insert the entries that are not known; return their keys.

    They are inserted in the order of their pages. So of two transactions that insert the same
    entries at once, one waits for the other, and they cannot block each other.

    The first entry of a page is inserted under the key of the page, which only one transaction can
    do. The others of that page are checked after that, and so are those that another transaction
    inserted first: PostgreSQL then shows the rows of that one.
    """
    known, elsewhere = _known_entries(connection, found)
    rows, later, begun = [], [], set()
    for entry in sorted(found, key=attrgetter("page_key", "key")):
        page = entry.page_key
        is_first = not known.has_page(page)
        if page in begun:
            later.append(entry)
        elif known.adds(page, entry.key, entry.title_key):
            rows.append(_row(entry, is_first=is_first, backfill=backfill))
            if is_first:
                begun.add(page)
        else:
            _write_sightings(connection, entry, elsewhere.get(page, ()))
    if not rows:
        return frozenset()
    new = _insert(connection, rows)
    unsettled = {row["own_key"] for row in rows} - new
    later += [entry for entry in found if entry.key in unsettled]
    return new | _insert_unseen(connection, later, backfill) if later else new


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
        "source": entry.source,
        "kind": entry.kind,
        "first_seen": entry.first_seen,
        "item": storable(entry.item),
        "backfill": backfill,
        "run": entry.run,
    }


class _Elsewhere(NamedTuple):
    """An entry that another source had first."""

    key: str
    page_key: str
    own_key: str
    title_key: str | None

    def is_like(self, entry: EntryRecord) -> bool:
        """Return True if an entry of this page is the same, as `KnownEntries` compares them."""
        has_no_id = self.page_key in (self.own_key, entry.key)
        has_same_title = entry.title_key is not None and entry.title_key == self.title_key
        return has_no_id or has_same_title or self.own_key == entry.key


def _known_entries(
    connection: Connection, found: Sequence[EntryRecord]
) -> tuple[KnownEntries, dict[str, list[_Elsewhere]]]:
    """Return the stored entries of the pages of these, and those of other sources by page."""
    known, elsewhere = KnownEntries(), dict[str, list[_Elsewhere]]()
    for pages in in_parts({entry.page_key for entry in found}):
        stored = connection.execute(_KNOWN, {"pages": pages})
        for key, page_key, own_key, title_key, source in stored:
            page = page_key or key
            known.add(page, own_key, title_key)
            if source != found[0].source:
                other = _Elsewhere(key, page, own_key, title_key)
                elsewhere.setdefault(page, []).append(other)
    return known, elsewhere


def _write_sightings(
    connection: Connection, entry: EntryRecord, elsewhere: Iterable[_Elsewhere]
) -> None:
    """Write which entries of other sources an entry is."""
    for each in elsewhere:
        if each.is_like(entry):
            insert_if_new(connection, sightings, {"key": each.key, "source": entry.source})
