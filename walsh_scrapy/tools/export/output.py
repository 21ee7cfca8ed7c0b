"""Where an export is written: a file, replaced whole or not at all, or standard output."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.export.atomicfile import atomic_file
from walsh_scrapy.tools.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def open_output(target: str, *, replace: bool) -> Iterator[IO[bytes]]:
    """Open the file ``target``, or standard output for `-`.

    Raises CommandError if the file exists and ``replace`` is False, or if it cannot be written.
    """
    if not replace and Path(target).is_file():
        raise CommandError(f"{printable(target)} exists already; -O replaces it")
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
        raise CommandError(f"{printable(target)} cannot be written: {why}") from error
