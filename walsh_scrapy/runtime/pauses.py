"""The pauses that the sources file asks for: a host gets the longest of its sources (R4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.runtime.requestmeta import source_of
from walsh_scrapy.sources import host_pauses, with_pauses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scrapy import Request

    from walsh_scrapy.runtime.context import Context
    from walsh_scrapy.sources import Source


class Pauses:
    """What the sources of a crawl add to the spacing of hosts, in seconds (decision 31).

    ``sources`` are all of the file, whichever of them the spider visits.
    """

    def __init__(self, context: Context, sources: Sequence[Source]) -> None:
        self._context = context
        self._by_host = host_pauses(sources, context.host)

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
