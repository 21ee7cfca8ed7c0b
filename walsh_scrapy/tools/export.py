"""``scrapy export``: entries and sources of the state, in the formats of others (decision 18).

Writes every entry in the state as the run that found it exported it, the first seen first. The
ending of FILE chooses the format: .jsonl (or .jl), .json or .csv; with .opml the declared sources
are written instead, and .atom is a feed of the newest 500 entries. The file is written whole or not
at all. Exit status: 0, 1 if it cannot be done, 2 for a wrong call. Examples: scrapy export -o
entries.jsonl. scrapy export -O week.csv --since P7D. scrapy export -o - | jq -r .url
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

from scrapy.utils.conf import feed_complete_default_values_from_settings
from scrapy.utils.misc import load_object

from walsh_scrapy.items import EntryItem
from walsh_scrapy.options import Options
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.policy.wording import count_of
from walsh_scrapy.sources.loading import load_sources
from walsh_scrapy.state import StateError
from walsh_scrapy.tools.call import WrongCall, add_since, add_sources
from walsh_scrapy.tools.feeds import write_atom, write_opml
from walsh_scrapy.tools.files import Output, add_output
from walsh_scrapy.tools.sources.changes import UnknownSource, find_sources

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from scrapy.settings import BaseSettings

    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.state.entries import StoredEntry
    from walsh_scrapy.tools.call import Call

#: The format for each ending of a file name; "opml" lists sources, the others hold entries, and
#: "atom" the newest of them.
FORMATS: Final = {
    **{f".{name}": name for name in ("jsonl", "json", "csv", "opml", "atom")},
    ".jl": "jsonl",
}
_OF_ITEM: Final = frozenset(each.name for each in fields(EntryItem))

USAGE = "[options] -o FILE"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_output(parser)
    add_since(parser, "only entries first seen since then")
    add_sources(parser)
    parser.add_argument(
        "--format",
        choices=tuple(dict.fromkeys(FORMATS.values())),
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
    given, output = call.arguments, Output.of(call)
    is_piped = output.target == "-"
    ending = ".jsonl" if is_piped else Path(output.target).suffix.lower()
    format_name = given.format or FORMATS.get(ending)
    if format_name is None:
        raise WrongCall(
            f"{output.target}: the ending of the file has to be one of {', '.join(FORMATS)}, "
            "unless --format names the format"
        )
    export = Export(
        settings=call.settings,
        sources_file=call.sources_file,
        urls=given.source,
        since=given.since or 0.0,
        has_backfill=not given.no_backfill,
    )
    if format_name == "opml":
        if given.since is not None or given.no_backfill:
            option = "no-backfill" if given.since is None else "since"
            told = f"--{option} selects entries, but an OPML file lists sources; drop one"
            raise WrongCall(told)
        with output.open() as file, call.state_if_any() as known:
            count = count_of(export.write_sources(file, known), "source")
    else:
        with output.open() as file, call.state() as state:
            written = export.write_entries(file, format_name, state)
            count = count_of(written, "entry", "entries")
    output.say(count)
    return 0


class ExportedEntry(NamedTuple):
    """One entry of the state, with its source as it is declared now."""

    stored: StoredEntry
    item: EntryItem
    source: Source | None

    def to_dict(self) -> dict[str, Any]:
        """Return the columns of every export: those of a run, and what only the state can say."""
        source = self.source
        return self.item.to_dict() | {
            "source_name": source.name if source else None,
            "source_tags": list(source.tags) if source else [],
            "source_folder": "/".join(source.folders) or None if source else None,
            "backfill": self.stored.is_backfill,
            "also_in": list(self.stored.also_in),
        }


def item_of(entry: StoredEntry) -> EntryItem:
    """Return the item of a stored entry. Raises StateError if it cannot be read.

    Its source is written as the state has it now, so that one source has one URL: it may have been
    rewritten after a move since the entry was found.
    """
    try:
        values: dict[str, Any] = json.loads(entry.item) | {"source": entry.source}
        return EntryItem(**{name: values[name] for name in values if name in _OF_ITEM})
    except (ValueError, TypeError) as error:
        raise StateError(
            f"the entry {entry.key} in the state cannot be read ({error}); put a backup in the "
            "state's place, or remove this entry"
        ) from error


@dataclass(frozen=True, kw_only=True)
class Export:
    """What is exported.

    Its methods raise StateError, SourcesError, and UnknownSource for a URL that is not a source.
    """

    settings: BaseSettings
    sources_file: str
    urls: Sequence[str] = ()  #: only of these sources; empty: of all
    since: float = 0.0  #: only entries first seen at this epoch second or later
    has_backfill: bool = True  #: False leaves out what the first reading of a source had

    def write_entries(self, file: IO[bytes], format_name: str, state: State) -> int:
        """Write the entries, and return how many there were.

        `FEED_EXPORTERS` and the `FEED_EXPORT_` settings apply as in a run.
        """
        urls = self._choose_sources(state)
        is_feed = format_name == "atom"
        source_of = cache(lambda url: self._declared.get(canonical_url(url)))
        with state.entries.snapshot() as entries:
            found = (
                ExportedEntry(stored, item_of(stored), source_of(stored.source))
                for stored in entries.matching(
                    since=self.since,
                    sources=urls,
                    has_backfill=self.has_backfill and not is_feed,
                    newest_first=is_feed,
                )
            )
            if is_feed:
                token = Options.from_settings(self.settings).ua_token
                name = " ".join((token, *sorted(self.urls)))
                return write_atom(found, file, name=name, author=token)
            options = feed_complete_default_values_from_settings({}, self.settings)
            exporter = load_object(self.settings.getwithbase("FEED_EXPORTERS")[format_name])(
                file,
                fields_to_export=options["fields"],
                encoding=options["encoding"],
                indent=options["indent"],
            )
            exporter.start_exporting()
            count = 0
            for count, entry in enumerate(found, start=1):  # noqa: B007 - how many there were
                exporter.export_item(entry.to_dict())
            exporter.finish_exporting()
            return count

    def write_sources(self, file: IO[bytes], state: State | None) -> int:
        """Write the declared sources as OPML, and return how many there were."""
        sources = load_sources(self.sources_file)
        known = dict.fromkeys(source.url for source in sources)
        wanted = {each for url in self.urls for each in find_sources(url, known)} or known.keys()
        chosen = [source for source in sources if source.url in wanted]
        if state is None:
            return write_opml(chosen, file, lambda _url: None)
        with state.entries.snapshot() as entries:

            def title_of(url: str) -> str | None:
                found = entries.newest(url)
                return item_of(found).source_title if found else None

            return write_opml(chosen, file, title_of)

    @cached_property
    def _declared(self) -> dict[str, Source]:
        """The declared sources by canonical URL; none without a sources file."""
        sources = load_sources(self.sources_file) if Path(self.sources_file).exists() else ()
        return {canonical_url(source.url): source for source in sources}

    def _choose_sources(self, state: State) -> tuple[str, ...]:
        """Return the sources that the URLs mean; a declared one may have no visit yet."""
        known = state.sources.urls()
        try:
            return tuple(each for url in self.urls for each in find_sources(url, known))
        except UnknownSource:
            known |= dict.fromkeys(source.url for source in load_sources(self.sources_file))
            return tuple(each for url in self.urls for each in find_sources(url, known))
