"""Makes connections: a name, a socket and TLS within one time limit (decisions 26 to 28)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.urls import is_public
from walsh_scrapy.wire.proxy import open_tunnel
from walsh_scrapy.wire.stalls import Deadline, limit
from walsh_scrapy.wire.stream import TcpStream
from walsh_scrapy.wire.unreachable import (
    NotConnected,
    name_not_found,
    not_connected,
    without_proxy,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from walsh_scrapy.wire.idle import Endpoint
    from walsh_scrapy.wire.names import Addresses, Names
    from walsh_scrapy.wire.proxy import Proxy
    from walsh_scrapy.wire.stream import Stream
    from walsh_scrapy.wire.tls import Tls

#: Seconds that the name, the connection and TLS of a host may take together (decision 28).
CONNECT_SECONDS: Final = 10.0


class Connections:
    """Opens the connections of a crawl, each within ``timeout`` seconds."""

    def __init__(self, names: Names, tls: Tls, timeout: float) -> None:
        self._names = names
        self._tls = tls
        self._timeout = timeout
        self._private: set[str] = set()

    def is_private(self, host: str) -> bool:
        """Return True if a connection was made to a host at an address that is not public."""
        return host in self._private

    async def open(self, endpoint: Endpoint, *, public_only: bool = False) -> Stream:
        """Connect to an endpoint, through its proxy if it has one.

        With ``public_only`` every address of the host has to be public (decision 16); a proxy looks
        up the name itself. Raises NotConnected; Denied for an address that is not public;
        NoHandshake or DownloadFailedError for what comes after the connection.
        """
        host, proxy = endpoint.host, endpoint.proxy
        nearest, port = proxy.host if proxy else host, endpoint.port
        deadline = Deadline(self._timeout)
        if proxy:
            addresses = await self._addresses_of_proxy(proxy)
        else:
            addresses = await self.find(host, port)
        if public_only and not proxy:
            check_public(host, addresses.hosts)
        stream = await self._connect(endpoint, nearest, addresses, deadline)
        if not (proxy or is_public(stream.peer)):
            self._private.add(host)
        if endpoint.scheme == "http":
            return stream
        return await self._secure(endpoint, stream, deadline)

    async def find(self, host: str, port: int) -> Addresses:
        """Return the addresses of a host. Raises NotConnected after ``timeout`` seconds."""
        try:
            async with limit(self._timeout):
                return await self._names.find(host, port)
        except (OSError, UnicodeError) as error:
            raise name_not_found(host, error) from error

    async def _addresses_of_proxy(self, proxy: Proxy) -> Addresses:
        try:
            return await self.find(proxy.host, proxy.port)
        except NotConnected as error:
            raise without_proxy(proxy.host, error) from error

    async def _connect(
        self, endpoint: Endpoint, nearest: str, addresses: Addresses, deadline: Deadline
    ) -> TcpStream:
        try:
            async with limit(deadline.left):
                return await TcpStream.open(addresses, endpoint.bind_address)
        except OSError as error:
            found = not_connected(nearest, error, self._timeout)
            raise (without_proxy(nearest, found) if endpoint.proxy else found) from error

    async def _secure(self, endpoint: Endpoint, stream: TcpStream, deadline: Deadline) -> Stream:
        host, port = endpoint.host, endpoint.port
        try:
            async with limit(deadline.left):
                if endpoint.proxy:
                    await open_tunnel(stream, endpoint.proxy, host, port)
                return await self._tls.secure(stream, host, port)
        except BaseException as error:
            stream.close()
            if isinstance(error, OSError):
                raise not_connected(host, error, self._timeout, "the TLS handshake") from error
            raise


def check_public(host: str, addresses: Iterable[str]) -> None:
    """Raise Denied if a host that has to be public has any other address (decision 16)."""
    if not all(map(is_public, addresses)):
        raise Denied("publicweb", f"{host} has an address that is not public")
