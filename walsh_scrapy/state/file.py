"""The file of an SQLite state: sound when it is opened, and the same file until it is closed."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walsh_scrapy.state.engines import StateError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from typing import Self

    from sqlalchemy import URL

#: How long another process may take to write the first page of a file that it has created.
CREATING_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 0.02
#: The first bytes of a write-ahead log: SQLite's, in either byte order, or none written yet.
_LOG_STARTS: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83", b"\0\0\0\0")


class StateFile:
    """The file that a state's URL names.

    SQLite takes an empty file for a new database, leaves out a write-ahead log that it cannot read,
    and goes on writing into a file that was deleted. All three would lose the record silently, so
    they are errors here (decision 29).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: tuple[int, int] | None = None

    @classmethod
    def of(cls, url: URL) -> Self | None:
        """Return the file of a database; None for a server, or a database in memory."""
        is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
        return cls(Path(str(url.database))) if is_file else None

    @property
    def number(self) -> str:
        """The inode that was opened: a move on its disk keeps it, a copy beside it has another."""
        return str(self._opened[1]) if self._opened else ""

    @property
    def exists(self) -> bool:
        """Whether there is a file, sound or not. Raises StateError if that cannot be seen."""
        with self._readable():
            return self.path.is_file()

    def check_sound(self) -> None:
        """Raise StateError for an empty file, and for a write-ahead log that is none."""
        with self._readable():
            self._check_sound()

    def _check_sound(self) -> None:
        deadline = time.monotonic() + CREATING_SECONDS
        while self.exists and self.path.stat().st_size == 0:
            if time.monotonic() > deadline:
                raise StateError(
                    f"the state {self.path} is an empty file, so what it held is lost; restore a "
                    "backup, or delete the file to begin an empty state"
                )
            time.sleep(_RETRY_SECONDS)
        log = Path(f"{self.path}-wal")
        if self.exists and log.is_file():
            with log.open("rb") as file:
                start = file.read(4)
            if start and start not in _LOG_STARTS:
                raise StateError(
                    f"the state cannot be used: {log} is damaged, and its newest commits are in "
                    "there; restore a backup, or move that file away to go on without them"
                )

    def remember(self) -> None:
        """Remember which file was opened: the name may lead to another one later."""
        self._opened = _identity(self.path.stat())

    def check_same(self) -> None:
        """Raise StateError if the name no longer leads to the file that was opened."""
        try:
            found = _identity(self.path.stat())
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        if found != self._opened:
            raise self._lost("another file has its name")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raise StateError for an OSError of the block."""
        try:
            yield
        except OSError as error:
            raise StateError(
                f"the state {self.path} cannot be used: {error.strerror} ({error.filename}); "
                "check the permission to read and write the file and its folder, then start again"
            ) from error

    def _lost(self, why: str) -> StateError:
        return StateError(
            f"the state {self.path} was deleted or replaced while it was in use ({why}), and what "
            "is written now would be lost; stop all crawls that use it, put it or a backup back, "
            "then start again"
        )


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
