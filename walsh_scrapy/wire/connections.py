"""Opens connections, each within one time limit, and keeps them alive for reuse.

A crawl of R4 has at most one open connection, so an idle one is closed before another is opened
(decision 26). Through a proxy, http requests have an absolute URL, and https requests go through a
tunnel (RFC 9110 9.3.6).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from scrapy.exceptions import DownloadFailedError

from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.connectivity import proves_network
from walsh_scrapy.policy.pacing import MAX_IDLE_SECONDS
from walsh_scrapy.policy.urls import is_public
from walsh_scrapy.wire.endpoints import (
    NoHandshake,
    NoSecureConnection,
    NotConnected,
    name_not_found,
    not_connected,
    without_proxy,
    without_tunnel,
)
from walsh_scrapy.wire.http1 import HttpExchange, TcpStream
from walsh_scrapy.wire.stalls import limit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from walsh_scrapy.wire.endpoints import Addresses, Endpoint, Proxy
    from walsh_scrapy.wire.http1 import Stream, Tls


class _Idle(NamedTuple):
    stream: Stream
    timer: asyncio.TimerHandle


class IdleConnections:
    """Keeps connections open between two requests, with a maximum number and age.

    With ``alone`` at most one connection is open at any time, busy or idle: each request holds
    ``turn``, and ``take`` closes an idle connection to another endpoint.
    """

    def __init__(self, max_number: int, *, alone: bool) -> None:
        self._max_number = max_number
        self._alone = alone
        self._lock = asyncio.Lock() if alone else None
        self._idle: OrderedDict[Endpoint, _Idle] = OrderedDict()

    @property
    def turn(self) -> AbstractAsyncContextManager[object]:
        """A context for one exchange, entered before ``take`` and left after ``keep``."""
        return self._lock or nullcontext()

    def take(self, endpoint: Endpoint) -> Stream | None:
        """Return an idle connection to this endpoint, or None if there is no usable one."""
        if self._alone:
            for unusable in [key for key in self._idle if key != endpoint]:
                self._close(unusable)
        idle = self._idle.pop(endpoint, None)
        if idle is None:
            return None
        idle.timer.cancel()
        if idle.stream.has_unread:  # closed by the server, or bytes that belong to no request
            idle.stream.close()
            return None
        return idle.stream

    def keep(self, endpoint: Endpoint, stream: Stream) -> None:
        """Keep a connection for later requests; if there are too many, close the oldest one."""
        self._close(endpoint)
        timer = asyncio.get_running_loop().call_later(MAX_IDLE_SECONDS, self._close, endpoint)
        self._idle[endpoint] = _Idle(stream, timer)
        while len(self._idle) > self._max_number:
            self._close(next(iter(self._idle)))

    def close(self) -> None:
        """Close every idle connection."""
        for endpoint in list(self._idle):
            self._close(endpoint)

    def _close(self, endpoint: Endpoint) -> None:
        if idle := self._idle.pop(endpoint, None):
            idle.timer.cancel()
            idle.stream.close()


@dataclass
class _Attempt:
    """How far an attempt to connect has got."""

    has_addresses: bool = False
    is_connected: bool = False  #: to the host, or to its proxy
    is_at_host: bool = False  #: there is a connection or a tunnel to the host


class Connections:
    """Opens the connections of a crawl, each within ``timeout`` seconds.

    ``find`` looks up the addresses of a host. ``proven`` is called whenever something shows that
    the network works.
    """

    def __init__(
        self,
        find: Callable[[str, int], Awaitable[Addresses]],
        tls: Tls,
        timeout: float,
        proven: Callable[[], None] = lambda: None,
    ) -> None:
        self._find = find
        self._tls = tls
        self._timeout = timeout
        self._proven = proven

    async def open(self, endpoint: Endpoint, *, public_only: bool = False) -> Stream:
        """Connect to an endpoint, through its proxy if it has one.

        With ``public_only`` all addresses of the host must be public, against server-side request
        forgery by a redirect (decision 16). This is not checked if a proxy looks up the name.
        Raises Denied for a private address, NotConnected, and for errors after the connection
        NoHandshake or DownloadFailedError.
        """
        attempt = _Attempt()
        try:
            async with limit(self._timeout):
                return await self._connect(endpoint, attempt, public_only=public_only)
        except NoHandshake:  # the host has answered, directly or to the proxy
            self._proven()
            raise
        except (OSError, UnicodeError) as error:
            if attempt.has_addresses and isinstance(error, UnicodeError):
                raise
            raise self._failure(endpoint, attempt, error) from error

    async def _connect(self, endpoint: Endpoint, attempt: _Attempt, *, public_only: bool) -> Stream:
        host = endpoint.host
        proxy = endpoint.proxy
        nearest, port = (proxy.host, proxy.port) if proxy else (host, endpoint.port)
        addresses = await self._find(nearest, port)
        attempt.has_addresses = True
        if public_only and not proxy:
            check_public(host, addresses.hosts)
        stream = await TcpStream.open(addresses, endpoint.bind_address)
        attempt.is_connected = True
        if not proxy:
            attempt.is_at_host = True
            self._proven()
        return (
            stream if endpoint.scheme == "http" else await self._secure(endpoint, stream, attempt)
        )

    def _failure(
        self, endpoint: Endpoint, attempt: _Attempt, error: OSError | UnicodeError
    ) -> NotConnected:
        """Return the exception for an attempt that failed."""
        host = endpoint.host
        proxy = endpoint.proxy
        nearest = proxy.host if proxy else host
        if isinstance(error, UnicodeError) or not attempt.has_addresses:
            failure = name_not_found(nearest, error)
        elif attempt.is_connected:
            failure = not_connected(host, error, self._timeout, is_connected=attempt.is_at_host)
            return failure if attempt.is_at_host else without_tunnel(failure)
        else:
            failure = not_connected(nearest, error, self._timeout)
        if proxy:
            return without_proxy(nearest, failure)
        if failure.is_refused:
            self._proven()
        return failure

    async def _secure(self, endpoint: Endpoint, stream: TcpStream, attempt: _Attempt) -> Stream:
        host = endpoint.host
        port = endpoint.port
        try:
            if endpoint.proxy:
                await open_tunnel(stream, endpoint.proxy, host, port)
                attempt.is_at_host = True
                self._proven()
            return await self._tls.secure(stream, host, port)
        except BaseException:
            stream.close()
            raise


def check_public(host: str, addresses: Iterable[str]) -> None:
    """Raise Denied if a host has a private address, although it must be public."""
    if not all(is_public(address) for address in addresses):
        raise Denied("privatehosts", f"{host} has an address that is not public")


def credentials_refused(proxy: Proxy, host: str) -> NotConnected:
    """Return the exception for a 407 of a proxy: with wrong credentials it reaches no host."""
    reason = DownloadFailedError(f"it wants other credentials (407) for {host}")
    return without_proxy(proxy.host, NotConnected(reason, "machine"))


async def open_tunnel(stream: Stream, proxy: Proxy, host: str, port: int) -> None:
    """Ask a proxy to connect a stream to a host (CONNECT).

    Raises NoSecureConnection if the proxy refuses, NotConnected if it wants other credentials or
    cannot reach the host, and OSError if it does not answer.
    """
    name = f"[{host}]" if ":" in host else host
    target = f"{name}:{port}".encode("ascii")
    fields = [(b"Host", target)]
    if proxy.authorization is not None:
        fields.append((b"Proxy-Authorization", proxy.authorization))
    exchange = HttpExchange(stream)
    await exchange.send(b"CONNECT", target, fields, b"")
    try:
        answer = await exchange.head()
    except DownloadFailedError as error:
        raise OSError(f"the proxy {proxy.host}: {error}") from error
    if not 200 <= answer.status_code < 300:
        if answer.status_code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            raise credentials_refused(proxy, host)
        status = f"{answer.status_code} {answer.reason.decode('latin-1')}"
        refusal = NoSecureConnection(
            host, f"the proxy {proxy.host}:{proxy.port} opens no tunnel to {host}: {status}"
        )
        refusal.is_connected = False
        if proves_network(answer.status_code):
            raise refusal
        raise NotConnected(refusal, "either")
