"""``scrapy keys``: keys in files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walsh_scrapy.crawl.failures import words_of
from walsh_scrapy.crawl.messages import UnusableKey, read_key
from walsh_scrapy.policy.signing import PrivateKey
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable

_MODE: Final = 0o600


def new_key(name: str) -> str:
    """Write a new private key to a new file, for its owner only; return its thumbprint.

    Raises CommandError if the file exists or cannot be written.
    """
    key, path = PrivateKey.generate(), Path(name)
    try:
        # A file or a symbolic link that is there already is never opened.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    except FileExistsError:
        raise CommandError(f"{name} exists, and a key is never overwritten: name a new file") from (
            None
        )
    except (OSError, ValueError) as error:
        raise CommandError(f"{name} cannot be written: {words_of(error)}") from None
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(key.pem)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise CommandError(f"{name} cannot be written: {words_of(error)}") from None
    return key.public.thumbprint


def keys_of(names: Iterable[str]) -> list[PrivateKey]:
    """Return the keys in files, each once. Raises CommandError."""
    try:
        keys = [read_key(Path(name)) for name in names]
    except UnusableKey as error:
        raise CommandError(str(error)) from None
    return list({key.public.thumbprint: key for key in keys}.values())
