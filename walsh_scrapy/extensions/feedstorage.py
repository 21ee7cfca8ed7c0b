"""Exports to files: one that is killed leaves the former file whole, or whole lines."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from scrapy.extensions import feedexport

from walsh_scrapy.tools.files import atomic_file

if TYPE_CHECKING:
    from scrapy import Spider

#: Formats in which an item is a line, and files may be joined.
_LINES: Final = ("jsonlines", "jsonl", "jl", "csv")
#: More bytes than an item has, so that each is written at once.
_BUFFER_BYTES: Final = 1 << 20


class FileFeedStorage(feedexport.FileFeedStorage):
    """Scrapy's storage of a local file, for ``FEED_STORAGES``.

    A file that is replaced (``-O``, ``overwrite``) has another name until it is complete. To a file
    that is added to (``-o``) each item is written at once. If its last line has no end, as after a
    full disk, the next item begins a line of its own.
    """

    def __init__(self, uri: str, *, feed_options: dict[str, Any] | None = None) -> None:
        super().__init__(uri, feed_options=feed_options)
        options = feed_options or {}
        has_lines = options.get("format") in _LINES and not options.get("postprocessing")
        self._is_in_lines = has_lines and self.write_mode == "ab"
        self._open = ExitStack()
        self._file: IO[bytes] | None = None

    def open(self, spider: Spider) -> IO[bytes]:  # noqa: ARG002 - Scrapy's interface
        """Return the file to write to. Raises OSError."""
        path = Path(self.path)
        if self.write_mode == "wb":
            self._file = self._open.enter_context(atomic_file(path))
            return self._file
        path.parent.mkdir(parents=True, exist_ok=True)
        ends_within_line = self._is_in_lines and _ends_within_line(path)
        self._file = self._open.enter_context(path.open("ab", buffering=_BUFFER_BYTES))
        if ends_within_line:
            self._file.write(b"\n")
        return self._file

    def item_written(self) -> None:
        """Write out what the file has of an item, if the file is added to. Raises OSError."""
        if self._file is not None and self.write_mode == "ab":
            self._file.flush()

    def store(self, file: IO[bytes]) -> None:  # noqa: ARG002 - Scrapy's interface
        """Complete the file. Raises OSError."""
        self._open.close()

    def give_up(self, error: Exception) -> None:
        """Close the file after an error; one that would be replaced stays as it was."""
        with suppress(OSError):
            self._open.__exit__(type(error), error, error.__traceback__)


def _ends_within_line(path: Path) -> bool:
    """Return True if the last line of a file has no end."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"
