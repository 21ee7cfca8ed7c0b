"""Files that an operator names: read within limits, and written completely or not at all."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

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


@contextmanager
def atomic_file(target: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces ``target`` when the block ends without an exception.

    The folder is created if needed, as Scrapy does for exports. A symbolic link is followed. A
    target that is not a regular file (`/dev/null`, a pipe) is written directly. Raises OSError.
    """
    place = Path(os.path.realpath(target))  # Path.resolve raises for a loop of links
    if place.exists() and not place.is_file():
        with place.open("wb") as file:
            yield file
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name[:100]}.{os.urandom(4).hex()}.part")
    with part.open("xb") as file:
        try:
            if place.exists():
                part.chmod(place.stat().st_mode & 0o777)
            yield file
            file.flush()
            os.fsync(file.fileno())
            part.replace(place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
