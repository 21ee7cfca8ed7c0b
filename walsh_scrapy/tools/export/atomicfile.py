"""A file that is written whole or not at all: it gets another name first, then is renamed."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def atomic_file(target: Path) -> Iterator[IO[bytes]]:
    """Open a new file that replaces ``target`` when the block ends without an exception.

    After an exception ``target`` is as it was. Its folder is created, as Scrapy does it for an
    export; a symbolic link is followed; a target that is no regular file (`/dev/null`, a pipe) is
    written to directly. Raises OSError.
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
