"""The records of sources, written together with the entries of their documents (decision 17)."""

from __future__ import annotations

from secrets import randbits
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import bindparam, delete, func, or_, select, update

from walsh_scrapy.policy.freshness import NEVER
from walsh_scrapy.policy.urls import url_key
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.declared import paced_by, write_facts
from walsh_scrapy.state.entries import insert_unseen
from walsh_scrapy.state.rows import insert_if_new, record_of, row_of, upsert
from walsh_scrapy.state.sourcerecord import COLUMNS, SourceRecord
from walsh_scrapy.state.tables import entries, indexes, sightings, sources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Self

    from sqlalchemy import Connection, Select

    from walsh_scrapy.state.database import Database
    from walsh_scrapy.state.documents import LlmsTxtRecord
    from walsh_scrapy.state.entries import EntryRecord

_OF_URL: Final = bindparam("key") == sources.c.url
_LOCKED: Final = select(*COLUMNS, sources.c.revision).where(_OF_URL).with_for_update()
_CHANGED: Final = sources.c.revision + 1
_UPDATE: Final = (
    update(sources)
    .where(_OF_URL)
    .values({column.name: bindparam(column.name) for column in (*COLUMNS, sources.c.revision)})
)
_LATEST: Final = func.max(entries.c.first_seen)
_OWN_TOTALS: Final = select(entries.c.source, func.count(), _LATEST).group_by(entries.c.source)
#: A rename may have left a sighting in the entry's own source.
_SHARED_TOTALS: Final = (
    select(sightings.c.source, func.count(), _LATEST)
    .join(entries, entries.c.key == sightings.c.key)
    .where(sightings.c.source != entries.c.source)
    .group_by(sightings.c.source)
)


class Committed(NamedTuple):
    """What was written at the end of a visit."""

    record: SourceRecord
    new: frozenset[str]  #: the keys of the entries that were never seen before


class SourceStore(Store):
    """Finds and changes the records of sources; a visit's outcome is committed as a whole."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._unit: Callable[[str], str] | None = None

    def find(self, url: str) -> SourceRecord | None:
        """Return the record of a source, or None if it was never visited."""
        found = select(*COLUMNS).where(sources.c.url == url)
        row = self._database.read(lambda connection: connection.execute(found).first())
        return None if row is None else record_of(SourceRecord, row)

    def all(self) -> list[SourceRecord]:
        """Return the record of every source ever visited, whether it is still declared or not."""
        return [record_of(SourceRecord, row) for row in self._all(select(*COLUMNS))]

    def urls(self) -> dict[str, None]:
        """Return the URL of every source ever visited, whether it is still declared or not."""
        return dict.fromkeys(url for (url,) in self._all(select(sources.c.url)))

    def entry_totals(self) -> dict[str, tuple[int, float]]:
        """Return by source URL, for sources that gave any, how many entries and when the last.

        Those that another source had first are among them: a source has not fallen silent while
        its articles are in another one too.
        """
        totals = {source: (count, newest) for source, count, newest in self._all(_OWN_TOTALS)}
        for source, count, newest in self._all(_SHARED_TOTALS):
            own, last = totals.get(source, (0, newest))
            totals[source] = own + count, max(last, newest)
        return totals

    def outcome(
        self,
        url: str,
        change: Callable[[SourceRecord | None], SourceRecord],
        found: Sequence[EntryRecord] = (),
        llmstxt: LlmsTxtRecord | None = None,
    ) -> Callable[[Connection], Committed]:
        """Return what writes the outcome of a visit, within one transaction.

        ``change`` returns the record to write for the one that is known, None on the first visit.
        ``llmstxt`` is the record of the llms.txt that the visit requested, if any. Validators and
        the entries of their response are written together, so that a crash at any point neither
        loses nor repeats an entry (R7, decision 17).

        It raises SQLAlchemy's IntegrityError or DataError for values that the database does not
        accept, such as an entry of a source without a record.
        """
        number, done = randbits(40), list[Committed]()

        def write(connection: Connection) -> Committed:
            before = _Row.find(connection, url)
            if done and before.revision == number:
                return done[-1]  # it was committed, and only the answer was lost
            is_unread = before.record is None or not before.record.format
            record = change(before.record)
            before.replace(connection, record, number)
            self._write_facts(connection, record)
            if llmstxt is not None:
                upsert(connection, indexes, row_of(llmstxt))
            new = insert_unseen(connection, found, backfill=is_unread)
            done.append(Committed(record, new))
            return done[-1]

        return write

    def rename(self, spellings: Mapping[str, str]) -> None:
        """Give records and their entries the new spellings of their URLs, by the old ones."""

        def write(connection: Connection) -> None:
            for old, new in spellings.items():
                row = connection.execute(_LOCKED, {"key": old}).first()
                if row is None:
                    continue  # another run has renamed it
                renamed = record_of(SourceRecord, row[:-1]).with_url(new)
                insert_if_new(connection, sources, _new_row(renamed, randbits(40)))
                entries_of_old = update(entries).where(entries.c.source == old)
                connection.execute(entries_of_old.values(source=new))
                both = select(sightings.c.key).where(sightings.c.source == new)
                of_old = sightings.c.source == old
                connection.execute(delete(sightings).where(of_old, sightings.c.key.in_(both)))
                connection.execute(update(sightings).where(of_old).values(source=new))
                connection.execute(delete(sources).where(sources.c.url == old))
                self._write_facts(connection, renamed)

        self._database.write(write)

    def resume(self, url: str) -> bool:
        """Forget the validators of a source, so that its next visit reads its document as a whole.

        A source that is gone (410) or failing becomes due, and its count of failures 0; return
        False for any other, which stays due as it is.
        """
        is_this = sources.c.url == url
        in_trouble = or_(sources.c.due_at == NEVER, sources.c.failures > 0)
        anew = {"validator_url": None, "etag": None, "last_modified": None}
        due = {"due_at": 0.0, "failures": 0, "failing_since": None}

        def write(connection: Connection) -> bool:
            connection.execute(update(sources).where(is_this).values(**anew, revision=_CHANGED))
            resumed = update(sources).where(is_this, in_trouble).values(due)
            is_resumed = connection.execute(resumed).rowcount == 1
            if is_resumed and (record := _Row.find(connection, url).record):
                self._write_facts(connection, record)
            return is_resumed

        return self._database.write(write)

    def _all(self, wanted: Select[Any]) -> Sequence[Sequence[Any]]:
        return self._database.read(lambda connection: connection.execute(wanted).all())

    def _write_facts(self, connection: Connection, record: SourceRecord) -> None:
        """Write what a record says of when its source is due (decision 40)."""
        if self._unit is None:
            self._unit = paced_by(connection).unit
        write_facts(connection, record, self._unit)


class _Row(NamedTuple):
    """What the table has of a source, whose row is locked."""

    record: SourceRecord | None
    revision: int | None  #: the number of the visit that wrote it last; None if there is no row

    @classmethod
    def find(cls, connection: Connection, url: str) -> Self:
        """Read and lock the row of a source."""
        row = connection.execute(_LOCKED, {"key": url}).first()
        return cls(None, None) if row is None else cls(record_of(SourceRecord, row[:-1]), row[-1])

    def replace(self, connection: Connection, record: SourceRecord, revision: int) -> None:
        """Write the record of a visit."""
        if self.revision is None:
            upsert(connection, sources, _new_row(record, revision))
        else:
            values = {"key": record.url, "revision": revision}
            connection.execute(_UPDATE, row_of(record) | values)


def _new_row(record: SourceRecord, revision: int) -> dict[str, Any]:
    """Return the row of a source that the table does not have."""
    return {**row_of(record), "revision": revision, "url_key": url_key(record.url)}
