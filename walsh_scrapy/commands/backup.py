"""``scrapy backup``: a sound copy of the state while crawls run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from walsh_scrapy.tools.command import FileCommand
from walsh_scrapy.tools.exits import CommandError

if TYPE_CHECKING:
    import argparse


class Command(FileCommand):
    """Copies an SQLite state."""

    headline = "Copy the state, as it is now, into one file while crawls run"
    description = (
        "Writes a copy of an SQLite state as it is at one moment, with what is still in its "
        "write-ahead log; no crawl has to wait. A state on PostgreSQL is copied by pg_dump. The "
        "signing key, the sources files and your settings are files of their own: keep them too. "
        "Exit status: 0, 1 if it cannot be done, 2 for a wrong call. "
        "Example: scrapy backup -o walsh-backup.sqlite3"
    )

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:  # noqa: ARG002
        """Write the copy."""
        from walsh_scrapy.tools.files import open_output

        target = self.target(opts)
        if target == "-":
            self.refuse("a copy of the state is a database, which needs a file: -o FILE")
        with self.state() as state:
            if not state.backups.is_file:
                raise CommandError(
                    "the state is on PostgreSQL, which copies it itself: pg_dump --format=custom "
                    "--file=walsh.dump --dbname=DATABASE"
                )
            with open_output(target, replace=opts.output is None) as file:
                state.backups.copy(Path(file.name))
        self.say_written("the state", target)
        return 0
