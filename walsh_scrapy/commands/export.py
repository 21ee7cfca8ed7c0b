"""``scrapy export``: the entries that any run found, and the sources as OPML."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand
from scrapy.settings import Settings

from walsh_scrapy.policy.wording import counted
from walsh_scrapy.tools.exits import clean_exit, sources_hint, usage_error

if TYPE_CHECKING:
    import argparse


class Command(ScrapyCommand):
    """Writes entries or sources, as they are at the moment of the call, into one file."""

    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        """Return what follows the command's name."""
        return "[options] -o FILE"

    def short_desc(self) -> str:
        """Return the line that ``scrapy`` lists."""
        return "Export the entries that any run found, or the sources as OPML"

    def long_desc(self) -> str:
        """Return the text of ``--help``."""
        return (
            "Writes every entry in the state as the run that found it exported it, the first seen "
            "first. The ending of FILE chooses the format: .jsonl (or .jl), .json, .csv, .xml or "
            ".sqlite (or .db), a database with sources and entries as Datasette opens it; with "
            ".opml the declared sources are written instead. The file is written whole or "
            "not at all. Exit status: 0, 1 if it cannot be done, 2 for a wrong call. "
            "Examples: scrapy export -o entries.jsonl. "
            "scrapy export -O week.csv --since P7D. scrapy export -o - --kind llms | jq .url"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add what this command takes."""
        super().add_options(parser)
        parser.add_argument(
            "-o", "--output", metavar="FILE", help="a new file, or - for standard output"
        )
        parser.add_argument(
            "-O",
            "--overwrite-output",
            metavar="FILE",
            help="the same, but an existing file is replaced",
        )
        parser.add_argument(
            "--format",
            choices=("jsonl", "json", "csv", "xml", "opml", "sqlite"),
            help="instead of the ending of FILE; jsonl for standard output unless given",
        )
        parser.add_argument(
            "--since",
            metavar="WHEN",
            help="only entries first seen since then: today, yesterday, 1d (a day ago), a date, "
            "an RFC 3339 time",
        )
        parser.add_argument(
            "--source",
            metavar="URL",
            action="append",
            default=[],
            help="only entries of this source (may be repeated)",
        )
        parser.add_argument("--kind", choices=("feed", "llms"), help="only entries of such sources")
        parser.add_argument(
            "--sources", metavar="FILE", help="sources file to use instead of WALSH_SOURCES"
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        """Check the call, write, and print on standard error how much was written."""
        from walsh_scrapy.options import Options
        from walsh_scrapy.tools.export.export import Export
        from walsh_scrapy.tools.export.output import open_output
        from walsh_scrapy.tools.printable import printable

        if args:
            hint = sources_hint(args)
            usage_error(f"export does not take {args[0]}{hint}; see scrapy export --help")
        target = _target(opts)
        format_name, since = _format(target, opts.format), _since(opts.since)
        if format_name == "opml" and since is not None:
            usage_error("--since selects entries, but an OPML file lists sources; drop one")
        with clean_exit():
            settings = self.settings or Settings()
            options = Options.from_settings(settings)
            export = Export(
                settings=settings,
                state_url=options.state_url,
                sources_file=opts.sources or options.sources,
                urls=opts.source,
                kind=opts.kind,
                since=since,
            )
            with open_output(target, replace=opts.output is None) as file:
                count = export.write(file, format_name, progress=_shows_progress(target))
        nouns = ("source", "sources") if format_name == "opml" else ("entry", "entries")
        where = "standard output" if target == "-" else printable(target)
        print(f"{counted(count, *nouns)} written to {where}", file=sys.stderr)


def _target(opts: argparse.Namespace) -> str:
    given = [name for name in (opts.output, opts.overwrite_output) if name]
    if len(given) != 1:
        usage_error("give one file: -o FILE, or -O FILE to replace it; `-o -` is standard output")
    return str(given[0])


def _format(target: str, chosen: str | None) -> str:
    from walsh_scrapy.tools.export.entries import FORMATS
    from walsh_scrapy.tools.printable import printable

    ending = Path(target).suffix.lower()
    if chosen is None:
        chosen = "jsonl" if target == "-" else FORMATS.get(ending)
    if chosen is None:
        usage_error(
            f"{printable(target)}: the ending of the file has to be one of {', '.join(FORMATS)}, "
            "unless --format names the format"
        )
    return chosen


def _since(text: str | None) -> float | None:
    from walsh_scrapy.policy.timestamps import parse_since

    try:
        return None if text is None else parse_since(text, time.time())
    except ValueError as error:
        usage_error(f"--since: {error}")


def _shows_progress(target: str) -> bool:
    """Return True if standard error is a terminal, and the export does not go there too."""
    return sys.stderr.isatty() and not (target == "-" and sys.stdout.isatty())
