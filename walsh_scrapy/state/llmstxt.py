"""The llms.txt of each host, which is requested once for all sources that need it (R9)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, select

from walsh_scrapy.state.tables import indexes

if TYPE_CHECKING:
    from walsh_scrapy.state.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmsTxtRecord:
    """What is known of one llms.txt: a row of the table ``indexes``. Times are epoch seconds."""

    url: str
    asked_at: float = 0.0
    due_at: float = 0.0
    trouble: str = ""  #: why it could not be used, as a sentence; empty if it was read
    validator_url: str | None = None  #: the one URL that the validators may be sent to
    etag: bytes | None = None
    last_modified: bytes | None = None


_COLUMNS: Final = tuple(indexes.c[field.name] for field in fields(LlmsTxtRecord))
_FIND: Final = select(*_COLUMNS).where(indexes.c.url == bindparam("key"))


class LlmsTxtStore:
    """Finds and forgets records; ``SourceStore.commit`` writes them, with the source of the visit.

    Methods raise what ``State(failed=...)`` returns if the database fails: a StateError by
    default, ``RequestDeferred`` in a crawl.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, url: str) -> LlmsTxtRecord | None:
        """Return what is known of an llms.txt, or None if it was never requested."""
        with self._database.read() as connection:
            row = connection.execute(_FIND, {"key": url}).one_or_none()
        return None if row is None else LlmsTxtRecord(**row._asdict())

    def forget(self, url: str) -> None:
        """Delete what is known of an llms.txt, so that the next visit requests it again."""
        with self._database.write() as connection:
            connection.execute(delete(indexes).where(indexes.c.url == url))
