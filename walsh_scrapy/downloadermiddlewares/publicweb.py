"""R6: a redirect of a public host may lead to another public host, and to no private one."""

from __future__ import annotations

import asyncio
from socket import gaierror
from typing import TYPE_CHECKING
from urllib.request import getproxies, proxy_bypass

from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware

from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.networks import is_private_host, is_public
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.runtime.gates import Gate
from walsh_scrapy.runtime.startup import check_start, require_order

if TYPE_CHECKING:
    from typing import Self

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings


class PublicWebMiddleware:
    """Denies a hop from a public host to a private one, by its name or by what that resolves to.

    An operator may declare hosts of an intranet, but a public host may not redirect there (order
    20, decision 16). If a proxy is used, it resolves the names, so only names are judged here.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._stats = crawler.stats
        self._proxies = getproxies()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the gate for one crawl."""
        check_start(crawler, _check)
        return cls(crawler)

    async def process_request(self, request: Request) -> None:
        """Judge a hop before its host is asked for anything, robots.txt included."""
        hops = request.meta.get("redirect_urls")
        host = host_of(request.url)
        if not hops or host == host_of(hops[0]) or is_private_host(host_of(hops[0])):
            return
        if is_private_host(host) or await self._resolves_to_private(host, request.url):
            self._stats.inc_value("walsh/publicweb/denied")
            raise Denied("publicweb", f"{hops[-1]} redirects to {host}, which is not public")

    async def _resolves_to_private(self, host: str, url: str) -> bool:
        if url.partition(":")[0] in self._proxies and not proxy_bypass(host):
            return False
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None)
        except (gaierror, UnicodeError):
            return False  # the download will fail, with a reason
        return not all(is_public(str(address[0])) for *_, address in found)


def _check(settings: BaseSettings) -> None:
    require_order(
        settings,
        (Gate.PUBLICWEB,),
        (Gate.ROBOTS, RobotsTxtMiddleware),
        "a private host is asked for no robots.txt; set the order of PublicWebMiddleware to 20",
    )
