"""The pauses that the sources file asks for: a host gets the longest of its sources (R4)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from walsh_scrapy.runtime.context import Context
from walsh_scrapy.runtime.requestmeta import source_of
from walsh_scrapy.sources import host_pauses, with_pauses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scrapy import Request
    from scrapy.crawler import Crawler

    from walsh_scrapy.sources import Source


class Pauses:
    """What the sources of a crawl add to the spacing of hosts, in seconds (decision 31)."""

    def __init__(self, crawler: Crawler) -> None:
        self._context = Context.of(crawler)
        self._by_host = host_pauses(_declared.get(crawler, ()), self._context.host)

    @classmethod
    def of(cls, crawler: Crawler) -> Pauses:
        """Return those of a crawl whose spider was made."""
        return Context.of(crawler).part(cls, lambda: cls(crawler))

    @staticmethod
    def declare(crawler: Crawler, sources: Sequence[Source]) -> None:
        """Name all sources of the file, whichever of them the spider of a crawl visits."""
        _declared[crawler] = sources

    def before(self, request: Request) -> float:
        """Return the least spacing before and after a request.

        That of its source counts at another host too, where a source moved or redirects to.
        """
        source = source_of(request)
        own = source.pause.total_seconds() if source and source.pause else 0.0
        return max(own, self._by_host.get(self._context.host(request.url), 0.0))

    @property
    def intervals(self) -> Mapping[str, float]:
        """The spacing of each host that is known to be longer than ``WALSH_MIN_INTERVAL``."""
        return with_pauses(self._context.intervals, self._by_host)


_declared: WeakKeyDictionary[Crawler, Sequence[Source]] = WeakKeyDictionary()
