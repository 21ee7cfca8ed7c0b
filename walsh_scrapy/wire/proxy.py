"""Requests through an HTTP proxy: whole URLs for http, and a tunnel for https (RFC 9110 9.3.6)."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from scrapy.exceptions import DownloadFailedError
from scrapy.utils.url import add_http_if_no_scheme

from walsh_scrapy.wire.http1 import HttpExchange
from walsh_scrapy.wire.tlserrors import NoSecureConnection
from walsh_scrapy.wire.unreachable import NotConnected, without_proxy

if TYPE_CHECKING:
    import h11

    from walsh_scrapy.wire.stream import Stream


class Proxy(NamedTuple):
    """An HTTP proxy: where it listens, and the Proxy-Authorization that it wants."""

    host: str
    port: int
    authorization: bytes | None = None

    @classmethod
    def parse(cls, url: str, authorization: bytes | None) -> Proxy:
        """Read the URL of a proxy. Raises DownloadFailedError if it is none over plain HTTP."""
        parts = urlsplit(add_http_if_no_scheme(url))
        try:
            host, port = parts.hostname, parts.port or 80
        except ValueError:
            host = None
        if parts.scheme != "http" or not host:
            raise DownloadFailedError(f"{url!r} is no http:// URL of a proxy")
        return cls(host, port, authorization)


def wants_credentials(proxy: Proxy, host: str) -> NotConnected:
    """Return what a 407 for a host means: through this proxy none can be reached."""
    why = DownloadFailedError(f"it wants other credentials (407) for {host}")
    return without_proxy(proxy.host, NotConnected(why, "machine"))


async def open_tunnel(stream: Stream, proxy: Proxy, host: str, port: int) -> None:
    """Let a proxy connect a stream to a host.

    Raises NoSecureConnection if the proxy refuses, NotConnected if it wants other credentials, or
    OSError.
    """
    name = f"[{host}]" if ":" in host else host
    target = f"{name}:{port}".encode("ascii")
    fields = [(b"Host", target)]
    if proxy.authorization is not None:
        fields.append((b"Proxy-Authorization", proxy.authorization))
    exchange = HttpExchange(stream)
    await exchange.send(b"CONNECT", target, fields, b"")
    answer: h11.Response = await exchange.head()
    if not 200 <= answer.status_code < 300:
        if answer.status_code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            raise wants_credentials(proxy, host)
        told = f"{answer.status_code} {answer.reason.decode('latin-1')}"
        raise NoSecureConnection(
            host, f"the proxy {proxy.host}:{proxy.port} opens no tunnel to {host}: {told}"
        )
