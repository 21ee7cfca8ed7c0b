"""Opening files that an operator names, with limits for the time and memory that they take."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

#: The maximum size of a file that is read piece by piece: ten times the size of 1,000,000 sources.
MAX_FILE_BYTES: Final = 2**30
#: The maximum size of a file that is read into memory.
MAX_WHOLE_BYTES: Final = 16 * 2**20
#: The maximum length of a line or of a table, in characters.
MAX_PIECE_LENGTH: Final = 65_536


class UnreadableFile(ValueError):
    """A file cannot be read, or is not in its format; the message is the reason."""


def open_file(path: Path, max_bytes: int = MAX_FILE_BYTES) -> BufferedReader:
    """Open a regular file of at most ``max_bytes``. Raises UnreadableFile and OSError.

    Pipes and devices are refused: they may never end, and cannot be read twice.
    """
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 - the caller closes it
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_size <= max_bytes:
        return file
    file.close()
    if stat.S_ISREG(status.st_mode):
        raise UnreadableFile(f"{status.st_size} bytes are too many; the maximum is {max_bytes}")
    raise UnreadableFile("this is a pipe or a device; write its content to a file first")


def read_within(file: BinaryIO, max_bytes: int = MAX_WHOLE_BYTES) -> bytes:
    """Return the rest of an open file. Raises UnreadableFile for more than ``max_bytes``."""
    body = file.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise UnreadableFile(f"this is larger than the maximum of {max_bytes} bytes")
    return body


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
