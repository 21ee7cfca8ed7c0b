"""Files that a person names. Whatever they hold, time and memory have a limit."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

#: Bytes of a file that is read piece by piece: ten times those of 1,000,000 sources.
MAX_FILE_BYTES: Final = 2**30
#: Bytes of a file that is read as a whole.
MAX_WHOLE_BYTES: Final = 16 * 2**20
#: Characters of a piece: of a line, or of a table.
MAX_PIECE_LENGTH: Final = 65_536


class UnreadableFile(ValueError):
    """A file that cannot be read in its format; the message is the reason."""


def open_file(path: Path, max_bytes: int = MAX_FILE_BYTES) -> BufferedReader:
    """Open a regular file of at most ``max_bytes``. Raises UnreadableFile, and as `open` does.

    Pipes and devices are refused: they may have no end, and give nothing to a second reader.
    """
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 - the caller closes it
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode) and status.st_size <= max_bytes:
        return file
    file.close()
    if stat.S_ISREG(status.st_mode):
        raise UnreadableFile(f"it has {status.st_size} bytes, and at most {max_bytes} are read")
    raise UnreadableFile("it is a pipe or a device; write its content to a file, and name that")


def read_within(file: BinaryIO, max_bytes: int = MAX_WHOLE_BYTES) -> bytes:
    """Return the rest of an open file. Raises UnreadableFile for more than ``max_bytes`` bytes."""
    body = file.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise UnreadableFile(f"it has more than {max_bytes} bytes, and at most these are read")
    return body


def _open_at_once(path: str, flags: int) -> int:
    """Open a file, and do not wait for the writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
