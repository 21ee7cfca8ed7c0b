"""Asks every gate about URLs without fetching them: what ``scrapy mayfetch`` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scrapy import Request
from scrapy.exceptions import IgnoreRequest

from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.urls import wire_url
from walsh_scrapy.runtime.marks import rank_of
from walsh_scrapy.sources import Source
from walsh_scrapy.spider import DeclaringSpider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from scrapy.settings import BaseSettings
    from twisted.python.failure import Failure

#: A question is no run: exports, pipelines and job of the project it is asked in stay as they are.
NO_OUTPUT: Final[dict[str, Any]] = {"FEEDS": {}, "ITEM_PIPELINES": {}, "JOBDIR": None}


class AskedMiddleware:
    """Ends a target once blocklist and robots.txt have answered (after 100, before the rest)."""

    async def process_request(self, request: Request) -> None:
        """Let only through what the gates themselves have to read."""
        if rank_of(request) is Rank.TARGET:
            raise IgnoreRequest("asked, not fetched")


class AskingSpider(DeclaringSpider):
    """Sends URLs to the gates; what they read for it is in the state afterwards.

    The URLs stand where a crawl has its declared targets, but nothing of them is fetched.
    """

    name = "asking"
    custom_settings = NO_OUTPUT

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Add the end of all targets to the middlewares that the project has."""
        super().update_settings(settings)
        settings.set_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", AskedMiddleware, 110)

    def __init__(self, urls: Iterable[str] = (), **arguments: Any) -> None:  # noqa: ANN401
        super().__init__(**arguments)
        self.sources = tuple(Source(Request(wire_url(url)).url) for url in urls)

    async def start(self) -> AsyncIterator[Any]:
        """Give each URL to the gates."""
        for source in self.sources:
            yield Request(source.url, errback=self._answered, dont_filter=True)

    def _answered(self, failure: Failure) -> None:
        """Leave the answer to the state."""
