"""``scrapy export``: the entries that any run found, and the sources as OPML."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from scrapy.settings import Settings

from walsh_scrapy.policy.wording import count_of, printable
from walsh_scrapy.tools.command import FileCommand
from walsh_scrapy.tools.exits import usage_error

if TYPE_CHECKING:
    import argparse


class Command(FileCommand):
    """Writes entries or sources, as they are at the moment of the call, into one file."""

    headline = "Export the entries that any run found, or the sources as OPML"
    description = (
        "Writes every entry in the state as the run that found it exported it, the first seen "
        "first. The ending of FILE chooses the format: .jsonl (or .jl), .json or .csv; with "
        ".opml the declared sources are written instead, and .atom is a feed of the newest 500 "
        "entries. The file is written whole or not at all. Exit status: 0, 1 if it cannot be "
        "done, 2 for a wrong call. Examples: scrapy export -o entries.jsonl. "
        "scrapy export -O week.csv --since P7D. scrapy export -o - | jq -r .url"
    )
    has_sources = True
    since = "only entries first seen since then"
    arguments: ClassVar = {
        "--format": {
            "choices": ("jsonl", "json", "csv", "opml", "atom"),
            "help": "instead of the ending of FILE; jsonl for standard output unless given",
        },
        "--source": {
            "metavar": "URL",
            "action": "append",
            "default": [],
            "help": "only entries of this source (may be repeated)",
        },
        "--no-backfill": {
            "action": "store_true",
            "help": "without what was there when its source was read for the first time",
        },
    }

    def execute(self, args: list[str], opts: argparse.Namespace) -> int:  # noqa: ARG002
        """Write, and print on standard error how much was written."""
        from walsh_scrapy.tools.export.export import Export
        from walsh_scrapy.tools.files import open_output

        target = self.target(opts)
        format_name = _format(target, opts.format)
        is_opml = format_name == "opml"
        self._check_usage(opts, format_name)
        export = Export(
            settings=self.settings or Settings(),
            sources_file=opts.sources or self.options.sources,
            urls=opts.source,
            since=opts.since,
            has_backfill=not opts.no_backfill,
        )
        output = open_output(target, replace=opts.output is None)
        if is_opml:
            with output as file, self.state_if_any() as known:
                count = export.write_sources(file, known)
        else:
            with output as file, self.state() as state:
                count = export.write_entries(file, format_name, state)
        nouns = ("source", "sources") if is_opml else ("entry", "entries")
        self.say_written(count_of(count, *nouns), target)
        return 0

    def _check_usage(self, opts: argparse.Namespace, format_name: str) -> None:
        """Exit with status 2 and one line for options that have no meaning together."""
        for name in ("since", "no_backfill") if format_name == "opml" else ():
            if getattr(opts, name) not in (None, False):
                option = name.replace("_", "-")
                self.refuse(f"--{option} selects entries, but an OPML file lists sources; drop one")


def _format(target: str, chosen: str | None) -> str:
    from walsh_scrapy.tools.export.export import FORMATS

    ending = Path(target).suffix.lower()
    if chosen is None:
        chosen = "jsonl" if target == "-" else FORMATS.get(ending)
    if chosen is None:
        usage_error(
            f"{printable(target)}: the ending of the file has to be one of {', '.join(FORMATS)}, "
            "unless --format names the format"
        )
    return chosen
