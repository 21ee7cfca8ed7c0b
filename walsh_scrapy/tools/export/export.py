"""The options of ``scrapy export``, and which entries and sources they choose."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from walsh_scrapy.options import Options
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.sources.loading import load_sources
from walsh_scrapy.tools.export.atom import write_atom
from walsh_scrapy.tools.export.entries import ExportedEntry, export_entries
from walsh_scrapy.tools.export.opml import export_sources
from walsh_scrapy.tools.sources.changes import UnknownSource, find_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from scrapy.settings import BaseSettings

    from walsh_scrapy.sources.source import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.state.entries import StoredEntry

#: The format for each ending of a file name; "opml" lists sources, the others hold entries, and
#: "atom" the newest of them.
FORMATS: Final = {
    ".jsonl": "jsonl",
    ".jl": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".opml": "opml",
    ".atom": "atom",
}


@dataclass(frozen=True, kw_only=True)
class Export:
    """The options of a call of ``scrapy export``, and what it does with them.

    Its methods raise StateError, SourcesError, and UnknownSource for a URL that is not a source.
    """

    settings: BaseSettings
    sources_file: str
    urls: Sequence[str] = ()  #: only of these sources; empty: of all
    since: float | None = None  #: only entries first seen at this epoch second or later
    has_backfill: bool = True  #: False leaves out what the first reading of a source had

    def write_entries(self, file: IO[bytes], format_name: str, state: State) -> int:
        """Write the entries, and return how many there were."""
        urls = self._choose_sources(state)
        is_feed = format_name == "atom"
        with state.entries.snapshot() as entries:
            found = entries.matching(
                since=self.since or 0.0,
                sources=urls,
                has_backfill=self.has_backfill and not is_feed,
                newest_first=is_feed,
            )
            chosen = self._exported(found)
            if is_feed:
                token = Options.from_settings(self.settings).ua_token
                return write_atom(
                    chosen, file, name=" ".join((token, *sorted(self.urls))), author=token
                )
            return export_entries(chosen, file, format_name, self.settings)

    def write_sources(self, file: IO[bytes], state: State | None) -> int:
        """Write the declared sources as OPML, and return how many there were."""
        sources = load_sources(self.sources_file)
        known = dict.fromkeys(source.url for source in sources)
        wanted = {each for url in self.urls for each in find_sources(url, known)} or known.keys()
        chosen = [source for source in sources if source.url in wanted]
        if state is None:
            return export_sources(chosen, file, lambda _url: None)
        with state.entries.snapshot() as entries:
            return export_sources(chosen, file, entries.newest)

    def _exported(self, found: Iterable[StoredEntry]) -> Iterator[ExportedEntry]:
        """Yield the entries with their sources."""
        sources: dict[str, Source | None] = {}
        for stored in found:
            url = stored.source
            if url not in sources:
                sources[url] = self._declared.get(canonical_url(url))
            yield ExportedEntry.of(stored, sources[url])

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
