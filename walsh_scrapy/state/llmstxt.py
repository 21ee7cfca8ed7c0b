"""What is known of the llms.txt of each host, which all its pages without markdown share (R9)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, select

from walsh_scrapy.state.tables import indexes

if TYPE_CHECKING:
    from walsh_scrapy.state.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRecord:
    """One llms.txt's line; times are epoch seconds."""

    url: str
    asked_at: float = 0.0
    due_at: float = 0.0
    trouble: str = ""  #: why it was of no use, a sentence; empty if it was read
    validator_url: str | None = None  #: the one URL that the validators may be sent to
    etag: bytes | None = None
    last_modified: bytes | None = None


_COLUMNS: Final = tuple(indexes.c[field.name] for field in fields(IndexRecord))
_FIND: Final = select(*_COLUMNS).where(indexes.c.url == bindparam("key"))


class IndexStore:
    """Remembers each llms.txt; what came of it is committed with the source it was asked for."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, url: str) -> IndexRecord | None:
        """Return what is known of an llms.txt, or None if it was never asked for."""
        with self._database.read() as connection:
            row = connection.execute(_FIND, {"key": url}).one_or_none()
        return None if row is None else IndexRecord(**row._asdict())

    def forget(self, url: str) -> None:
        """Take back what is known of an llms.txt, so that it is asked for anew."""
        with self._database.write() as connection:
            connection.execute(delete(indexes).where(indexes.c.url == url))
