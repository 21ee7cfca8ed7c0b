"""``walsh keys``: create a key for signing requests, and print the key directory."""

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
_FILE_MODE: Final = 0o600


def run(call: Call) -> int:
    """Create a key, or print the key directory or its header fields."""
    arguments = call.arguments
    if arguments.action == "new":
        thumbprint = write_new_key(arguments.file)
        print(f"wrote {printable(arguments.file)} (id {thumbprint})")
        return 0
    if arguments.days and not arguments.headers:
        raise WrongCall("--days needs --headers")
    options = call.options
    names = arguments.files or [name for name in [options.signing_key] if name]
    if not names:
        raise WrongCall(
            f"no key given: name a key file ({program_name()} keys directory key.pem), or set "
            "WALSH_SIGNING_KEY"
        )
    keys = read_keys(names)
    body = directory_body([key.public for key in keys])
    if not arguments.headers:
        sys.stdout.write(body.decode("ascii"))
        return 0
    if not options.signature_agent:
        raise WrongCall("set WALSH_SIGNATURE_AGENT to the URL at which you publish the directory")
    host = host_field(urlsplit(options.signature_agent).netloc)
    lifetime = (arguments.days or 30) * _DAY
    for name, value in directory_fields(keys, host, body, time.time(), lifetime).items():
        print(f"{name}: {value}")
    return 0


def write_new_key(name: str) -> str:
    """Write a new private key to a file that only its owner can read; return the thumbprint.

    Raises CommandError if the file exists or cannot be written.
    """
    key = PrivateKey.generate()
    path = Path(name)
    try:
        # Mode x never opens an existing file or symbolic link.
        with open(path, "xb", opener=partial(os.open, mode=_FILE_MODE)) as file:
            try:
                file.write(key.pem)
                file.flush()
            except OSError:
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise CommandError(
            f"{name} already exists, and keys are never overwritten: name a new file"
        ) from None
    except (OSError, ValueError) as error:
        raise CommandError(f"{name} cannot be written: {words_of(error)}") from None
    return key.public.thumbprint


def read_keys(names: Iterable[str]) -> list[PrivateKey]:
    """Read the keys in the files, without duplicates. Raises CommandError."""
    try:
        keys = [read_key(Path(name)) for name in names]
    except UnusableKey as error:
        raise CommandError(str(error)) from None
    return list({key.public.thumbprint: key for key in keys}.values())
