"""The lines of a log, packed or not."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes that are read at once.
_BLOCK: Final = 1 << 20
#: Bytes of a line that are read; a longer one is cut.
LONGEST_LINE: Final = 1 << 16


def lines_of(file: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of a file, some thousands at once, without their ends."""
    rest = b""
    # read1 returns what is there, also before a place where a packed file is damaged
    while block := file.read1(_BLOCK):  # type: ignore[attr-defined]
        lines = (rest + block).split(b"\n")
        rest = lines.pop()[:LONGEST_LINE]
        yield lines
    if rest:
        yield [rest]


@contextmanager
def open_log(name: str) -> Iterator[IO[bytes]]:
    """Open a log, packed or not; `-` is standard input. Raises OSError, which names the log.

    So does what is read in the block: a packed log may be cut or damaged.
    """
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as raw:
            yield _unpack(raw)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        why = getattr(error, "strerror", None) or error
        raise OSError(f"{name} cannot be read: {why}") from error


def _unpack(raw: IO[bytes]) -> IO[bytes]:
    head = raw.peek(6)  # type: ignore[attr-defined]
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if head.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.BZ2File(raw))
    if head.startswith(b"\xfd7zXZ\0"):
        return cast("IO[bytes]", lzma.LZMAFile(raw))
    return raw
