"""R6: an answer from a public address must not lead to a private host (SSRF)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import signals

from walsh_scrapy.crawl.hosts.queue import RequestPreparer
from walsh_scrapy.crawl.parts import Component
from walsh_scrapy.crawl.startup import Gate
from walsh_scrapy.crawl.ticket import hops_of, note, note_answer, ticket_of
from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.urls import host_of, is_private_host, is_public, is_web
from walsh_scrapy.wire.endpoints import NotConnected

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from walsh_scrapy.crawl.parts import Crawl


class PrivateHostsMiddleware(Component, RequestPreparer):
    """Denies a redirect from a public address to a private host (order 20).

    Without it, a public site could make the crawler request hosts of the operator's own network,
    known as server-side request forgery (SSRF). The step from a page to the feed that it names is
    treated like a redirect. An operator may declare private hosts as sources.

    Each response decides for the request that follows it: if it came from a public address, that
    request is ``public_only``, and so are its robots.txt and all that follows. A host that has
    answered from a public address stays public for the rest of the run, because a name may get a
    private address later. That an address was private is not remembered.

    Both the name of the host and its IP addresses are checked. DNS may give other addresses later,
    so the download handler of this add-on connects a ``public_only`` request to public addresses
    only; with another one the response from a private address is dropped. If a proxy is used, only
    the name is checked, because the proxy resolves it.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._denials = crawl.denials
        self._network = crawl.network
        self._public_hosts: set[str] = set()  # those that have answered from a public address
        # Scrapy's RedirectMiddleware lists the redirects in `meta`, not in the ticket.
        self._has_scrapys_redirects = Gate.REDIRECT not in crawl.gates
        crawl.queue.register_preparer(Gate.PRIVATEHOSTS, self)
        crawl.crawler.signals.connect(self.response_downloaded, signals.response_downloaded)

    async def process_request(self, request: Request) -> None:
        """Deny a redirect to a private host, before its robots.txt is fetched."""
        self._network.check_route(request)
        if reason := await self._check(request):
            raise self._denials.deny(request, "privatehosts", reason)

    async def prepare(self, request: Request) -> None:
        """Raise Denied early, before the host's robots.txt is fetched."""
        if reason := await self._check(request):
            raise Denied("privatehosts", reason)

    async def process_response(self, request: Request, response: Response) -> Response:
        """Drop the response to a ``public_only`` request if it came from a private address."""
        is_marked = ticket_of(request).public_only and is_web(request.url)
        if is_marked and "cached" not in response.flags:
            if self._network.is_from_public(request, response):
                return response
            reason = f"{host_of(request.url)}, a public host, now has a private address"
            raise self._denials.deny(request, "privatehosts", reason)
        return response

    def response_downloaded(self, response: Response, request: Request) -> None:
        """Mark a request whose response came from a public address, and what follows it."""
        if not is_web(request.url):
            return
        if "cached" not in response.flags and self._network.is_from_public(request, response):
            self._public_hosts.add(host_of(request.url))
            note(request, public_only=True)

    async def _check(self, request: Request) -> str | None:
        """Mark a request as ``public_only``, or return why it is denied."""
        host = host_of(request.url)
        if not (host or is_web(request.url)):
            return None  # a scheme whose hosts are not known here
        hops = [hop.url for hop in hops_of(request)]
        is_marked = ticket_of(request).public_only
        if self._has_scrapys_redirects:
            hops = request.meta.get("redirect_urls", hops)
            is_marked |= not self._public_hosts.isdisjoint(host_of(url) for url in hops)
        if not is_marked and host not in self._public_hosts:
            if hops:
                note_answer(request, "privatehosts", "from a private host")
            return None
        note(request, public_only=True)
        if is_private_host(host):
            return f"a public host leads to {host}, which is a private host"
        if not is_web(request.url):
            return None
        is_known = host in self._public_hosts  # the download handler checks its address
        if not is_known and not await self._is_public(request):
            return f"a public host leads to {host}, which is a private host"
        return None

    async def _is_public(self, request: Request) -> bool:
        if self._network.has_proxy(request):
            return True
        try:
            addresses = await self._network.find(request.url)
        except NotConnected:
            return True  # the download will fail, with a reason
        return all(is_public(address) for address in addresses.hosts)
