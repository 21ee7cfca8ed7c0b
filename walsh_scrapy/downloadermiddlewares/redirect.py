"""R6: a redirect of a declared target is part of it, and carries nothing from hop to hop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirectMiddleware

from walsh_scrapy import meta
from walsh_scrapy.crawl import Crawl
from walsh_scrapy.floors import check_floor, in_force
from walsh_scrapy.options import BadSetting
from walsh_scrapy.passing import go_on
from walsh_scrapy.policy.urls import followed

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings


class RedirectMiddleware(ScrapyRedirectMiddleware):
    """Scrapy's own, without a Referer, and with each hop in its own host's slot (order 600).

    A hop goes through the scheduler and every gate again, as any request does (ruling 16).
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware without Scrapy's search for one that would set the Referer."""
        check_floor(crawler, _floor)
        middleware = cls(crawler.settings)
        middleware.crawler = crawler
        return middleware

    def process_response(self, request: Request, response: Response) -> Request | Response:  # type: ignore[override]
        """Follow a redirect to its address in the spelling in which all are asked for."""
        location = response.headers.get("Location")
        if location is not None and (target := followed(request.url, location)):
            response.headers["Location"] = target
        answer = super().process_response(request, response)
        if isinstance(answer, Request) and meta.source(request) is not None:
            go_on(answer, request, response, Crawl.now())
        return answer

    def handle_referer(self, request: Request, response: Response) -> None:  # noqa: ARG002
        """Leave the Referer out, and the slot of the host that redirected."""
        request.headers.pop("Referer", None)
        request.meta.pop("download_slot", None)


def _floor(settings: BaseSettings) -> None:
    found = (place.kind for place in in_force(settings, ScrapyRedirectMiddleware))
    for other in found:
        if not issubclass(other, RedirectMiddleware):
            raise BadSetting(
                f"DOWNLOADER_MIDDLEWARES has {other.__name__} beside walsh-scrapy's own, but has "
                f'to have one that follows redirects: set "{other.__module__}.{other.__name__}" '
                "to None"
            )
