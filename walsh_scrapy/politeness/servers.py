"""The addresses by which requests are paced, with ``WALSH_PACE_BY = "address"`` (decision 5)."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING

from scrapy.exceptions import DownloadFailedError

from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.hosttimes import NO_SERVER, PaceBy, Server
from walsh_scrapy.runtime.requests import mark, marks_of
from walsh_scrapy.wire.unreachable import NotConnected

if TYPE_CHECKING:
    from scrapy import Request

    from walsh_scrapy.options import Options
    from walsh_scrapy.runtime.network import Network


class Servers:
    """Looks up the addresses of a request before its turn; it is connected to no others.

    By host and by domain there is nothing to look up.
    """

    def __init__(self, options: Options, network: Network) -> None:
        self._network = network
        self._is_in_use = options.pace_by is PaceBy.ADDRESS
        self._spacing = options.min_interval
        self._excepted = tuple(map(ip_network, options.shared_networks))

    async def look_up(self, request: Request) -> None:
        """Mark a request with its addresses, or with why there are none: its download will fail.

        Raises Denied for a request with a proxy of its own, which would look up the name itself.
        """
        if not self._is_in_use:
            return
        if request.meta.get("proxy"):
            raise Denied("pacing", "by address no request may have a proxy, which hides it")
        try:
            mark(request, found=await self._network.find(request.url))
        except NotConnected as error:
            mark(request, found=error)
        except DownloadFailedError:  # the download will fail for the same reason
            mark(request, found=None)

    def of(self, request: Request) -> Server:
        """Return the server that a request is sent to."""
        found = marks_of(request).found
        if found is None or isinstance(found, NotConnected):
            return NO_SERVER
        return Server.at(found.hosts, self._spacing, self._excepted)

    def address(self, request: Request) -> str | None:
        """Return the address that a request was sent to; None if it is not paced by that."""
        connected = marks_of(request).connected
        return connected and self.of(request).address(connected)
