"""The targets of a spider: which source declares a URL (R6, decision 16)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from walsh_scrapy.sources import declared_urls
from walsh_scrapy.state.declared import DeclaredSources

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from walsh_scrapy.sources import Source


class Targets:
    """The URLs that sources declare.

    Those of a sources file are looked up in the state, those that a spider set itself in memory.
    """

    def __init__(self, sources: Collection[Source]) -> None:
        self._sources = sources

    def owner(self, url: str) -> Source | None:
        """Return the source that declares a URL, or None."""
        if isinstance(self._sources, DeclaredSources):
            return self._sources.owner(url)
        return self._by_url.get(url)

    def declares(self, url: str, source: Source | None) -> bool:
        """Return True for a URL that is declared, probably by ``source``."""
        if source and self.owner(source.url) and url in declared_urls(source):
            return True
        return self.owner(url) is not None

    @cached_property
    def _by_url(self) -> Mapping[str, Source]:
        return {url: source for source in self._sources for url in declared_urls(source)}
