"""The blocklist and its schema as they were last adopted (R3, decision 14)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, select

from walsh_scrapy.state.evidence import keep_copy
from walsh_scrapy.state.tables import blocklist
from walsh_scrapy.state.upsert import row_of, upsert

if TYPE_CHECKING:
    from walsh_scrapy.state.database import Database


@dataclass(frozen=True, slots=True)
class BlocklistCopy:
    """The blocklist or its schema, with the validators of the response it came in (R7).

    Validators are the header's bytes as the server sent them.
    """

    body: bytes | None
    etag: bytes | None
    last_modified: bytes | None
    checked_at: float  #: epoch seconds of the last time the server was asked


_COLUMNS: Final = tuple(blocklist.c[field.name] for field in fields(BlocklistCopy))
_FIND: Final = select(*_COLUMNS).where(blocklist.c.url == bindparam("key"))
_FIND_NAME: Final = select(blocklist.c.copy).where(blocklist.c.url == bindparam("key"))


class BlocklistStore:
    """Keeps the last good copy of each URL, however old, until a better one is adopted.

    Methods raise what ``State(failed=...)`` returns if the database fails: a StateError by
    default, ``RequestDeferred`` in a crawl.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, url: str) -> BlocklistCopy | None:
        """Return the copy of ``url``, or None if there never was one."""
        with self._database.read() as connection:
            row = connection.execute(_FIND, {"key": url}).one_or_none()
        return None if row is None else BlocklistCopy(*row)

    def keep(self, url: str, copy: BlocklistCopy) -> None:
        """Replace the copy of ``url``."""
        with self._database.write() as connection:
            name, body, now = None, copy.body, copy.checked_at
            if body is not None:
                (last,) = connection.execute(_FIND_NAME, {"key": url}).one_or_none() or (None,)
                name = keep_copy(connection, "blocklist", body, now=now, last=last)
            upsert(connection, blocklist, {"url": url, **row_of(copy), "copy": name})
