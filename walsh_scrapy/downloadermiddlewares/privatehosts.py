"""R6: a redirect of a public host may lead to another public host, and to no private one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.queue import RequestPreparer
from walsh_scrapy.crawl.startup import Gate, in_force
from walsh_scrapy.crawl.ticket import hops_of, note, note_answer, visit_of
from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.urls import host_of, is_private_host, is_public
from walsh_scrapy.wire.unreachable import NotConnected

if TYPE_CHECKING:
    from scrapy import Request

    from walsh_scrapy.crawl.crawl import Crawl


class PrivateHostsMiddleware(Component, RequestPreparer):
    """Denies a hop from a public host to a private one, by its name or by its addresses.

    The step from a page to its feed on another host is a hop too (decision 16).

    An operator may declare hosts of an intranet, but a public host may not redirect there (order
    20, decision 16). A hop that passes here is marked, and so is the request for its robots.txt:
    the download handler connects it only to public addresses, whatever the DNS answers by then. If
    a proxy is used, it looks up the names, so only names are checked here.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._denials = crawl.denials
        self._network = crawl.network
        # It gives no ticket, but writes the hops into `meta`.
        self._has_scrapys_redirects = not in_force(crawl.settings, Gate.REDIRECT)
        crawl.queue.register_preparer(Gate.PRIVATEHOSTS, self)

    async def process_request(self, request: Request) -> None:
        """Check a hop before its host gets any request, even for robots.txt."""
        self._network.check_route(request)
        if reason := await self._reason_against(request):
            raise self._denials.deny(request, "privatehosts", reason)

    async def prepare(self, request: Request) -> None:
        """Raise Denied for a hop that will be denied, so that its host gets no request."""
        if reason := await self._reason_against(request):
            raise Denied("privatehosts", reason)

    async def _reason_against(self, request: Request) -> str | None:
        """Return why a hop is denied, or None."""
        hops = [hop.url for hop in hops_of(request)]
        if self._has_scrapys_redirects:
            hops = request.meta.get("redirect_urls", hops)
        visit = visit_of(request)
        if visit and visit.declared_by:
            hops = [visit.declared_by, *hops]
        if not hops:
            return None
        first, host = host_of(hops[0]), host_of(request.url)
        is_private = is_private_host(first) or self._network.is_private(first)
        note(request, public_only=not is_private)
        if is_private:
            note_answer(request, "privatehosts", "from a private host")
        if is_private or host == first:
            return None
        if is_private_host(host) or not await self._is_public(request.url):
            return f"a public host leads to {host}, which is not public"
        return None

    async def _is_public(self, url: str) -> bool:
        if self._network.has_proxy_for(url):
            return True
        try:
            addresses = await self._network.find(url)
        except NotConnected:
            return True  # the download will fail, with a reason
        return all(map(is_public, addresses.hosts))
