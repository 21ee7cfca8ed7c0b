"""Where connections lead: the addresses of a name, the endpoint of a URL, and proxies."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from scrapy.utils.url import add_http_if_no_scheme

#: As ``socket.getaddrinfo`` returns it: family, type, protocol, canonical name, address.
AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]


class Addresses(NamedTuple):
    """The addresses of a name. Connections go to these, so what was checked is what is used."""

    infos: tuple[AddressInfo, ...]  #: in the order of RFC 6724, as the system sorts them

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses as text, without ports."""
        return tuple(str(info[4][0]) for info in self.infos)


class Proxy(NamedTuple):
    """An HTTP proxy: where it listens, and the Proxy-Authorization header for it."""

    host: str
    port: int
    authorization: bytes | None = None

    @classmethod
    def parse(cls, url: str, authorization: bytes | None) -> Proxy:
        """Parse the URL of a proxy. Raises ValueError unless it is an http URL."""
        parts = urlsplit(add_http_if_no_scheme(url))
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError
        return cls(parts.hostname, parts.port or 80, authorization)


class Endpoint(NamedTuple):
    """Where a connection leads. An idle connection is used for requests with the same endpoint."""

    scheme: str
    host: str
    port: int
    proxy: Proxy | None = None
    bind_address: tuple[str, int] | None = None
