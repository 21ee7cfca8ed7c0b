"""Files that a call names."""

from __future__ import annotations

import sys
from pathlib import Path

from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.printable import printable


def read(name: str) -> bytes:
    """Return the bytes of a file, or of standard input for `-`. Raises CommandError."""
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise CommandError(printable(f"{name} cannot be read: {why}")) from error
