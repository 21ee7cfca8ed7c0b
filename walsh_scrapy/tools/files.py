"""Files that a call names: read, or written whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_file(name: str) -> bytes:
    """Return the bytes of a file, or of standard input for `-`. Raises CommandError."""
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if name.startswith(("http://", "https://")):
            raise CommandError(f"{name} is a URL, not a file; get it first, with curl") from error
        why = getattr(error, "strerror", None) or error
        raise CommandError(f"{name} cannot be read: {why}") from error


@contextmanager
def open_output(target: str, *, replace: bool) -> Iterator[IO[bytes]]:
    """Open the file ``target``, or standard output for `-`.

    Raises CommandError if the file exists and ``replace`` is False, or if it cannot be written.
    """
    if not replace and Path(target).is_file():
        raise CommandError(f"{target} exists already; -O replaces it")
    try:
        if target == "-":
            with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as file:
                yield file
        else:
            with atomic_file(Path(target)) as file:
                yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        raise CommandError(f"{target} cannot be written: {why}") from error


@contextmanager
def atomic_file(target: Path) -> Iterator[IO[bytes]]:
    """Open a new file that replaces ``target`` when the block ends without an exception.

    It has another name until then, so ``target`` is as it was after an exception. Its folder is
    created, as Scrapy does it for an export; a symbolic link is followed; a target that is no
    regular file (`/dev/null`, a pipe) is written to directly. Raises OSError.
    """
    place = target.resolve()
    if place.exists() and not place.is_file():
        with place.open("wb") as file:
            yield file
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        dir=place.parent, prefix=f".{place.name[:100]}.", suffix=".part", delete=False
    ) as file:
        part = Path(file.name)
        try:
            part.chmod(_mode(place))
            yield cast("IO[bytes]", file)
            file.flush()
            os.fsync(file.fileno())
            part.replace(place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _mode(place: Path) -> int:
    """Return the permissions of the file that is replaced, or those of any new file."""
    if place.exists():
        return place.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
