"""The connections of a crawl: names, TLS sessions, and idle connections (decision 26)."""

from __future__ import annotations

import logging
import os
import re
import ssl
import sys
from collections import defaultdict
from contextlib import suppress
from functools import cached_property, lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.request import getproxies, proxy_bypass

from scrapy import Request
from scrapy.exceptions import DownloadFailedError, UnsupportedURLSchemeError

from walsh_scrapy.crawl.context import PerLoop
from walsh_scrapy.crawl.messages import server_of
from walsh_scrapy.crawl.scrapyinternals import environment_proxies
from walsh_scrapy.crawl.startup import HANDLER, Kind, has_addon, has_handler, path_of
from walsh_scrapy.crawl.ticket import note
from walsh_scrapy.exceptions import MachineTrouble, NotReached, ProxyTrouble, StateUnavailable
from walsh_scrapy.options import BadSetting, bad_setting
from walsh_scrapy.policy.connectivity import MAX_FAILED_HOSTS, proxy_error
from walsh_scrapy.policy.pacing import MAX_IDLE_CONNECTIONS
from walsh_scrapy.policy.urls import (
    SCHEMES,
    host_of,
    is_private_host,
    is_public,
    parse_ip,
    scheme_of,
)
from walsh_scrapy.policy.wording import cut, for_others
from walsh_scrapy.wire.connections import (
    CONNECT_SECONDS,
    Connections,
    IdleConnections,
    Names,
    Proxy,
    check_public,
    credentials_refused,
)
from walsh_scrapy.wire.http1 import VERSIONS, Tls, TlsStream
from walsh_scrapy.wire.unreachable import NoConnection, NoHandshake, NotConnected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.policy.connectivity import Blame, Fault
    from walsh_scrapy.wire.connections import Endpoint
    from walsh_scrapy.wire.http1 import Addresses, Stream

logger = logging.getLogger(__name__)

#: Shared by all serial crawls of this process, because R4 allows it one connection.
_SERIAL: Final = PerLoop(lambda: IdleConnections(1, alone=True))
_OWN_HANDLER: Final = (
    "DOWNLOAD_HANDLERS: %s serves %s, so this add-on cannot guarantee that there is one connection "
    "at a time, that it goes to an address that was checked, and that a request is sent once. A "
    "browser also sends cookies and a Referer, and loads the parts of a page, all at once. Switch "
    "that off there"
)

#: The attributes with which a subclass of Request could give another URL each time.
_OF_URL: Final = ("url", "_url", "__getattribute__")

#: The maximum of characters that are quoted of a header field of a proxy.
_MAX_FIELD_CHARACTERS: Final = 100

#: Seconds to wait for other lookups, of which one may prove that the network works.
SETTLING_SECONDS: Final = 1.0


class Network:
    """The connections that all requests of a crawl share."""

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
        self._names = Names(self._record_answer)
        self._proxy_urls = proxy_urls(settings)
        self._proxies = proxies_of(settings) if self._looks_up_names else {}
        self._has_warned = False
        self._proxy_hosts = {proxy.host for proxy in self._proxies.values()}
        self._bypasses = lru_cache(1000)(proxy_bypass)  # it reads the whole environment
        self._tls = tls_of(settings) if self._looks_up_names else Tls(None, None, "DEFAULT")
        if keys := _key_log():
            self._tls.log_keys(keys)
        self._connections = Connections(self._names, self._tls, CONNECT_SECONDS, self._record_proof)
        self._is_serial = context.options.serial

    @cached_property
    def idle(self) -> IdleConnections:
        """The connections that are kept alive; serial crawls have at most one together."""
        return (
            _SERIAL.get() if self._is_serial else IdleConnections(MAX_IDLE_CONNECTIONS, alone=False)
        )

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
        return await self._connections.find(server.host, server.port)

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
        self._names.look_ahead(names)

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

    async def connect(self, endpoint: Endpoint, *, public_only: bool, is_new: bool) -> Stream:
        """Return a connection to an endpoint: an idle one, or a new one.

        With ``is_new`` it is a new one, and the idle one is closed. With ``public_only`` its
        address must be public. Raises Unreachable or an exception of Scrapy if the host is the
        reason why there is no connection, MachineTrouble if this machine is, and the other
        exceptions of ``Connections.open``.
        """
        stream = self.idle.take(endpoint)
        if stream is not None and is_new:
            stream.close()
            stream = None
        if stream is None:
            return await self._open(endpoint, public_only=public_only)
        if public_only and not (endpoint.proxy or is_public(stream.peer)):
            stream.close()
            check_public(endpoint.host, [stream.peer])
        return stream

    def check_answer(self, endpoint: Endpoint, request: Request, response: Response) -> None:
        """Check whether an answer that came over http through a proxy is the site's.

        Over https a proxy answers CONNECT, and not the request. Raises NoConnection or NotReached
        if the proxy says that it did not reach the site, and MachineTrouble if it wants other
        credentials, or reaches no site: that ends the crawl. A 502, 503 or 504 that may be the
        site's is noted in the ticket of the request.
        """
        # In a project's own crawl any failure through its proxy is the project's.
        if endpoint.proxy is None or endpoint.scheme != "http" or self._kind is Kind.OWN:
            return
        status = response.status
        host = host_of(response.url)
        if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            error = credentials_refused(endpoint.proxy, host)
            raise self._failure(host, error) from error
        pairs = ((name, response.headers.getlist(name)) for name in response.headers)
        fields = ((name, value) for name, values in pairs for value in values)
        own_error = proxy_error(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in fields
        )
        answer = self._connectivity.record_proxy_answer(
            _key_of(endpoint.proxy),
            host,
            status,
            self._clock.now(),
            is_own=own_error is not None,
            is_refusal="Retry-After" in response.headers,
        )
        if answer == "site":
            return
        if answer == "gateway":
            note(request, from_gateway=True)
            return
        note(request, answered=None)  # the site has not answered
        if answer == "machine":
            name = _key_of(endpoint.proxy)
            reason = f"the proxy {name} answered {MAX_FAILED_HOSTS} hosts with 502, 503 or 504 only"
            self._engine.machine_failed(reason)
            raise ProxyTrouble(self._clock.now(), "no host could be reached in this run")
        words = f"the proxy answered {status} ({cut(own_error or '', _MAX_FIELD_CHARACTERS)})"
        reason = f"no connection to {host}: {words}"
        raise NotReached(reason) if answer == "unknown" else NoConnection(host, reason)

    def end(self, endpoint: Endpoint, stream: Stream, *, is_reusable: bool) -> None:
        """Keep the connection of an exchange that has ended, or close it; keep its session."""
        if isinstance(stream, TlsStream):
            self._tls.keep_session(stream, endpoint.host, endpoint.port)
        if is_reusable:
            self.idle.keep(endpoint, stream)
        else:
            stream.close()

    def spider_idle(self) -> None:
        """End a crawl in which no connection was possible."""
        if self._connectivity.is_offline:
            self._engine.machine_failed("no host could be reached: is this machine offline?")

    async def _open(self, endpoint: Endpoint, *, public_only: bool) -> Stream:
        try:
            stream = await self._connections.open(endpoint, public_only=public_only)
        except NotConnected as error:
            if endpoint.proxy is not None and self._kind is Kind.OWN:
                raise DownloadFailedError(str(error)) from error
            if error.blame == "either" and not self._connectivity.is_decided:
                await self._names.settle(SETTLING_SECONDS)  # an answer about another host decides
            raise self._failure(endpoint.host, error) from error
        except NoHandshake:
            self._record_tunnel(endpoint)
            raise
        self._record_tunnel(endpoint)
        return stream

    def _record_tunnel(self, endpoint: Endpoint) -> None:
        """Record that a proxy reached a host, or refused a tunnel to it for a reason of its own."""
        if endpoint.proxy is not None and endpoint.scheme == "https":
            self._connectivity.prove(self._clock.now(), _key_of(endpoint.proxy))

    def _failure(self, host: str, error: NotConnected) -> Exception:
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
            self._record_proof()

    def _record_proof(self) -> None:
        self._connectivity.prove(self._clock.now())


def _key_of(proxy: Proxy) -> str:
    """Return the place where a proxy listens, without its credentials."""
    return f"{proxy.host}:{proxy.port}"


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
    for read in (tls_of, proxies_of) if has_handler(settings) else ():
        try:
            read(settings)
        except BadSetting as error:
            yield error


def tls_of(settings: BaseSettings) -> Tls:
    """Return the TLS settings of connections. Raises BadSetting."""
    min_version = settings["DOWNLOAD_TLS_MIN_VERSION"]
    max_version = settings["DOWNLOAD_TLS_MAX_VERSION"]
    for name, version in (("MIN", min_version), ("MAX", max_version)):
        if version not in (None, *VERSIONS):
            expected = f"one of {', '.join(VERSIONS)}"
            raise bad_setting(f"DOWNLOAD_TLS_{name}_VERSION", version, expected)
    ciphers = settings["DOWNLOADER_CLIENT_TLS_CIPHERS"] or "DEFAULT"
    try:
        return Tls(min_version, max_version, ciphers)
    except ssl.SSLError:
        expected = "a list of ciphers as OpenSSL has it"
        raise bad_setting("DOWNLOADER_CLIENT_TLS_CIPHERS", ciphers, expected) from None


def _key_log() -> str | None:
    """Return the file for TLS keys that the environment names (SSLKEYLOGFILE), if it is usable."""
    file = None if sys.flags.ignore_environment else os.environ.get("SSLKEYLOGFILE")
    if not file:
        return None
    try:
        Path(file).open("ab").close()
    except OSError as error:
        logger.warning("the TLS keys cannot be written to %s: %s", file, error.strerror)
        return None
    return file


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
