"""R6: redirects of a declared target are followed, each hop through all gates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirectMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.spidermiddlewares.referer import RefererMiddleware

from walsh_scrapy.crawl.messages import set_conditions
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.startup import Kind
from walsh_scrapy.crawl.ticket import (
    Hop,
    carry_ticket,
    hops_of,
    note,
    rank_of,
    set_visit,
    visit_of,
)
from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.urls import resolve_reference

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings


class RedirectMiddleware(ScrapyRedirectMiddleware):
    """Scrapy's RedirectMiddleware (order 600). In a declared crawl it refuses loops.

    It then sends no Referer either.

    Each hop passes the scheduler and every gate again, as any other request does, and gets the
    download slot of its own host.
    """

    def __init__(self, settings: BaseSettings, crawl: Crawl) -> None:
        super().__init__(settings)
        self._crawl = crawl  # `context` opens the state, which only visits of sources need

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the middleware.

        Scrapy's version searches for a RefererMiddleware, to set the Referer of a hop.
        """
        middleware = cls(crawler.settings, Crawl.of(crawler))
        middleware.crawler = crawler
        return middleware

    def process_response(self, request: Request, response: Response) -> Request | Response:  # type: ignore[override]
        """Return the request for the next hop, with the URL that browsers would request.

        A redirect without a usable Location is returned like any other response. Raises BadAnswer
        for a loop in a declared crawl, and after more than ``REDIRECT_MAX_TIMES`` redirects.
        """
        location = response.headers.get("Location")
        target = None if location is None else resolve_reference(request.url, location)
        if target is None:
            return response
        response.headers["Location"] = target
        hops = hops_of(request)
        # Scrapy reads the hops from `meta`, where a spider may have written anything.
        request.meta["redirect_times"] = len(hops)
        request.meta["redirect_urls"] = [hop.url for hop in hops]
        request.meta["redirect_reasons"] = [hop.status for hop in hops]
        try:
            answer = super().process_response(request, response)
        except IgnoreRequest as error:
            reason = f"redirected more than {self.max_redirect_times} times, at last to {target}"
            raise BadAnswer(response, reason) from error
        if isinstance(answer, Request):
            is_declared = self._crawl.kind is Kind.DECLARED
            # A POST may redirect to a GET of the same URL, which is another request and no loop.
            has_same_method = answer.method == request.method
            if is_declared and has_same_method and answer.url in answer.meta["redirect_urls"]:
                raise BadAnswer(
                    response, f"redirected in a loop: {request.url} leads back to {target}"
                )
            carry_ticket(request, answer)
            note(answer, hops=(*hops, Hop(request.url, response.status)), released=False)
            if rank_of(request) is not Rank.TARGET:
                set_conditions(answer)
            if visit := visit_of(request):
                set_visit(answer, visit.redirected(response, self._crawl.context.clock.now()))
        return answer

    def handle_referer(self, request: Request, response: Response) -> None:
        """Remove the download slot of the previous host, and in a declared crawl the Referer."""
        request.headers.pop("Referer", None)
        request.meta.pop("download_slot", None)
        if self._crawl.kind is Kind.OWN:
            referer = self.crawler.get_spider_middleware(RefererMiddleware)
            if referer is not None:
                referer.get_processed_request(request, response)
