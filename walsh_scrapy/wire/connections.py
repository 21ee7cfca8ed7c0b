"""Looks up names, opens connections within one time limit, and keeps them alive for reuse.

A crawl of R4 has at most one open connection, so an idle one is closed before another is opened
(decision 26). Through a proxy, http requests have an absolute URL, and https requests go through a
tunnel (RFC 9110 9.3.6).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections import OrderedDict
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from scrapy.exceptions import DownloadFailedError
from scrapy.utils.datatypes import LocalCache
from scrapy.utils.url import add_http_if_no_scheme

from walsh_scrapy.exceptions import Denied
from walsh_scrapy.policy.connectivity import proves_network
from walsh_scrapy.policy.pacing import MAX_IDLE_SECONDS
from walsh_scrapy.policy.urls import is_public
from walsh_scrapy.wire.http1 import Addresses, HttpExchange, TcpStream
from walsh_scrapy.wire.stalls import limit
from walsh_scrapy.wire.unreachable import (
    NoHandshake,
    NoSecureConnection,
    NotConnected,
    is_no_such_name,
    name_not_found,
    not_connected,
    without_proxy,
    without_tunnel,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from walsh_scrapy.wire.http1 import Stream, Tls

#: The time limit for lookup, connection and TLS handshake together: a host that does not answer
#: must not cost the crawl more (decision 28).
CONNECT_SECONDS: Final = 10.0
#: How long addresses are used again. The system does not tell how long they are valid.
ADDRESS_TTL_SECONDS: Final = 60.0
#: The maximum number of names in the cache.
MAX_NAMES: Final = 10_000
#: The maximum number of simultaneous lookups for coming requests.
MAX_LOOKUPS_AHEAD: Final = 8


class _KnownName(NamedTuple):
    addresses: Addresses
    since: float  #: by the monotonic clock


class Names:
    """Looks up names with ``getaddrinfo``, which also uses ``/etc/hosts`` and the like.

    Each lookup has its own daemon thread, because it may take any time and cannot be cancelled.
    ``answered`` is called with each name for which a name server had an answer, even if the answer
    is that the name does not exist.
    """

    def __init__(self, answered: Callable[[str], None] = lambda _: None) -> None:
        self._answered = answered
        self._known: LocalCache[tuple[str, int], _KnownName] = LocalCache(MAX_NAMES)
        self._running: dict[tuple[str, int], asyncio.Future[Addresses]] = {}

    async def find(self, host: str, port: int) -> Addresses:
        """Return the addresses of a host, from the cache if they were looked up lately.

        There is no time limit, and cancelling the caller does not stop the lookup. Raises
        socket.gaierror if there is no address, another OSError if this machine cannot look up
        names, and UnicodeError if the text is not a name.
        """
        if addresses := self._recall(host, port):
            return addresses
        # Shielded, because several requests may wait for one lookup.
        return await asyncio.shield(self._lookup(host, port))

    def look_ahead(self, names: Iterable[tuple[str, int]]) -> None:
        """Start to look up the hosts of coming requests; errors are left to ``find``."""
        for host, port in names:
            if len(self._running) >= MAX_LOOKUPS_AHEAD:
                return
            if not self._recall(host, port):
                self._lookup(host, port)

    async def settle(self, seconds: float) -> None:
        """Wait until the running lookups have ended, at most for so many seconds."""
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=seconds)

    def _recall(self, host: str, port: int) -> Addresses | None:
        name = self._known.get((host, port))
        if name is None or time.monotonic() - name.since >= ADDRESS_TTL_SECONDS:
            return None
        return name.addresses

    def _lookup(self, host: str, port: int) -> asyncio.Future[Addresses]:
        key = host, port
        if key not in self._running:
            future = self._running[key] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda future: self._finish(key, future))
            thread = threading.Thread(target=_look_up, args=(host, port, future), daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # there are too many threads
                future.set_exception(OSError(errno.EAGAIN, str(error)))
            return future
        return self._running[key]

    def _finish(self, key: tuple[str, int], future: asyncio.Future[Addresses]) -> None:
        del self._running[key]
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._known[key] = _KnownName(future.result(), time.monotonic())
        if error is None or is_no_such_name(error):
            self._answered(key[0])


def _look_up(host: str, port: int, future: asyncio.Future[Addresses]) -> None:
    """Look up a name in a thread, and settle the future in its loop."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        outcome: Addresses | Exception = Addresses(tuple(infos))  # type: ignore[arg-type]
    except Exception as error:  # noqa: BLE001 - it is the outcome of the lookup
        outcome = error
    with suppress(RuntimeError):  # the loop was closed: nobody waits any more
        future.get_loop().call_soon_threadsafe(_settle, future, outcome)


def _settle(future: asyncio.Future[Addresses], outcome: Addresses | Exception) -> None:
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


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

    ``proven`` is called whenever something shows that the network works.
    """

    def __init__(
        self, names: Names, tls: Tls, timeout: float, proven: Callable[[], None] = lambda: None
    ) -> None:
        self._names = names
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
        addresses = await self._names.find(nearest, port)
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

    async def find(self, host: str, port: int) -> Addresses:
        """Return the addresses of a host. Raises NotConnected after ``timeout`` seconds."""
        try:
            async with limit(self._timeout):
                return await self._names.find(host, port)
        except (OSError, UnicodeError) as error:
            raise name_not_found(host, error) from error

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
