"""Backups of the state: a sound copy while crawls write, and the word of the crawl that opens one.

A crawl notes in `choices` the inode of the file that it has opened. A copy under another name has
another one; one that was copied over the file has the same, or may get one that was freed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import select

from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.state.database import StateError, Store
from walsh_scrapy.state.rows import upsert
from walsh_scrapy.state.tables import choices, runs

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection

_NAME: Final = "file"  #: of the choice that says which file the last crawl opened
_OPENED: Final = select(choices.c.value).where(choices.c.name == _NAME)
_LAST_BEGIN: Final = select(runs.c.begun).order_by(runs.c.begun.desc()).limit(1)


class BackupStore(Store):
    """Copies an SQLite state, and notices that the state is a copy."""

    @property
    def is_file(self) -> bool:
        """Whether the state is a file, which can be copied, and not on a server."""
        return self._database.file is not None

    def copy(self, place: Path) -> None:
        """Write all that is committed now to an empty file; no writer has to wait.

        Raises StateError if the state or its copy is damaged, or if there is no room.
        """
        try:
            with self._database.snapshot() as source, closing(sqlite3.connect(place)) as copy:
                driver: Any = source.connection.driver_connection
                driver.backup(copy)
                (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            found = str(error)
        if found != "ok":
            why = " ".join(str(found).split())
            raise StateError(f"{self._database} cannot be copied to {place}: {why}")

    def notice(self) -> str:
        """Note which file the state is; return a sentence if that is not the one of the last crawl.

        Of several crawls that begin at once, one says it.
        """
        file = self._database.file
        here = "" if file is None else file.number
        if (self._database.read(lambda connection: connection.scalar(_OPENED)) or "") == here:
            return ""

        def write(connection: Connection) -> tuple[str, float | None]:
            found, last = connection.scalar(_OPENED) or "", connection.scalar(_LAST_BEGIN)
            upsert(connection, choices, {"name": _NAME, "value": here})
            return found, last

        found, last = self._database.write(write)
        if found in ("", here):
            return ""
        began = f" (its last run began at {format_moment(last)})" if last else ""
        return (
            f"the state {self._database} is another file than the last crawl opened: a copy, or a "
            f"backup put in place{began}; entries, visits and holds that came after it was made "
            "are unknown here, and if crawls still use the state that it was made from, hosts are "
            "asked by both: stop one of them"
        )
