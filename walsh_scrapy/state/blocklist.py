"""The operator's own documents: the blocklist and its schema, as last adopted (R3)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from sqlalchemy import select

from walsh_scrapy.state.rows import row_of
from walsh_scrapy.state.tables import blocklist
from walsh_scrapy.state.upsert import upsert

if TYPE_CHECKING:
    from walsh_scrapy.state.database import Database


@dataclass(frozen=True, slots=True)
class Document:
    """A document with the validators that vouch for it, opaque bytes as the server sent them."""

    body: bytes | None
    etag: bytes | None
    last_modified: bytes | None
    checked_at: float  #: epoch seconds of the last time the server was asked


_COLUMNS = tuple(blocklist.c[field.name] for field in fields(Document))


class DocumentStore:
    """Keeps the last good copy of each, however old, until a better one is adopted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, url: str) -> Document | None:
        """Return the copy of ``url``, or None if there never was one."""
        with self._database.read() as connection:
            row = connection.execute(select(*_COLUMNS).where(blocklist.c.url == url)).one_or_none()
        return None if row is None else Document(*row)

    def keep(self, url: str, document: Document) -> None:
        """Put ``document`` in the place of what was known of ``url``."""
        with self._database.write() as connection:
            upsert(connection, blocklist, {"url": url, **row_of(document)})
