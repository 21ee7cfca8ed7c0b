"""R6: a redirect of a public host must not lead to a private host (SSRF)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from walsh_scrapy.crawl.crawl import Component
from walsh_scrapy.crawl.queue import RequestPreparer
from walsh_scrapy.crawl.startup import Gate, has_gate
from walsh_scrapy.crawl.ticket import hops_of, note, note_answer, visit_of
from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.urls import host_of, is_private_host, is_public
from walsh_scrapy.wire.unreachable import NotConnected

if TYPE_CHECKING:
    from scrapy import Request

    from walsh_scrapy.crawl.crawl import Crawl


class PrivateHostsMiddleware(Component, RequestPreparer):
    """Denies a redirect from a public host to a private one (order 20).

    Without it, a public site could make the crawler request hosts of the operator's own network,
    known as server-side request forgery (SSRF). The step from a page to the feed that it names is
    treated like a redirect. An operator may declare private hosts as sources.

    Both the name of the host and its IP addresses are checked. DNS may give other addresses later,
    so the request is also marked as ``public_only``, as is the request for its robots.txt: the
    download handler connects it to public addresses only. If a proxy is used, only the name is
    checked, because the proxy resolves it.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._denials = crawl.denials
        self._network = crawl.network
        # Scrapy's RedirectMiddleware lists the redirects in `meta`, not in the ticket.
        self._has_scrapys_redirects = not has_gate(crawl.settings, Gate.REDIRECT)
        crawl.queue.register_preparer(Gate.PRIVATEHOSTS, self)

    async def process_request(self, request: Request) -> None:
        """Deny a redirect to a private host, before its robots.txt is fetched."""
        self._network.check_route(request)
        if reason := await self._check_hop(request):
            raise self._denials.deny(request, "privatehosts", reason)

    async def prepare(self, request: Request) -> None:
        """Raise Denied early, before the host's robots.txt is fetched."""
        if reason := await self._check_hop(request):
            raise Denied("privatehosts", reason)

    async def _check_hop(self, request: Request) -> str | None:
        """Mark a redirect as ``public_only`` or not, and return why it is denied, or None."""
        hops = [hop.url for hop in hops_of(request)]
        if self._has_scrapys_redirects:
            hops = request.meta.get("redirect_urls", hops)
        visit = visit_of(request)
        if visit and visit.declared_by:
            hops = [visit.declared_by, *hops]
        if not hops:
            return None
        first = host_of(hops[0])
        host = host_of(request.url)
        is_private = is_private_host(first) or self._network.is_private(first)
        note(request, public_only=not is_private)
        if is_private:
            note_answer(request, "privatehosts", "from a private host")
        if is_private or host == first:
            return None
        if is_private_host(host) or not await self._is_public(request.url):
            return f"a public host leads to {host}, which is a private host"
        return None

    async def _is_public(self, url: str) -> bool:
        if self._network.has_proxy_for(url):
            return True
        try:
            addresses = await self._network.find(url)
        except NotConnected:
            return True  # the download will fail, with a reason
        return all(is_public(address) for address in addresses.hosts)
