"""``scrapy keys``: a new key, and the directory to publish."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, ClassVar, Final

from walsh_scrapy.tools.command import OperatorCommand
from walsh_scrapy.tools.exits import usage_error

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from walsh_scrapy.options import Options

_DAY: Final = 86_400
_MOST_DAYS: Final = 400


class Command(OperatorCommand):
    """Makes and shows the keys of Web Bot Auth."""

    usage = "[options] new FILE | directory [FILE ...]"
    takes_words = True
    headline = "Keys that sign requests: make one, publish them"
    description = (
        "`new FILE` writes a new private key (Ed25519) to a new file, which only you can read, "
        "and prints its id. `directory` prints the JSON Web Key Set to publish: the public "
        "parts of the keys in the files, or of WALSH_SIGNING_KEY. `directory --headers` prints "
        "the header fields to publish it with, signed by each key. Exit status: 0, 1 if "
        "something cannot be done, 2 for a wrong call. Examples: scrapy keys new key.pem. "
        "scrapy keys directory key.pem old.pem"
    )
    arguments: ClassVar = {
        "--headers": {"action": "store_true", "help": "print the header fields of the directory"},
        "--days": {
            "metavar": "DAYS",
            "type": int,
            "help": "how long the signatures of the directory count (default: 30)",
        },
    }

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:
        """Make or show keys."""
        action, *rest = args or [""]
        if action not in ("new", "directory"):
            self.refuse(f"`keys` takes `new FILE` or `directory`. {_NEW}")
        if opts.days is not None and (not opts.headers or not 1 <= opts.days <= _MOST_DAYS):
            self.refuse(f"--days goes with `directory --headers`: from 1 to {_MOST_DAYS}")
        if opts.headers and action != "directory":
            self.refuse("--headers goes with `directory`")
        if action == "new":
            if len(rest) != 1:
                self.refuse(f"`new` takes one file. {_NEW}")
            from walsh_scrapy.tools.keys import new_key

            print(new_key(rest[0]))
        else:
            _directory(rest, self.options, opts)
        return 0


_NEW: Final = "Example: scrapy keys new key.pem"


def _directory(files: Sequence[str], options: Options, opts: argparse.Namespace) -> None:
    """Print the directory of the keys, or its header fields."""
    from urllib.parse import urlsplit

    from walsh_scrapy.crawl.messages import host_field
    from walsh_scrapy.policy.signing import directory_body, directory_fields
    from walsh_scrapy.tools.keys import keys_of

    names = files or [name for name in [options.signing_key] if name]
    if not names:
        usage_error(f"which key? Name its file, or set WALSH_SIGNING_KEY. {_NEW}")
    keys = keys_of(names)
    body = directory_body([key.public for key in keys])
    if not opts.headers:
        sys.stdout.write(body.decode("ascii"))
        return
    if not options.signature_agent:
        usage_error("which host? Set WALSH_SIGNATURE_AGENT to the URL of the directory")
    host = host_field(urlsplit(options.signature_agent).netloc)
    lifetime = (opts.days or 30) * _DAY
    for name, value in directory_fields(keys, host, body, time.time(), lifetime).items():
        print(f"{name}: {value}")
