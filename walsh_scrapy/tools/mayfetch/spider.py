"""The spider of ``scrapy mayfetch``: it sends URLs through the gates, but does not fetch them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy import Request
from scrapy.exceptions import IgnoreRequest

from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.urls import wire_url
from walsh_scrapy.runtime.requests import rank_of
from walsh_scrapy.sources import Source
from walsh_scrapy.spider import DeclaringSpider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from scrapy.settings import BaseSettings
    from twisted.python.failure import Failure

#: Settings of a run that is no crawl: it leaves the project's exports, pipelines and job alone.
NO_OUTPUT: Final[dict[str, Any]] = {
    "FEEDS": {},
    "ITEM_PIPELINES": {},
    "JOBDIR": None,
    "HTTPCACHE_ENABLED": False,  # the answer is about what a site says now
}


class StopBeforeFetch:
    """A downloader middleware, right after robots.txt (100), that stops every target."""

    async def process_request(self, request: Request) -> None:
        """Raise IgnoreRequest unless the request is one that a gate makes for itself."""
        if rank_of(request) is Rank.TARGET:
            raise IgnoreRequest("it has passed the gates, and is not fetched")


class MayfetchSpider(DeclaringSpider):
    """Sends each URL through blocklist and robots.txt, so that the state has what they need.

    ``sources`` makes the scope gate take the URLs for declared targets.
    """

    name = "mayfetch"
    custom_settings = NO_OUTPUT

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Add ``StopBeforeFetch`` to the middlewares of the project."""
        super().update_settings(settings)
        settings.set_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", StopBeforeFetch, 110)

    def __init__(self, urls: Iterable[str] = (), **arguments: Any) -> None:  # noqa: ANN401
        super().__init__(**arguments)
        self.sources = tuple(Source(Request(wire_url(url)).url) for url in urls)

    async def start(self) -> AsyncIterator[Any]:
        """Request each URL."""
        for source in self.sources:
            yield Request(source.url, errback=self._stopped, dont_filter=True)

    def _stopped(self, failure: Failure) -> None:
        """Do nothing: the answers are read from the state when the spider has closed."""
