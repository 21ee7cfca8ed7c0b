"""R6: redirects of a declared target are followed; no header is carried from hop to hop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirectMiddleware
from scrapy.exceptions import IgnoreRequest

from walsh_scrapy.crawl.crawl import Crawl
from walsh_scrapy.crawl.lifetimes import lifetime_of
from walsh_scrapy.crawl.ticket import Hop, carry_ticket, hops_of, note, set_visit, visit_of
from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.policy.urls import resolve_reference

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings


class RedirectMiddleware(ScrapyRedirectMiddleware):
    """Scrapy's, without a Referer, and with the download slot of each hop's host (order 600).

    A hop goes through the scheduler and every middleware again, as any request does (decision 16).
    """

    def __init__(self, settings: BaseSettings, crawl: Crawl) -> None:
        super().__init__(settings)
        self._crawl = crawl  # a redirect that is part of no visit needs no state

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware without Scrapy's search for one that would set the Referer."""
        middleware = cls(crawler.settings, Crawl.of(crawler))
        middleware.crawler = crawler
        return middleware

    def process_response(self, request: Request, response: Response) -> Request | Response:  # type: ignore[override]
        """Follow a redirect to the URL that browsers would request.

        A redirect without a usable Location is an ordinary response. Raises BadAnswer for a loop,
        and after too many redirects.
        """
        location = response.headers.get("Location")
        target = None if location is None else resolve_reference(request.url, location)
        if target is None:
            return response
        response.headers["Location"] = target
        hops = hops_of(request)
        # Scrapy counts and lists the hops in `meta`, where anybody may have written them.
        request.meta["redirect_times"] = len(hops)
        request.meta["redirect_urls"] = [hop.url for hop in hops]
        request.meta["redirect_reasons"] = [hop.status for hop in hops]
        try:
            answer = super().process_response(request, response)
        except IgnoreRequest as error:
            reason = f"redirected more than {self.max_redirect_times} times, at last to {target}"
            raise BadAnswer(response, reason) from error
        if isinstance(answer, Request):
            # A POST may redirect to a GET of the same URL, which is another request and no loop.
            is_same = answer.method == request.method
            if is_same and answer.url in answer.meta["redirect_urls"]:
                reason = f"redirected in a loop: {request.url} leads back to {target}"
                raise BadAnswer(response, reason)
            carry_ticket(request, answer)
            note(answer, hops=(*hops, Hop(request.url, response.status)), released=False)
            visit = visit_of(request)
            if visit and visit.source:
                now = self._crawl.context.clock.now()
                set_visit(answer, visit.passed(lifetime_of(response, now), response.status))
        return answer

    def handle_referer(self, request: Request, response: Response) -> None:  # noqa: ARG002
        """Remove the Referer, and the download slot of the host that redirected."""
        request.headers.pop("Referer", None)
        request.meta.pop("download_slot", None)
