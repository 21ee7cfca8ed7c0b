"""What ``scrapy sources forget`` and ``resume`` do to the state, and say of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from walsh_scrapy.policy.durations import format_moment
from walsh_scrapy.report.knownurls import UnknownSource, meant
from walsh_scrapy.report.printable import printable
from walsh_scrapy.sources import load_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from walsh_scrapy.state import State


class Changes:
    """Changes what is known of sources; each method yields a line for every source it met.

    A URL may be spelled as it is declared or canonically. Raises UnknownSource for one that is
    neither in the state nor declared in ``file``, which is read only then.
    """

    def __init__(self, state: State | None, file: str) -> None:
        self._state = state
        self._file = file

    def forget(self, url: str) -> Iterator[str]:
        """Take back what is known of a source, but its entries."""
        for each in self._meant(url):
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
                yield f"{printable(each)} is due now, with no failure counted"
                continue
            record = self._state.sources.find(each) if self._state else None
            when = format_moment(record.due_at) if record and record.due_at > 0 else "now"
            yield f"{printable(each)} is neither gone nor failing: it is due {when}, as before"

    def _meant(self, url: str) -> list[str]:
        try:
            return meant(url, self._known)
        except UnknownSource:
            return meant(url, {**self._known, **self._declared})

    @cached_property
    def _known(self) -> dict[str, None]:
        return dict.fromkeys(self._state.sources.due_times() if self._state else ())

    @cached_property
    def _declared(self) -> dict[str, None]:
        return dict.fromkeys(source.url for source in load_sources(self._file))
