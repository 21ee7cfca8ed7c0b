"""The network of a crawl: names, proxies, and whom a failed connection is to blame."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
import threading
import time
from collections import defaultdict
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from scrapy import Request
from scrapy.exceptions import DownloadFailedError, UnsupportedURLSchemeError
from scrapy.utils.datatypes import LocalCache
from scrapy.utils.misc import load_object

from walsh_scrapy.crawl.scrapyinternals import environment_proxies
from walsh_scrapy.crawl.startup import HANDLER, Kind, has_addon, has_handler, path_of
from walsh_scrapy.exceptions import MachineTrouble, StateUnavailable
from walsh_scrapy.options import BadSetting, bad_setting
from walsh_scrapy.policy.urls import (
    SCHEMES,
    host_of,
    is_private_host,
    is_public,
    parse_ip,
    scheme_of,
)
from walsh_scrapy.policy.wording import for_others
from walsh_scrapy.wire.endpoints import (
    Addresses,
    Endpoint,
    NotConnected,
    Proxy,
    is_no_such_name,
    name_not_found,
)
from walsh_scrapy.wire.stalls import limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.policy.connectivity import Blame, Fault

logger = logging.getLogger(__name__)

_OWN_HANDLER: Final = (
    "DOWNLOAD_HANDLERS: %s serves %s, so this add-on cannot guarantee that there is one connection "
    "at a time, that it goes to an address that was checked, and that a request is sent once. A "
    "browser also sends cookies and a Referer, and loads the parts of a page, all at once. Switch "
    "that off there"
)

#: The attributes with which a subclass of Request could give another URL each time.
_OF_URL: Final = ("url", "_url", "__getattribute__")


#: The time limit for lookup, connection and TLS handshake together: a host that does not answer
#: must not cost the crawl more (decision 28).
CONNECT_SECONDS: Final = 10.0
#: How long addresses are used again. The system does not tell how long they are valid.
ADDRESS_TTL_SECONDS: Final = 60.0
#: The maximum number of names in the cache.
MAX_NAMES: Final = 10_000
#: The maximum number of simultaneous lookups for coming requests.
MAX_LOOKUPS_AHEAD: Final = 8
_PORTS = {"http": 80, "https": 443}


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

    async def find_soon(self, host: str, port: int) -> Addresses:
        """Return the addresses of a host. Raises NotConnected after ``CONNECT_SECONDS``."""
        try:
            async with limit(CONNECT_SECONDS):
                return await self.find(host, port)
        except (OSError, UnicodeError) as error:
            raise name_not_found(host, error) from error

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


@lru_cache(maxsize=1024)  # a URL is looked at several times before its turn
def server_of(url: str) -> Endpoint:
    """Return where a URL leads to by itself.

    Raises DownloadFailedError if it leads nowhere, UnsupportedURLSchemeError for another scheme
    than http and https.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS:
        raise UnsupportedURLSchemeError(
            f"{url} cannot be requested: only http and https are, not {parts.scheme!r}"
        )
    try:
        host = parts.hostname
        port = parts.port or _PORTS[parts.scheme]
    except ValueError as error:
        raise DownloadFailedError(f"{url} cannot be requested: {error}") from error
    if not host:
        raise DownloadFailedError(f"{url} names no host")
    return Endpoint(parts.scheme, host.rstrip("."), port)


class Network:
    """The names and routes that all requests of a crawl share."""

    def __init__(self, crawl: Crawl) -> None:
        settings = crawl.settings
        context = crawl.context
        self._kind = crawl.kind
        self._looks_up_names = has_handler(settings)
        self._engine = crawl.engine
        self._denials = crawl.denials
        self._context = context
        self._clock = context.clock
        self._connectivity = context.connectivity
        self._last_visit = crawl.declared.last_visit
        self.names = Names(self._record_answer)
        self._proxy_urls = proxy_urls(settings)
        self._proxies = proxies_of(settings) if self._looks_up_names else {}
        self._has_warned = False
        self._proxy_hosts = {proxy.host for proxy in self._proxies.values()}
        self._bypasses = lru_cache(1000)(proxy_bypass)  # it reads the whole environment

    def is_from_public(self, request: Request, response: Response) -> bool:
        """Return True if a response came from a public address (decision 16).

        A host whose name is private is none, whatever its address. The address of a connection to a
        proxy says nothing about the host, and a handler of others may name none: then only the name
        counts.
        """
        if is_private_host(host_of(request.url)):
            return False
        address = response.ip_address
        is_through_proxy = self._proxy_of(request) is not None
        return address is None or is_through_proxy or is_public(str(address))

    async def find(self, url: str) -> Addresses:
        """Return the addresses of the host of a URL; raise NotConnected if there are none."""
        server = server_of(url)
        return await self.names.find_soon(server.host, server.port)

    def look_ahead(self, urls: Iterable[str]) -> None:
        """Begin to look up the hosts of URLs that are requested soon, for our own handler."""
        if not self._looks_up_names:
            return
        names: list[tuple[str, int]] = []
        for url in urls:
            with suppress(
                DownloadFailedError, UnsupportedURLSchemeError
            ):  # the request itself will fail, with a reason
                if not self.has_proxy_for(url):
                    server = server_of(url)
                    names.append((server.host, server.port))
        self.names.look_ahead(names)

    def has_proxy(self, request: Request) -> bool:
        """Return True if a request goes through a proxy, which then looks up the name."""
        if "proxy" in request.meta:
            return self._proxy_of(request) is not None
        return self.has_proxy_for(request.url)

    def has_proxy_for(self, url: str) -> bool:
        """Return True if the environment names a proxy for a URL, which then looks up the name."""
        return scheme_of(url) in self._proxy_urls and not self._bypasses(host_of(url))

    def check_route(self, request: Request) -> None:
        """Raise Denied for a request that the gates cannot check.

        Its class may return another URL each time, or it names a proxy itself in a declared crawl.
        """
        proxy = request.meta.get("proxy")
        is_declared = self._kind is Kind.DECLARED
        if proxy and is_declared and not self._is_of_environment(proxy):
            self._warn_of_proxy(request.url, str(proxy))
            reason = "it names a proxy, and only one of the environment is used"
            raise self._denials.deny(request, "address", reason)
        kind = type(request)
        if any(getattr(kind, name) is not getattr(Request, name) for name in _OF_URL):
            reason = f"its class, {kind.__name__}, may give another URL each time"
            raise self._denials.deny(request, "address", reason)

    def route_of(self, request: Request) -> Proxy | None:
        """Return the proxy that a request goes through, or None.

        Raises the errors of ``check_route``, and DownloadFailedError for a proxy that our handler
        cannot use.
        """
        self.check_route(request)
        proxy = self._proxy_of(request)
        if proxy is None:
            return None
        if self._is_of_environment(proxy):
            return self._proxies[scheme_of(request.url)]
        try:
            return Proxy.parse(proxy, request.headers.get("Proxy-Authorization"))
        except ValueError:
            problem = f"{for_others(proxy)} is not the http:// URL of a proxy"
            raise DownloadFailedError(f"{request.url} was not sent: {problem}") from None

    def _proxy_of(self, request: Request) -> str | None:
        """Return the URL of the proxy in the ``meta`` of a request.

        A redirect or a copy of ``meta`` may carry the proxy of the environment for another URL.
        """
        proxy = request.meta.get("proxy")
        is_stale = proxy and self._is_of_environment(proxy) and not self.has_proxy_for(request.url)
        return str(proxy) if proxy and not is_stale else None

    def _is_of_environment(self, proxy: object) -> bool:
        return proxy in self._proxy_urls.values()

    def _warn_of_proxy(self, url: str, proxy: str) -> None:
        """Log the first proxy that a middleware or a spider names: its requests are all denied."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                '%s is not sent, nor any other request with a meta["proxy"]: it names %s. Set '
                "the environment variables http_proxy and https_proxy to one proxy, such as the "
                'gateway of your provider, and switch off what sets meta["proxy"]',
                for_others(url),
                for_others(proxy),
            )

    def spider_idle(self) -> None:
        """End a crawl in which no connection was possible."""
        if self._connectivity.is_offline:
            self._engine.machine_failed("no host could be reached: is this machine offline?")

    def failure(self, host: str, error: NotConnected) -> Exception:
        """Return the exception with which a request fails that got no connection."""
        if self._fault_of(host, error.blame, str(error)) == "host":
            return error.failure
        return MachineTrouble(self._clock.now(), str(error))

    def _fault_of(self, host: str, blame: Blame, reason: str) -> Fault:
        """Return who is to blame for a failure; end the crawl if it is this machine."""
        is_doubtful = blame == "either" and not self._connectivity.is_decided
        was_proven = is_doubtful and self._was_proven_since_visit(host)
        fault = self._connectivity.record_failure(host, blame, was_proven=was_proven)
        if fault == "machine":
            self._engine.machine_failed(reason)
        return fault

    def _was_proven_since_visit(self, host: str) -> bool:
        """Return True if another run proved the network since a source there was visited last."""
        visit = self._last_visit(host)
        run = self._context.run
        if visit is None or run is None:
            return False
        try:
            return self._context.state.runs.is_network_proven(run, visit.at)
        except StateUnavailable:
            return False

    def _record_answer(self, host: str) -> None:
        """Record that a name server gave an answer, unless it is about a proxy, or no name."""
        if host not in self._proxy_hosts and parse_ip(host) is None:
            self.record_proof()

    def record_proof(self) -> None:
        """Record that something has shown that the network works."""
        self._connectivity.prove(self._clock.now())


def warn_of_handlers(settings: BaseSettings) -> None:
    """Log the guarantees that are lost where another bot has another download handler."""
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS") if has_addon(settings) else {}
    schemes = defaultdict[str, list[str]](list)
    for scheme in SCHEMES:
        if handlers.get(scheme) and (path := path_of(handlers[scheme])) != HANDLER:
            schemes[path].append(scheme)
    for path, of in schemes.items():
        logger.warning(_OWN_HANDLER, path, " and ".join(of))


def network_problems(settings: BaseSettings) -> Iterator[BadSetting]:
    """Yield an error for a handler that cannot be imported, and for values that ours cannot use."""
    handlers = settings.getwithbase("DOWNLOAD_HANDLERS")
    for scheme in SCHEMES:
        if handlers.get(scheme) and not path_of(handlers[scheme]):
            wrong = {scheme: handlers[scheme]}
            yield bad_setting("DOWNLOAD_HANDLERS", wrong, "the path of a class that is installed")
    if has_handler(settings):
        yield from load_object(HANDLER).problems(settings)


def proxy_urls(settings: BaseSettings) -> dict[str, str]:
    """Return the URLs of the environment's proxies, by the schemes that they serve."""
    if not settings.getbool("HTTPPROXY_ENABLED"):
        return {}
    parsed = environment_proxies(settings)
    return {scheme: parsed[scheme][1] for scheme in SCHEMES if scheme in parsed}


def proxies_of(settings: BaseSettings) -> dict[str, Proxy]:
    """Return the proxies of the environment by the schemes that they serve, for our own handler.

    Raises BadSetting for one that is reached by anything but plain HTTP.
    """
    values = getproxies()
    parsed = environment_proxies(settings)
    proxies: dict[str, Proxy] = {}
    for scheme, url in proxy_urls(settings).items():
        credentials = parsed[scheme][0]
        # Scrapy adds the scheme of the requests to `https_proxy=127.0.0.1:3128`, others add http.
        has_scheme = re.match(r"\w+://", values[scheme])
        address = url if has_scheme else url.partition("://")[2]
        try:
            proxies[scheme] = Proxy.parse(address, credentials and b"Basic " + credentials)
        except ValueError:
            expected = "an http:// URL: no other way to a proxy is known here"
            raise bad_setting(f"{scheme}_proxy", address, expected) from None
    return proxies
