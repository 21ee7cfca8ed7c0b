"""Backups of the state: a sound copy while crawls write, and the word of the crawl that opens one.

A crawl notes in `choices` the inode of the file that it has opened. A copy under another name has
another one; one that was copied over the file has the same, or may get one that was freed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from sqlalchemy import select

from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.state.database import Store
from walsh_scrapy.state.engines import StateError, bare_engine
from walsh_scrapy.state.file import StateFile
from walsh_scrapy.state.rows import upsert
from walsh_scrapy.state.tables import choices, files, runs

_NAME: Final = "file"  #: of the choice that says which file the last crawl opened
_RESTORED: Final = "restored "  #: what that is until the first crawl of a state that was restored
_OPENED: Final = select(choices.c.value).where(choices.c.name == _NAME)
_LAST_BEGIN: Final = select(runs.c.begun).order_by(runs.c.begun.desc()).limit(1)
_PATHS: Final = select(files.c.path).order_by(files.c.id)


class BackupStore(Store):
    """Copies an SQLite state, and notices that the state is a copy."""

    @property
    def is_file(self) -> bool:
        """Whether the state is a file, which can be copied, and not on a server."""
        return self._database.file is not None

    def copy(self, place: Path) -> None:
        """Write all that is committed now to a new file; no writer has to wait.

        Raises StateError if the state or its copy is damaged, or if there is no room.
        """
        try:
            with self._database.snapshot() as source, closing(sqlite3.connect(place)) as copy:
                source.driver.backup(copy)
            check_pages(place)
        except (sqlite3.Error, ValueError) as error:
            raise StateError(f"{self._database} cannot be copied to {place}: {error}") from error

    def sources_files(self) -> list[Path]:
        """Return the sources files that runs read lately, which may be gone."""
        with self._database.read() as connection:
            return [Path(path) for (path,) in connection.all(_PATHS)]

    def mark_restored(self, made: float) -> None:
        """Let the next crawl say that the state is a backup, made at that epoch second."""
        with self._database.write() as connection:
            upsert(connection, choices, {"name": _NAME, "value": f"{_RESTORED}{made}"})

    def notice(self) -> str:
        """Note which file the state is; return a sentence if that is not the one of the last crawl.

        Of several crawls that begin at once, one says it.
        """
        file = self._database.file
        here = "" if file is None else file.number
        with self._database.read() as connection:
            if (connection.scalar(_OPENED) or "") == here:
                return ""
        with self._database.write() as connection:
            found = connection.scalar(_OPENED) or ""
            last = connection.scalar(_LAST_BEGIN)
            upsert(connection, choices, {"name": _NAME, "value": here})
        if found in ("", here):
            return ""
        if found.startswith(_RESTORED):
            made = format_moment(float(found.removeprefix(_RESTORED)))
            what = f"was restored from a backup of {made}"
        else:
            what = "is another file than the last crawl opened: a copy, or a backup put in place"
        began = f" (its last run began at {format_moment(last)})" if last else ""
        return (
            f"the state {self._database} {what}{began}; entries, visits and holds that came after "
            "it was made are unknown here, and if crawls still use the state that it was made "
            "from, hosts are asked by both: stop one of them"
        )


def files_of(url: str) -> list[Path]:
    """Return where a state has its files, there or not; none for a server. Raises StateError."""
    place = file_of(url)
    return [Path(f"{place}{end}") for end in ("", "-wal", "-shm", "-journal") if place]


def file_of(url: str) -> Path | None:
    """Return the file of a state, there or not; None for a server. Raises StateError."""
    engine = bare_engine(url)
    engine.dispose()
    file = StateFile.of(engine.url)
    return None if file is None else file.path


def check_pages(file: Path) -> None:
    """Raise sqlite3.DatabaseError or ValueError if a file is no sound SQLite database."""
    with closing(sqlite3.connect(file)) as database:
        (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise ValueError(f"it is damaged ({' '.join(str(found).split())})")
