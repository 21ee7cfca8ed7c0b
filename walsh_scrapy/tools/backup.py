"""``scrapy backup``: a sound copy of the state while crawls run.

Writes a copy of an SQLite state as it is at one moment, with its write-ahead log; no crawl waits. A
state on PostgreSQL is copied by pg_dump. The signing key, the sources files and your settings are
separate files: keep them too. Exit status: 0, 1 if it cannot be done, 2 for a wrong call. Example:
scrapy backup -o walsh-backup.sqlite3
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from walsh_scrapy.tools.call import CommandError, WrongCall
from walsh_scrapy.tools.files import Output, add_output

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.tools.call import Call

USAGE = "[options] -o FILE"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_output(parser, takes_stdout=False)


def run(call: Call) -> int:
    """Write the copy."""
    output = Output.of(call)
    if output.target == "-":
        raise WrongCall("a copy of the state is a database, so it needs a file: -o FILE")
    with call.state() as state:
        if not state.backups.is_file:
            raise CommandError(
                "the state is on PostgreSQL, which copies it itself: pg_dump --format=custom "
                "--file=walsh.dump --dbname=DATABASE"
            )
        with output.open() as file:
            state.backups.copy(Path(file.name))
    print(f"backed up the state to {output.name}", file=sys.stderr)
    return 0
