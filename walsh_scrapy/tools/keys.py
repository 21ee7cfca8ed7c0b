"""``walsh keys``: a new key, and the directory to publish."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from walsh_scrapy.crawl.failures import words_of
from walsh_scrapy.crawl.messages import UnusableKey, host_field, read_key
from walsh_scrapy.policy.signing import PrivateKey, directory_body, directory_fields
from walsh_scrapy.policy.wording import printable
from walsh_scrapy.programname import program_name
from walsh_scrapy.tools.call import CommandError, WrongCall

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walsh_scrapy.tools.call import Call

_DAY: Final = 86_400
_MODE: Final = 0o600


def run(call: Call) -> int:
    """Make a key, or print the directory of keys, or its header fields."""
    given = call.arguments
    if given.action == "new":
        thumbprint = write_new_key(given.file)
        print(f"wrote {printable(given.file)} (id {thumbprint})")
        return 0
    if given.days and not given.headers:
        raise WrongCall("--days goes with --headers")
    options = call.options
    names = given.files or [name for name in [options.signing_key] if name]
    if not names:
        raise WrongCall(
            f"no key given: name its file ({program_name()} keys directory key.pem), "
            "or set WALSH_SIGNING_KEY"
        )
    keys = read_keys(names)
    body = directory_body([key.public for key in keys])
    if not given.headers:
        sys.stdout.write(body.decode("ascii"))
        return 0
    if not options.signature_agent:
        raise WrongCall("no host given: set WALSH_SIGNATURE_AGENT to the URL of the directory")
    host = host_field(urlsplit(options.signature_agent).netloc)
    lifetime = (given.days or 30) * _DAY
    for name, value in directory_fields(keys, host, body, time.time(), lifetime).items():
        print(f"{name}: {value}")
    return 0


def write_new_key(name: str) -> str:
    """Write a new private key to a new file, for its owner only; return its thumbprint.

    Raises CommandError if the file exists or cannot be written.
    """
    key, path = PrivateKey.generate(), Path(name)
    try:
        # A file or a symbolic link that is there already is never opened.
        with open(path, "xb", opener=partial(os.open, mode=_MODE)) as file:
            try:
                file.write(key.pem)
                file.flush()
            except OSError:
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        told = f"{name} exists, and a key is never overwritten: name a new file"
        raise CommandError(told) from None
    except (OSError, ValueError) as error:
        raise CommandError(f"{name} cannot be written: {words_of(error)}") from None
    return key.public.thumbprint


def read_keys(names: Iterable[str]) -> list[PrivateKey]:
    """Return the keys in files, each once. Raises CommandError."""
    try:
        keys = [read_key(Path(name)) for name in names]
    except UnusableKey as error:
        raise CommandError(str(error)) from None
    return list({key.public.thumbprint: key for key in keys}.values())
