"""What is known of each declared source, written with the entries it gave (decisions 17 to 20)."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, func, or_, select, update

from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.state.entries import write_unseen
from walsh_scrapy.state.rows import row_of
from walsh_scrapy.state.sourcerecord import SourceRecord
from walsh_scrapy.state.statements import Statement
from walsh_scrapy.state.tables import entries, indexes, sources
from walsh_scrapy.state.upsert import insert_if_new, upsert

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from walsh_scrapy.state.database import Database
    from walsh_scrapy.state.entries import EntryRecord
    from walsh_scrapy.state.indexes import IndexRecord


_COLUMNS: Final = tuple(sources.c[field.name] for field in fields(SourceRecord))
_LINE: Final = select(*_COLUMNS).where(sources.c.url == bindparam("key"))
_FIND: Final = Statement(_LINE)


class SourceStore:
    """Remembers each source, and commits what one response gave in one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, url: str) -> SourceRecord | None:
        """Return what is known of a source, or None if it was never tried."""
        with self._database.read() as connection:
            row = _FIND.first(connection, {"key": url})
        return None if row is None else _record(row)

    def urls(self) -> dict[str, None]:
        """Return the URL of every source ever tried, declared still or not."""
        with self._database.read() as connection:
            return dict.fromkeys(connection.scalars(select(sources.c.url)))

    def respell(self, spellings: Mapping[str, str]) -> None:
        """Let go on what is known of sources under the new spelling of each old one."""
        with self._database.write() as connection:
            for old, new in spellings.items():
                row = connection.execute(_LINE.with_for_update(), {"key": old}).one_or_none()
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
        loses no entry and repeats none (decision 17).
        """
        with self._database.write() as connection:
            upsert(connection, sources, row_of(record))
            if index is not None:
                upsert(connection, indexes, row_of(index))
            return write_unseen(connection, found)

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


def _record(row: Sequence[object]) -> SourceRecord:
    names = (field.name for field in fields(SourceRecord))
    return SourceRecord(**dict(zip(names, row, strict=True)))  # type: ignore[arg-type]
