"""``walsh backup``: a consistent copy of the state database, even during a crawl."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from walsh_scrapy.tools.call import CommandError, WrongCall
from walsh_scrapy.tools.output import Output

if TYPE_CHECKING:
    from walsh_scrapy.tools.call import Call


def run(call: Call) -> int:
    """Copy the state database to the file that the call names."""
    output = Output.from_call(call)
    if output.target == "-":
        raise WrongCall(
            "a database cannot be written to standard output; write it to a file with -o FILE"
        )
    with call.state() as state:
        if not state.backups.is_file:
            raise CommandError(
                "the state database is on PostgreSQL; back it up with pg_dump --format=custom "
                "--file=walsh.dump --dbname=DATABASE"
            )
        with output.open() as file:
            state.backups.copy(Path(file.name))
    print(f"backed up the state database to {output.name}", file=sys.stderr)
    return 0
