"""Lines of a web server's log, in Common or Combined Log Format.

Both formats are those of Apache and nginx. What stands before the time is not read, so a virtual
host in front does no harm.
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes that are read at once.
_BLOCK: Final = 1 << 20
#: Bytes of a line that are read; a longer one is cut.
LONGEST_LINE: Final = 1 << 16
_GZIP: Final = b"\x1f\x8b"
_QUOTED: Final = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_TARGET: Final = rb'[^"\\ ]*+(?:\\.[^"\\ ]*+)*+'
#: Groups: time, target, status, and in Combined Log Format the User-Agent.
LINE: Final = re.compile(
    rb"\[(\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "
    rb'"[A-Z]{1,20}+ (' + _TARGET + rb')(?: HTTP/[\d.]++)?" (\d{3}) [\d-]++'
    rb'(?: "' + _QUOTED + rb'" "(' + _QUOTED + rb')")?',
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
    while block := file.read(_BLOCK):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()[:LONGEST_LINE]
        yield lines
    if rest:
        yield [rest]


@contextmanager
def open_log(name: str) -> Iterator[IO[bytes]]:
    """Open a log, packed by gzip or not; `-` is standard input. Raises CommandError."""
    try:
        with _opened(name) as raw:
            is_packed = raw.peek(2)[:2] == _GZIP  # type: ignore[attr-defined]
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if is_packed else raw
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandError(f"{name} cannot be read: {why}") from error


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
    else:
        with Path(name).open("rb") as file:
            yield file
