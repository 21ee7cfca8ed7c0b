"""Lines of a web server's log, and how Common and Combined Log Format write them.

Both formats are those of Apache and nginx. What stands before the time is not read, so a virtual
host in front does no harm.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import sys
import zlib
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes that are read at once.
_BLOCK: Final = 1 << 20
#: Bytes of a line that are read; a longer one is cut.
LONGEST_LINE: Final = 1 << 16
#: What stands in quotes, the target of a request, and a time, as servers write them.
QUOTED: Final = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
TARGET: Final = rb'[^"\\ ]*+(?:\\.[^"\\ ]*+)*+'
STAMP: Final = rb"\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}"
#: Common Log Format, or with the User-Agent Combined Log Format.
LINE: Final = re.compile(
    rb"\[(?P<time>" + STAMP + rb")\] "
    rb'"[A-Z]{1,20}+ (?P<target>' + TARGET + rb')(?: HTTP/[\d.]++)?" (?P<status>\d{3}) [\d-]++'
    rb'(?: "' + QUOTED + rb'" "(?P<agent>' + QUOTED + rb')")?',
    re.DOTALL,
)


def second_of(stamp: bytes) -> int | None:
    """Return the epoch seconds of a time such as `22/Nov/2026:10:00:01 +0000`; None if wrong."""
    midnight = _midnight(stamp[:11], stamp[21:])
    if midnight is None:
        return None
    return midnight + int(stamp[12:14]) * 3600 + int(stamp[15:17]) * 60 + int(stamp[18:20])


@lru_cache(maxsize=256)
def _midnight(date: bytes, zone: bytes) -> int | None:
    try:
        day = datetime.strptime(date.decode("ascii"), "%d/%b/%Y").replace(tzinfo=UTC)
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5]))
        moved = timezone(-offset if zone[:1] == b"-" else offset)
        return int(day.replace(tzinfo=moved).timestamp())
    except (ValueError, OverflowError):  # 31 February, or 99 hours
        return None


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
    """Open a log, packed or not; `-` is standard input. Raises CommandError.

    So does what is read in the block: a packed log may be cut or damaged.
    """
    try:
        with _opened(name) as raw:
            yield _unpacked(raw)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandError(printable(f"{name} cannot be read: {why}")) from error


def _unpacked(raw: IO[bytes]) -> IO[bytes]:
    head = raw.peek(6)  # type: ignore[attr-defined]
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if head.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.BZ2File(raw))
    if head.startswith(b"\xfd7zXZ\0"):
        return cast("IO[bytes]", lzma.LZMAFile(raw))
    return raw


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
    else:
        with Path(name).open("rb") as file:
            yield file
