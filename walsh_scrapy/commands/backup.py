"""``scrapy backup``: one file to move to another machine, and to restore there."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.tools.command import FileCommand
from walsh_scrapy.tools.exits import CommandError
from walsh_scrapy.tools.output import print_lines

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.options import Options


class Command(FileCommand):
    """Writes the state, the sources files and the settings into one file, and restores it."""

    usage = "[options] -o FILE | --restore FILE"
    headline = "Back up the state, the sources files and the settings as one file; restore it"
    description = (
        "Writes one zip archive: the state as it is now, while crawls run, the sources files that "
        "runs read, WALSH_BLOCKLIST_FILE, and the settings. A state on PostgreSQL is not in it; "
        "the command for its dump is printed. Neither the key of WALSH_SIGNING_KEY nor the "
        "password of WALSH_STATE_URL is in it. `--restore FILE` writes all of it where nothing "
        "is yet, or nothing, and says which settings differ. Exit status: 0, 1 if it cannot be "
        "done, 2 for a wrong call. Examples: scrapy backup -o walsh-backup.zip. "
        "scrapy backup --restore walsh-backup.zip"
    )
    has_sources = True
    arguments: ClassVar = {
        "--restore": {"metavar": "FILE", "help": "restore this backup where nothing is yet"},
    }

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:  # noqa: ARG002
        """Write or restore, and say what."""
        if opts.sources and opts.restore is None and not Path(opts.sources).is_file():
            raise CommandError(f"{opts.sources}: there is no such file")
        options = replace(self.options, sources=opts.sources or self.options.sources)
        if opts.restore is None:
            self._write(self.target(opts), options, replaces=opts.output is None)
            return 0
        if opts.output or opts.overwrite_output:
            self.refuse("--restore reads a backup, and -o writes one; give one of them")
        from walsh_scrapy.tools.backup.transfer import restore

        print_lines(map(printable, restore(opts.restore, options)))
        return 0

    def _write(self, target: str, options: Options, *, replaces: bool) -> None:
        from walsh_scrapy.tools.backup.transfer import dump_command, sources_files, write_backup
        from walsh_scrapy.tools.files import open_output

        with open_output(target, replace=replaces) as file, self.state() as state:
            missing = [path for path in sources_files(state, options) if not path.is_file()]
            manifest = write_backup(file, state, options)
        names = ", ".join(manifest.names)
        self.say_written(f"{count_of(len(manifest.files), 'file', 'files')} ({names})", target)
        for path in missing:
            told = f"the sources file {printable(str(path))} is not in it: there is no such file"
            print(told, file=sys.stderr)
        if not manifest.has_state:
            dump = dump_command(options.state_url)
            print(f"the state is not in it: {dump}", file=sys.stderr)
        if options.signing_key:
            print(f"the key {options.signing_key} is not in it: keep it apart", file=sys.stderr)
