"""``scrapy datasheet``: how a data set was collected, to be published beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.tools.command import FileCommand

if TYPE_CHECKING:
    import argparse


class Command(FileCommand):
    """Writes the data sheet."""

    headline = "Write how the data set was collected, to be published beside it"
    description = (
        "Writes who asked, when, which sources, what is in an entry, the pauses asked for and "
        "kept, what robots.txt and blocklists kept back, versions, what is not known, and "
        "whether the contract was kept: all from the record, which it audits as scrapy attest "
        "does. It is Markdown, or JSON if FILE ends in .json. The file is written whole or "
        "not at all. Exit status: 0, 1 if it cannot be done, 2 for a wrong call. "
        "Examples: scrapy datasheet -o collection.md. "
        "scrapy datasheet -O collection.json --since 2026-01-01"
    )
    since = "only what was collected since then"
    arguments: ClassVar = {
        "--format": {"choices": ("md", "json"), "help": "instead of the ending of FILE"},
    }

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:  # noqa: ARG002
        """Read the record and write the sheet."""
        from walsh_scrapy.tools.datasheet.markdown import markdown
        from walsh_scrapy.tools.datasheet.sheet import build_sheet
        from walsh_scrapy.tools.files import open_output

        target = self.target(opts)
        is_json = opts.format == "json" or (
            opts.format is None and Path(target).suffix.lower() == ".json"
        )
        # The file first: the audit of a large record takes long.
        with open_output(target, replace=opts.output is None) as output:
            with self.state() as state, state.log() as log:
                sheet = build_sheet(state, log, self.options, state.now(), opts.since)
            text = json.dumps(sheet, indent=1) + "\n" if is_json else markdown(sheet)
            output.write(text.encode())
        runs = sheet["runs"]["crawls"] + sheet["runs"]["by_hand"]
        self.say_written(f"the data sheet of {count_of(runs, 'run')}", target)
        return 0
