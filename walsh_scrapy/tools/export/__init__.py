"""``scrapy export``: entries and sources of the state, in the formats of others (decision 18).

Writes every entry in the state as the run that found it exported it, the first seen first. The
ending of FILE chooses the format: .jsonl (or .jl), .json or .csv; with .opml the declared sources
are written instead, and .atom is a feed of the newest 500 entries. The file is written whole or not
at all. Exit status: 0, 1 if it cannot be done, 2 for a wrong call. Examples: scrapy export -o
entries.jsonl. scrapy export -O week.csv --since P7D. scrapy export -o - | jq -r .url
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.tools.call import WrongCall, add_since, add_sources
from walsh_scrapy.tools.files import Output, add_output

if TYPE_CHECKING:
    import argparse

    from walsh_scrapy.tools.call import Call

USAGE = "[options] -o FILE"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_output(parser)
    add_since(parser, "only entries first seen since then")
    add_sources(parser)
    parser.add_argument(
        "--format",
        choices=("jsonl", "json", "csv", "opml", "atom"),
        help="instead of the ending of FILE; jsonl for standard output unless given",
    )
    parser.add_argument(
        "--source",
        metavar="URL",
        action="append",
        default=[],
        help="only entries of this source (may be repeated)",
    )
    parser.add_argument(
        "--no-backfill",
        action="store_true",
        help="without what was there when its source was read for the first time",
    )


def run(call: Call) -> int:
    """Write, and print on standard error how much was written."""
    from walsh_scrapy.tools.export.export import Export

    given, output = call.arguments, Output.of(call)
    format_name = _format(output.target, given.format)
    is_opml = format_name == "opml"
    for name in ("since", "no_backfill") if is_opml else ():
        if getattr(given, name) not in (None, False):
            option = name.replace("_", "-")
            told = f"--{option} selects entries, but an OPML file lists sources; drop one"
            raise WrongCall(told)
    export = Export(
        settings=call.settings,
        sources_file=call.sources_file,
        urls=given.source,
        since=given.since,
        has_backfill=not given.no_backfill,
    )
    if is_opml:
        with output.open() as file, call.state_if_any() as known:
            count = count_of(export.write_sources(file, known), "source")
    else:
        with output.open() as file, call.state() as state:
            written = export.write_entries(file, format_name, state)
            count = count_of(written, "entry", "entries")
    output.say(count)
    return 0


def _format(target: str, chosen: str | None) -> str:
    from walsh_scrapy.tools.export.export import FORMATS

    found = chosen or ("jsonl" if target == "-" else FORMATS.get(Path(target).suffix.lower()))
    if found is None:
        raise WrongCall(
            f"{target}: the ending of the file has to be one of {', '.join(FORMATS)}, "
            "unless --format names the format"
        )
    return found
