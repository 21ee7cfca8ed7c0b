"""``walsh backup``: a sound copy of the state while crawls run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from walsh_scrapy.tools.call import CommandError, WrongCall
from walsh_scrapy.tools.files import Output

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call


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
