"""The file of an SQLite state, and how its loss is noticed."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walsh_scrapy.state.errors import StateError
from walsh_scrapy.state.url import names_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from sqlalchemy import URL

#: Seconds of waiting for the first page of a file that another process is creating.
CREATION_TIMEOUT_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.02
#: The first bytes of a write-ahead log: SQLite's, in either byte order, or none written yet.
_LOG_STARTS: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83", b"\0\0\0\0")


class StateFile:
    """The file of an SQLite state.

    SQLite takes an empty file for a new database, ignores a write-ahead log that it cannot read,
    and goes on writing into a file that was deleted. Each of the three would lose the state without
    a word, so here they are errors (decision 29).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: tuple[int, int] | None = None

    @classmethod
    def from_url(cls, url: URL) -> Self | None:
        """Return the file of a database; None for a server, and for SQLite in memory."""
        return cls(Path(str(url.database))) if names_file(url) else None

    @property
    def inode(self) -> str:
        """The inode of the opened file. A moved file keeps it; a copy beside it has another one."""
        return str(self._opened[1]) if self._opened else ""

    @property
    def exists(self) -> bool:
        """Whether the file exists, sound or not. Raises StateError if that cannot be told."""
        with self._raising_state_errors():
            return self.path.is_file()

    def check_sound(self) -> None:
        """Raise StateError for an empty file, and for a damaged write-ahead log."""
        deadline = time.monotonic() + CREATION_TIMEOUT_SECONDS
        log = Path(f"{self.path}-wal")
        with self._raising_state_errors():
            while self.exists and self.path.stat().st_size == 0:
                if time.monotonic() > deadline:
                    raise StateError(
                        f"the state {self.path} is an empty file, so its content is lost; restore "
                        "a backup, or delete the file to begin an empty state"
                    )
                time.sleep(_POLL_SECONDS)
            if self.exists and log.is_file():
                with log.open("rb") as file:
                    start = file.read(4)
                if start and start not in _LOG_STARTS:
                    raise StateError(
                        f"the state cannot be used: {log} is damaged, and its newest commits are "
                        "in there; restore a backup, or move that file away to go on without them"
                    )

    def check_same(self) -> None:
        """Raise StateError if the path no longer leads to the file that was opened first."""
        try:
            stat = self.path.stat()
        except OSError as error:
            raise self._lost_error(error.strerror or str(error)) from error
        device_and_inode = stat.st_dev, stat.st_ino
        self._opened = self._opened or device_and_inode
        if device_and_inode != self._opened:
            raise self._lost_error("another file has its name")

    @contextmanager
    def _raising_state_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateError(
                f"the state {self.path} cannot be used: {error.strerror} ({error.filename}); "
                "check the permission to read and write the file and its folder, then start again"
            ) from error

    def _lost_error(self, reason: str) -> StateError:
        return StateError(
            f"the state {self.path} was deleted or replaced while it was in use ({reason}), and "
            "further writes would be lost; stop all crawls that use it, put it or a backup back, "
            "then start again"
        )
