"""The options of ``scrapy export``, and which entries and sources they choose."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from walsh_scrapy.options import Options
from walsh_scrapy.policy.timestamps import rfc3339
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.sources import Source, load_sources
from walsh_scrapy.state.entries import EntryFilter
from walsh_scrapy.state.sourcerecord import SourceRecord
from walsh_scrapy.tools.export.atom import failures, newest, write_atom
from walsh_scrapy.tools.export.entries import ExportedEntry, export_entries
from walsh_scrapy.tools.export.opml import export_sources
from walsh_scrapy.tools.export.sqlite import export_sqlite
from walsh_scrapy.tools.sources.changes import UnknownSource, find_sources
from walsh_scrapy.tools.sources.overview import build_overview
from walsh_scrapy.tools.troubles import find_troubles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from scrapy.settings import BaseSettings

    from walsh_scrapy.state import State
    from walsh_scrapy.state.entries import StoredEntry
    from walsh_scrapy.tools.export.atom import AtomEntry

#: The format for each ending of a file name; "opml" lists sources, the others hold entries, and
#: "sqlite" both. "atom" has the newest of them, or sources in trouble.
FORMATS: Final = {
    ".jsonl": "jsonl",
    ".jl": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".xml": "xml",
    ".opml": "opml",
    ".atom": "atom",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
}


@dataclass(frozen=True, kw_only=True)
class Export:
    """The options of a call of ``scrapy export``, and what it does with them.

    Its methods raise StateError, SourcesError, and UnknownSource for a URL that is not a source.
    """

    settings: BaseSettings
    sources_file: str
    urls: Sequence[str] = ()  #: only of these sources; empty: of all
    kind: str | None = None  #: only of sources of this kind; None: of all
    since: float | None = None  #: only entries first seen at this epoch second or later
    published_since: float | None = None  #: only entries dated this epoch second or later
    has_backfill: bool = True  #: False leaves out what the first reading of a source had

    def write_entries(self, file: IO[bytes], format_name: str, state: State) -> int:
        """Write the entries, and return how many there were."""
        urls = self._choose_sources(state)
        choice = EntryFilter(
            since=self.since,
            kind=self.kind,
            sources=urls,
            has_backfill=self.has_backfill and format_name != "atom",
        )
        with state.entries.snapshot() as entries:
            named = dict[str, str]()
            is_feed = format_name == "atom"
            chosen = self._exported(entries.matching(choice, newest_first=is_feed), named)
            if is_feed:
                return self._write_atom("new", newest(chosen), file)
            if format_name == "sqlite":
                return export_sqlite(chosen, self._records(state, named, urls), file)
            return export_entries(chosen, file, format_name, self.settings)

    def write_failures(self, file: IO[bytes], state: State) -> int:
        """Write the sources that are gone, failing, refused or denied as Atom."""
        urls = set(map(canonical_url, self._choose_sources(state)))
        found = build_overview(load_sources(self.sources_file), state, self._options, time.time())
        rows = (
            row
            for row in found.declared
            if row.is_in_trouble
            and (not urls or canonical_url(row.record.url) in urls)
            and self.kind in (None, row.kind)
        )
        return self._write_atom("in trouble", failures(find_troubles(rows)), file)

    def _write_atom(self, what: str, entries: Sequence[AtomEntry], file: IO[bytes]) -> int:
        """Write a feed of what is ``what``; its id is the same for the same bot and options."""
        token = self._options.ua_token
        name = " ".join((token, what, self.kind or "", *sorted(self.urls)))
        return write_atom(entries, file, title=f"{token}: {what}", name=name, author=token)

    @cached_property
    def _options(self) -> Options:
        return Options.from_settings(self.settings)

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

    def _exported(
        self, found: Iterable[StoredEntry], named: dict[str, str]
    ) -> Iterator[ExportedEntry]:
        """Yield the entries with their sources, those of the wanted dates.

        ``named`` gets the sources that they name, with their kinds.
        """
        least = rfc3339(self.published_since)
        sources: dict[str, Source | None] = {}
        for stored in found:
            url = stored.source
            if url not in sources:
                sources[url] = self._declared.get(canonical_url(url))
            entry = ExportedEntry.of(stored, sources[url])
            if least is None or (entry.item.published or entry.item.updated or "") >= least:
                named[url] = entry.item.kind
                yield entry

    @cached_property
    def _declared(self) -> dict[str, Source]:
        """The declared sources by canonical URL; none without a sources file."""
        sources = load_sources(self.sources_file) if Path(self.sources_file).exists() else ()
        return {canonical_url(source.url): source for source in sources}

    def _records(
        self, state: State, named: Mapping[str, str], urls: Collection[str]
    ) -> Iterator[tuple[SourceRecord, Source | None]]:
        """Yield what is known of the sources that entries name and of those that are chosen.

        Each comes with its declaration. Of one that was forgotten only its entries are known.
        """
        unknown = dict(named)
        for record in state.sources.all():
            unknown.pop(record.url, None)
            is_chosen = (not urls or record.url in urls) and self.kind in (None, record.kind)
            if is_chosen or record.url in named:
                yield record, self._declared.get(canonical_url(record.url))
        for url, kind in unknown.items():
            yield SourceRecord(url=url, kind=kind), self._declared.get(canonical_url(url))

    def _choose_sources(self, state: State) -> tuple[str, ...]:
        """Return the sources that the URLs mean; a declared one may have no visit yet."""
        known = state.sources.urls()
        try:
            return tuple(each for url in self.urls for each in find_sources(url, known))
        except UnknownSource:
            known |= dict.fromkeys(source.url for source in load_sources(self.sources_file))
            return tuple(each for url in self.urls for each in find_sources(url, known))
