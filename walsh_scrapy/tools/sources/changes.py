"""What ``scrapy sources forget`` and ``resume`` do to the state, and say of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from walsh_scrapy.policy.timestamps import format_moment
from walsh_scrapy.policy.urls import canonical_url
from walsh_scrapy.sources import Source, declared_urls, load_sources
from walsh_scrapy.tools.printable import printable
from walsh_scrapy.tools.sources.known import UnknownSource, meant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.state import State


class Changes:
    """Changes what is known of sources; each method yields a line for every source it met.

    A URL may be spelled as it is declared or canonically. Raises UnknownSource for one that is
    neither in the state nor declared in ``file``, which is read only where that matters.
    ``min_revisit`` are seconds.
    """

    def __init__(self, state: State | None, file: str, min_revisit: float) -> None:
        self._state = state
        self._file = file
        self._min_revisit = min_revisit

    def forget(self, url: str) -> Iterator[str]:
        """Take back what is known of a source, but its entries."""
        for each in self._meant(url):
            self._forget_index(each)
            stays = self._state.sources.forget(each) if self._state else None
            if stays is None:
                yield f"{printable(each)} was never visited: there is nothing to forget"
                continue
            kept = f"; the entries it gave ({stays}) stay known" if stays else ""
            yield f"{printable(each)} is forgotten: its next visit is its first{kept}"

    def resume(self, url: str) -> Iterator[str]:
        """Make a source due that is gone or failing."""
        for each in self._meant(url):
            if self._state and self._state.sources.resume(each):
                self._forget_index(each)
                yield f"{printable(each)} is due now, with no failure counted"
                continue
            yield f"{printable(each)} is neither gone nor failing: it is due {self._due(each)}"

    def _due(self, url: str) -> str:
        record = self._state.sources.find(url) if self._state else None
        if record is None or record.fetched_at is None or record.due_at <= 0.0:
            return "now, as before"
        source = self._declared.get(canonical_url(url))
        least = source.revisit_interval(self._min_revisit) if source else self._min_revisit
        return f"{format_moment(record.due(least, record.fetched_at).at)}, as before"

    def _forget_index(self, url: str) -> None:
        """Let the next visit ask for the llms.txt as well, here or where the source moved to.

        The source may be an llms.txt itself.
        """
        record = self._state.sources.find(url) if self._state else None
        if self._state and record and record.kind == "llms":
            for address in {url, record.address}:
                for index in declared_urls(Source(address, "llms")):
                    self._state.llmstxt.forget(index)

    def _meant(self, url: str) -> list[str]:
        try:
            return meant(url, self._known)
        except UnknownSource:
            declared = (source.url for source in self._declared.values())
            return meant(url, {**self._known, **dict.fromkeys(declared)})

    @cached_property
    def _known(self) -> dict[str, None]:
        return self._state.sources.urls() if self._state else {}

    @cached_property
    def _declared(self) -> dict[str, Source]:
        return {canonical_url(source.url): source for source in load_sources(self._file)}
