"""R6: a redirect of a declared target is part of it, and carries nothing from hop to hop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirectMiddleware
from scrapy.exceptions import IgnoreRequest

from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.options import BadSetting
from walsh_scrapy.policy.references import resolve_reference
from walsh_scrapy.runtime import meta
from walsh_scrapy.runtime.context import Crawl
from walsh_scrapy.runtime.startup import check_floor, in_force
from walsh_scrapy.visits.lifetimes import go_on

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings


class RedirectMiddleware(ScrapyRedirectMiddleware):
    """Scrapy's own, without a Referer, and with each hop in its own host's slot (order 600).

    A hop goes through the scheduler and every gate again, as any request does (decision 16).
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware without Scrapy's search for one that would set the Referer."""
        check_floor(crawler, _floor)
        middleware = cls(crawler.settings)
        middleware.crawler = crawler
        return middleware

    def process_response(self, request: Request, response: Response) -> Request | Response:  # type: ignore[override]
        """Follow a redirect to its address in the spelling in which all are asked for.

        One that leads nowhere is an answer as any other. Raises BadAnswer for one that has been
        followed before in this visit, since it would be again, or after too many.
        """
        location = response.headers.get("Location")
        target = None if location is None else resolve_reference(request.url, location)
        if target is None:
            return response
        response.headers["Location"] = target
        try:
            answer = super().process_response(request, response)
        except IgnoreRequest as error:
            reason = f"redirected more than {self.max_redirect_times} times, at last to {target}"
            raise BadAnswer(response, reason) from error
        if isinstance(answer, Request):
            # What a form was sent to may be where its answer is read: that is another request.
            is_same = answer.method == request.method
            if is_same and answer.url in answer.meta["redirect_urls"]:
                reason = f"redirected in a circle: {request.url} leads back to {target}"
                raise BadAnswer(response, reason)
            if meta.source(request) is not None:
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
