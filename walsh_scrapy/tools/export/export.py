"""One export: which entries or sources it takes, and from where (decision 18)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.sources import load_sources
from walsh_scrapy.state.entries import EntryFilter
from walsh_scrapy.tools.export.formats import export_entries, export_sources, export_sqlite
from walsh_scrapy.tools.sources.changes import UnknownSource, find_sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scrapy.settings import BaseSettings

    from walsh_scrapy.sources import Source
    from walsh_scrapy.state import State
    from walsh_scrapy.state.sourcerecord import SourceRecord


@dataclass(frozen=True, kw_only=True)
class Export:
    """The options of a call of ``scrapy export``, and what it does with them.

    Both methods raise StateError, SourcesError, and UnknownSource for a URL that is not a source.
    """

    settings: BaseSettings
    sources_file: str
    urls: Sequence[str] = ()  #: only of these sources; empty: of all
    kind: str | None = None  #: only of sources of this kind; None: of all
    since: float | None = None  #: only entries first seen at this epoch second or later

    def write_entries(self, file: IO[bytes], format_name: str, state: State) -> int:
        """Write the entries, and return how many there were."""
        urls = self._choose_sources(state)
        choice = EntryFilter(since=self.since, kind=self.kind, sources=urls)
        with state.entries.snapshot() as entries:
            chosen = entries.matching(choice)
            if format_name == "sqlite":
                return export_sqlite(chosen, self._records(state, urls), file)
            return export_entries(chosen, file, format_name, self.settings)

    def write_sources(self, file: IO[bytes], state: State | None) -> int:
        """Write the declared sources as OPML, and return how many there were."""
        sources = load_sources(self.sources_file)
        known = dict.fromkeys(source.url for source in sources)
        wanted = {each for url in self.urls for each in find_sources(url, known)} or known.keys()
        chosen = [
            source
            for source in sources
            if source.url in wanted and self.kind in (None, source.kind)
        ]
        if state is None:
            return export_sources(chosen, file, lambda _url: None)
        with state.entries.snapshot() as entries:
            return export_sources(chosen, file, entries.newest)

    def _records(
        self, state: State, urls: Sequence[str]
    ) -> Iterator[tuple[SourceRecord, Source | None]]:
        """Yield what is known of the chosen sources, each with its declaration."""
        sources = load_sources(self.sources_file) if Path(self.sources_file).exists() else ()
        declared = {canonical_url(source.url): source for source in sources}
        for record in state.sources.all():
            if (not urls or record.url in urls) and self.kind in (None, record.kind):
                yield record, declared.get(canonical_url(record.url))

    def _choose_sources(self, state: State) -> tuple[str, ...]:
        """Return the sources that the URLs mean; a declared one may have no visit yet."""
        known = state.sources.urls()
        try:
            return tuple(each for url in self.urls for each in find_sources(url, known))
        except UnknownSource:
            known |= dict.fromkeys(source.url for source in load_sources(self.sources_file))
            return tuple(each for url in self.urls for each in find_sources(url, known))
