"""What is known of each declared source, and the entries it gave (R7, R8; rulings 17 to 20)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, func, or_, select, update

from walsh_scrapy.policy.freshness import NEVER, Due, LastVisit, Wishes, due
from walsh_scrapy.policy.moves import Move
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.state.rows import row_of
from walsh_scrapy.state.tables import entries, indexes, sources
from walsh_scrapy.state.upsert import insert_if_new, insert_new, upsert

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from walsh_scrapy.state.database import Database
    from walsh_scrapy.state.indexes import IndexRecord


#: Keys looked up at once; databases bound the parameters of a statement.
IN_ONE_QUESTION = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """One source's line; times are epoch seconds."""

    url: str
    kind: str
    fetched_at: float | None = None
    due_at: float = 0.0  #: as the last visit left it; NEVER if it is gone, 0 if it was resumed
    outcome: str = "new"
    detail: str = ""
    failures: int = 0
    status: int | None = None  #: of the last answer
    asked_interval: float = 0.0  #: seconds, by the last answer
    wished_interval: float = 0.0  #: seconds, by the feed
    skip_hours: str = ""  #: numbers with commas between them; so are the days' names
    skip_days: str = ""
    moved_to: str | None = None
    moved_since: float | None = None
    move_settled: bool = False  #: from now on it is asked for there
    move_failing_since: float | None = None
    onward_to: str | None = None  #: where permanent redirects lead from there
    onward_since: float | None = None
    validator_url: str | None = None  #: the one URL that the validators may be sent to
    etag: bytes | None = None
    last_modified: bytes | None = None

    @property
    def wishes(self) -> Wishes:
        """What the feed asked of whoever comes again."""
        hours = frozenset(map(int, filter(None, self.skip_hours.split(","))))
        return Wishes(
            self.wished_interval, hours, frozenset(filter(None, self.skip_days.split(",")))
        )

    def due(self, least: float, now: float) -> Due:
        """Say when the source may be asked for next; ``least`` is the operator's own time."""
        if self.fetched_at is None:
            return due(None, least, now)
        last = LastVisit(
            self.fetched_at,
            self.asked_interval,
            self.failures,
            self.wishes,
            is_gone=self.due_at == NEVER,
            is_resumed=self.due_at <= 0.0,
        )
        return due(last, least, now)

    @property
    def address(self) -> str:
        """Where to ask for the source: where it is declared, or where it settled."""
        return self.moved_to if self.moved_to and self.move_settled else self.url

    def wishing(self, wishes: Wishes) -> SourceRecord:
        """Return the line with other wishes."""
        return replace(
            self,
            wished_interval=wishes.interval,
            skip_hours=",".join(map(str, sorted(wishes.skip_hours))),
            skip_days=",".join(sorted(wishes.skip_days)),
        )

    @property
    def move(self) -> Move | None:
        """Where the source moved to, or seems to."""
        if self.moved_to is None:
            return None
        onward = None
        if self.onward_to is not None:
            onward = Move(self.onward_to, self.onward_since or 0.0, is_settled=False)
        return Move(
            self.moved_to,
            self.moved_since or 0.0,
            self.move_settled,
            onward,
            self.move_failing_since,
        )

    def moving(self, move: Move | None) -> SourceRecord:
        """Return the line with another move, or none."""
        onward = move.onward if move else None
        return replace(
            self,
            moved_to=move.to if move else None,
            moved_since=move.since if move else None,
            move_settled=bool(move and move.is_settled),
            move_failing_since=move.failing_since if move else None,
            onward_to=onward.to if onward else None,
            onward_since=onward.since if onward else None,
        )

    def spelled(self, url: str) -> SourceRecord:
        """Return the line of the same source under another spelling of its URL.

        Where it moved to is no move any more once it is declared there.
        """
        if url == self.url:
            return self
        record = replace(self, url=url)
        return record.moving(None) if record.moved_to == url else record


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


class Known:
    """The lines of sources by their URLs, however these are spelled: `/feed` is `/feed/`."""

    def __init__(self, records: Iterable[SourceRecord]) -> None:
        self._by_url = {record.url: record for record in records}

    def of(self, url: str) -> SourceRecord | None:
        """Return a source's line, under its URL or that of its spellings visited last."""
        if not self._by_url:  # the first run of all: 100,000 URLs need not be read
            return None
        return self._by_url.get(url) or self._by_page.get(canonical_url(url))

    def but(self, urls: Iterable[str]) -> list[SourceRecord]:
        """Return the lines of all other sources."""
        pages = set(map(canonical_url, urls))
        return [each for url, each in self._by_url.items() if canonical_url(url) not in pages]

    @cached_property
    def _by_page(self) -> dict[str, SourceRecord]:
        records = sorted(self._by_url.values(), key=lambda record: record.fetched_at or 0.0)
        return {canonical_url(record.url): record for record in records}


class SourceStore:
    """Remembers each source, and commits what one response gave in one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, url: str) -> SourceRecord | None:
        """Return what is known of a source, or None if it was never tried."""
        with self._database.read() as connection:
            row = connection.execute(_FIND, {"key": url}).one_or_none()
        return None if row is None else _record(row)

    def urls(self) -> dict[str, None]:
        """Return the URL of every source ever tried, declared still or not."""
        with self._database.read() as connection:
            return dict.fromkeys(connection.scalars(select(sources.c.url)))

    def respell(self, spellings: Mapping[str, str]) -> None:
        """Let go on what is known of sources under the new spelling of each old one."""
        with self._database.write() as connection:
            for old, new in spellings.items():
                row = connection.execute(_FIND.with_for_update(), {"key": old}).one_or_none()
                if row is None:
                    continue  # another run was faster
                insert_if_new(connection, sources, row_of(_record(row).spelled(new)))
                of_old = update(entries).where(entries.c.source == old)
                connection.execute(of_old.values(source=new))
                connection.execute(delete(sources).where(sources.c.url == old))

    def commit(
        self,
        record: SourceRecord,
        found: Sequence[EntryRecord] = (),
        index: IndexRecord | None = None,
    ) -> frozenset[str]:
        """Write a source's outcome and its entries, both or neither; return the new keys.

        ``index`` is the llms.txt that was asked for on its account, if any.
        Validators and the entries they vouch for stand or fall together: a crash at any point
        loses no entry and repeats none (ruling 17).
        """
        with self._database.write() as connection:
            upsert(connection, sources, row_of(record))
            if index is not None:
                upsert(connection, indexes, row_of(index))
            known = _known(connection, found)
            fresh = [entry for entry in found if known.isdisjoint((entry.key, entry.full_key))]
            return insert_new(connection, entries, [row_of(entry) for entry in fresh])

    def count_entries(self) -> int:
        """Return how many entries were ever seen."""
        with self._database.read() as connection:
            return connection.scalar(select(func.count()).select_from(entries)) or 0

    def all(self) -> list[SourceRecord]:
        """Return the line of every source ever tried, declared still or not."""
        with self._database.read() as connection:
            return [_record(row) for row in connection.execute(select(*_COLUMNS))]

    def entry_counts(self) -> dict[str, int]:
        """Return for every source that gave any how many entries it gave."""
        counted = select(entries.c.source, func.count()).group_by(entries.c.source)
        with self._database.read() as connection:
            return dict(connection.execute(counted).all())

    def forget(self, url: str) -> int | None:
        """Take back all that is known of a source, so that its next visit is its first.

        Its entries stay known: they are the record. Return how many there are, None for a source
        without a line.
        """
        with self._database.write() as connection:
            line = select(sources.c.kind).where(sources.c.url == url)
            kind = connection.scalar(line.with_for_update())
            if kind is None:
                return None
            stays = select(func.count()).select_from(entries).where(entries.c.source == url)
            count = connection.scalar(stays) or 0
            if count:  # which name their source, so it keeps a line, an empty one
                upsert(connection, sources, row_of(SourceRecord(url=url, kind=kind)))
            else:
                connection.execute(delete(sources).where(sources.c.url == url))
            return count

    def resume(self, url: str) -> bool:
        """Make a source due that is gone or failing, and count its failures from 0 again.

        Return False, and change nothing, for a source that is neither.
        """
        troubled = or_(sources.c.due_at == NEVER, sources.c.failures > 0)
        line = update(sources).where(sources.c.url == url, troubled)
        with self._database.write() as connection:
            return connection.execute(line.values(due_at=0.0, failures=0)).rowcount == 1


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
