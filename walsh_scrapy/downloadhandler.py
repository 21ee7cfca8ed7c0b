"""A download handler that sends each request once, over at most one connection at a time (R4).

The headers that our middlewares guarantee are set once more where a request is sent, because other
middlewares may have changed them. There a request is signed too, if the crawl has a key.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import sys
from functools import cached_property
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urldefrag, urlsplit

from cryptography.x509 import load_der_x509_certificate
from scrapy import signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.exceptions import (
    DownloadCancelledError,
    DownloadFailedError,
    DownloadTimeoutError,
    ResponseDataLossError,
    StopDownload,
)
from scrapy.http import Headers
from scrapy.responsetypes import responsetypes
from twisted.internet.ssl import Certificate

from walsh_scrapy.crawl.context import PerLoop
from walsh_scrapy.crawl.documents.downloads import seconds_left
from walsh_scrapy.crawl.messages import NEVER_SENT, conditions_of, host_field, may_be_complete
from walsh_scrapy.crawl.network import CONNECT_SECONDS, proxies_of, server_of
from walsh_scrapy.crawl.parts import Crawl
from walsh_scrapy.crawl.startup import Gate, Kind
from walsh_scrapy.crawl.ticket import DATA_LOSS, note, rank_of, ticket_of
from walsh_scrapy.exceptions import NotReached, ProxyTrouble
from walsh_scrapy.options import BadSetting, bad_setting
from walsh_scrapy.policy.connectivity import MAX_FAILED_HOSTS, proxy_error
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.pacing import MAX_IDLE_CONNECTIONS
from walsh_scrapy.policy.robots.robotstxt import MAX_OCTETS
from walsh_scrapy.policy.urls import host_of, is_public
from walsh_scrapy.policy.wording import cut, format_bytes
from walsh_scrapy.wire import stalls
from walsh_scrapy.wire.connections import (
    Connections,
    IdleConnections,
    check_public,
    credentials_refused,
)
from walsh_scrapy.wire.endpoints import NoConnection, NoHandshake, NotConnected
from walsh_scrapy.wire.http1 import VERSIONS, HttpExchange, Tls, TlsStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    import h11
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.settings import BaseSettings

    from walsh_scrapy.crawl.messages import Fields
    from walsh_scrapy.crawl.ticket import Ticket
    from walsh_scrapy.wire.endpoints import Endpoint, Proxy
    from walsh_scrapy.wire.http1 import Stream

logger = logging.getLogger(__name__)

#: Seconds after which a server has noticed that the connection was closed during its response. The
#: delay of the host is measured from then, because for the server the exchange ends only then.
CLOSING_SECONDS: Final = 0.02
_WITH_BODY = ("POST", "PUT", "PATCH")
#: Shared by all serial crawls of this process, because R4 allows it one connection.
_SERIAL: Final = PerLoop(lambda: IdleConnections(1, alone=True))
#: The maximum of characters that are quoted of a header field of a proxy.
_MAX_FIELD_CHARACTERS: Final = 100
#: Seconds to wait for other lookups, of which one may prove that the network works.
SETTLING_SECONDS: Final = 1.0


class DownloadHandler(BaseDownloadHandler):
    """Sends each request once, so that every retry passes the middlewares again.

    Scrapy's own handler sends a request again by itself when a kept connection breaks. Here it
    fails, and a retry waits for its host, and opens a new connection.

    With ``WALSH_SERIAL`` the process has at most one connection open. A host without a valid
    certificate gets no request (``BadCertificate``). Host and the identity headers are set here,
    because a project's middleware may change them after IdentityMiddleware.
    """

    # Made for the first request, after the settings were checked: of an error before that, Scrapy
    # would only log that the handler is not available.
    lazy = True

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        crawl = Crawl.of(crawler)  # Scrapy builds handlers with the crawler only
        self._network = crawl.network
        # Shared by the handlers of a crawl: Scrapy makes one for each scheme.
        self._connections = crawl.part(HandlerConnections)
        self._clock = crawl.context.clock
        self._timeout = crawler.settings.getfloat("DOWNLOAD_TIMEOUT")
        self._max_bytes = crawler.settings.getint("DOWNLOAD_MAXSIZE")
        self._bind_address = crawler.settings["DOWNLOAD_BIND_ADDRESS"]
        self._body = BodyReader(crawler)
        self._last_headers = LastHeaders(crawl)

    @classmethod
    def problems(cls, settings: BaseSettings) -> Iterator[BadSetting]:
        """Yield an error for each setting that this handler cannot use."""
        for read in (tls_of, proxies_of):
            try:
                read(settings)
            except BadSetting as error:
                yield error

    async def download_request(self, request: Request) -> Response:
        """Return the response to a request.

        Raises Unreachable, Denied, TooLate, MachineTrouble and the exceptions of Scrapy's handlers.
        """
        # The URL is read only once, because a middleware may change it while the request waits.
        url = request.url
        proxy = self._network.route_of(request)
        ticket = ticket_of(request)
        note(request, sent=None)
        endpoint = endpoint_of(url, proxy, request.meta.get("bindaddress") or self._bind_address)
        if ticket.rank is Rank.TARGET:  # robots.txt has its own limit, beyond which it is cut off
            self._lower_limits(request)
        timeout: float = request.meta.get("download_timeout") or self._timeout
        try:
            async with stalls.limit(timeout), self._connections.idle.turn:
                response = await self._exchange(request, url, ticket, endpoint)
        except TimeoutError as error:
            raise DownloadTimeoutError(
                f"Getting {url} took longer than {timeout} seconds."
            ) from error
        self._connections.check_answer(endpoint, request, response)
        return response

    async def close(self) -> None:
        """Close the idle connections."""
        self._connections.idle.close()

    def _lower_limits(self, request: Request) -> None:
        """Lower the timeout and the maximum size in a request's ``meta`` to the settings."""
        limits = {"download_timeout": self._timeout, "download_maxsize": self._max_bytes}
        for name, maximum in limits.items():
            limit = request.meta.get(name)
            if maximum and limit is not None and not 0 < limit <= maximum:
                request.meta[name] = maximum

    async def _exchange(
        self, request: Request, url: str, ticket: Ticket, endpoint: Endpoint
    ) -> Response:
        begun = self._clock.monotonic()
        stalled = stalls.stalled()
        stream = await self._connections.connect(
            endpoint, public_only=ticket.public_only, is_new=ticket.on_new_connection
        )
        exchange = HttpExchange(stream)
        try:
            seconds_left(url, ticket, self._clock.moment())  # raises TooLate
            message = message_of(request, url, endpoint, self._last_headers.fields(request, url))
            started = self._clock.monotonic()
            connecting = started - begun - (stalls.stalled() - stalled)
            note(request, connecting=connecting, sent=started, stalled=stalls.stalled())
            await exchange.send(*message, request.body)
            head = await exchange.head()
            request.meta["download_latency"] = self._clock.monotonic() - started
            return await self._body.read(request, url, exchange, head, stream)
        except OSError as error:
            raise DownloadFailedError(f"the connection broke: {error.strerror or error}") from error
        finally:
            self._connections.end(endpoint, stream, is_reusable=exchange.is_reusable)
            if not exchange.is_over:
                note(request, on_new_connection=True)  # if it is sent again
                await asyncio.sleep(CLOSING_SECONDS)


# ---- connections ----


class HandlerConnections:
    """The connections of our handler in one crawl: TLS sessions, and idle connections."""

    def __init__(self, crawl: Crawl) -> None:
        self._kind = crawl.kind
        self._network = crawl.network
        self._engine = crawl.engine
        self._clock = crawl.context.clock
        self._connectivity = crawl.context.connectivity
        self._is_serial = crawl.options.serial
        self._tls = tls_of(crawl.settings)
        if keys := _key_log():
            self._tls.log_keys(keys)
        find, proven = self._network.names.find, self._network.record_proof
        self._connections = Connections(find, self._tls, CONNECT_SECONDS, proven)

    @cached_property
    def idle(self) -> IdleConnections:
        """The connections that are kept alive; serial crawls have at most one together."""
        return (
            _SERIAL.get() if self._is_serial else IdleConnections(MAX_IDLE_CONNECTIONS, alone=False)
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
            raise self._network.failure(host, error) from error
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

    async def _open(self, endpoint: Endpoint, *, public_only: bool) -> Stream:
        try:
            stream = await self._connections.open(endpoint, public_only=public_only)
        except NotConnected as error:
            if endpoint.proxy is not None and self._kind is Kind.OWN:
                raise DownloadFailedError(str(error)) from error
            if error.blame == "either" and not self._connectivity.is_decided:
                await self._network.names.settle(
                    SETTLING_SECONDS
                )  # an answer about another host decides
            raise self._network.failure(endpoint.host, error) from error
        except NoHandshake:
            self._record_tunnel(endpoint)
            raise
        self._record_tunnel(endpoint)
        return stream

    def _record_tunnel(self, endpoint: Endpoint) -> None:
        """Record that a proxy reached a host, or refused a tunnel to it for a reason of its own."""
        if endpoint.proxy is not None and endpoint.scheme == "https":
            self._connectivity.prove(self._clock.now(), _key_of(endpoint.proxy))


def _key_of(proxy: Proxy) -> str:
    """Return the place where a proxy listens, without its credentials."""
    return f"{proxy.host}:{proxy.port}"


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


# ---- messages ----


def endpoint_of(
    url: str, proxy: Proxy | None = None, bind_address: str | tuple[str, int] | None = None
) -> Endpoint:
    """Return the endpoint to connect to for a URL.

    A proxy gets a connection for each host: some send all requests of a connection to the host of
    the first one. ``bind_address`` is an address of this machine. Raises the exceptions of
    ``server_of``.
    """
    server = server_of(url)
    local = (bind_address, 0) if isinstance(bind_address, str) else bind_address
    return server._replace(proxy=proxy, bind_address=local)


def message_of(
    request: Request, whole_url: str, endpoint: Endpoint, fixed: Fields
) -> tuple[bytes, bytes, list[tuple[bytes, bytes]]]:
    """Return method, target and header fields of a request for a URL, as they are sent.

    Host is the authority of the URL, whatever the request says. ``fixed`` are fields that are sent
    with these values only.
    """
    url = urlsplit(urldefrag(whole_url)[0])
    proxy = endpoint.proxy
    target = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
    headers = request.headers.copy()
    authorization = None
    if proxy and endpoint.scheme == "http":  # the proxy itself reads this request
        target = f"{url.scheme}://{host_field(url.netloc)}{target}"
        authorization = proxy.authorization
    for name, value in {"Host": None, "Proxy-Authorization": authorization, **fixed}.items():
        headers.pop(name, None)
        if value is not None:
            headers[name] = value
    if (request.body or request.method in _WITH_BODY) and "Content-Length" not in headers:
        headers["Content-Length"] = str(len(request.body))
    fields = [(name, value) for name, values in headers.items() for value in values]
    fields.insert(0, (b"Host", host_field(url.netloc).encode("ascii")))
    return request.method.encode("ascii"), target.encode("ascii"), fields


class LastHeaders:
    """The headers of IdentityMiddleware and ConditionalMiddleware, on the request that is sent.

    If the crawl has a key, each request over https is also signed, at the moment of sending. So a
    retry and a hop have a new signature, and no request is changed by it.
    """

    def __init__(self, crawl: Crawl) -> None:
        self._clock = crawl.context.clock
        self._signer = crawl.signer
        self._identity: Fields = {}
        if Gate.IDENTITY in crawl.gates:
            user_agent = crawl.options.user_agent
            self._identity = {**dict.fromkeys(NEVER_SENT[crawl.kind]), "User-Agent": user_agent}
        self._is_conditional = Gate.CONDITIONAL in crawl.gates

    def fields(self, request: Request, url: str) -> Fields:
        """Return the header fields of a request for a URL."""
        last = dict(self._identity)
        if self._is_conditional or rank_of(request) is not Rank.TARGET:
            last |= conditions_of(request)
        if self._signer is not None:
            last |= self._signer.fields(url, self._clock.now())
        return last


class BodyReader:
    """Reads bodies into responses, with Scrapy's signals and limits of size."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        settings = crawler.settings
        self._max_bytes = settings.getint("DOWNLOAD_MAXSIZE")
        self._warn = settings.getint("DOWNLOAD_WARNSIZE")
        self._fail_on_loss = settings.getbool("DOWNLOAD_FAIL_ON_DATALOSS")
        self._shows_tls = settings.getbool("DOWNLOADER_CLIENT_TLS_VERBOSE_LOGGING")

    async def read(
        self,
        request: Request,
        url: str,
        exchange: HttpExchange,
        head: h11.Response,
        stream: Stream,
    ) -> Response:
        """Return the response of a URL that begins with ``head``.

        Raises DownloadCancelledError for a body that is too large, ResponseDataLossError for one
        that is cut off, DownloadTimeoutError for one that stalls. An error response stays that
        error, whatever its body, and a feed is read if its end came before the cut.
        """
        note(request, answered=head.status_code)
        if self._shows_tls and isinstance(stream, TlsStream):
            _log_tls(url, stream)
        headers = Headers(head.headers.raw_items())
        length = headers.get("Content-Length")
        expected = int(length) if length and length.isdigit() else None
        body = bytearray()
        flags: list[str] = []
        max_bytes: int = request.meta.get("download_maxsize", self._max_bytes)
        size_warning = SizeWarning(request, self._warn)
        size_warning.see(expected or 0, "Expected to receive")
        if head.status_code < 400:
            _check_size(expected or 0, max_bytes)
        # A listener must not be able to change the headers of a document.
        shown = headers if rank_of(request) is Rank.TARGET else headers.copy()
        stop = self._signal(signals.headers_received, request, headers=shown, body_length=expected)
        try:
            if stop is None:
                stop = await self._collect(request, exchange, body, max_bytes, size_warning)
                if head.status_code < 400:
                    _check_size(len(body), max_bytes)
        except (DownloadCancelledError, DownloadTimeoutError, ResponseDataLossError) as error:
            del body[max_bytes or len(body) :]
            if head.status_code < 400 and not self._may_be_read(request, headers, body, error):
                raise
            flags.append(DATA_LOSS)
        if stop is not None:
            flags.append("download_stopped")
        url = urldefrag(url)[0]
        content = bytes(body)
        response = responsetypes.from_args(headers=headers, url=url, body=content)(
            url,
            status=head.status_code,
            headers=headers,
            body=content,
            flags=flags,
            request=request,
            certificate=_certificate(stream),
            ip_address=ip_address(stream.peer.partition("%")[0]),
            protocol=f"HTTP/{head.http_version.decode('ascii')}",
        )
        if stop is not None and stop.fail:
            stop.response = response
            raise stop
        return response

    def _may_be_read(
        self, request: Request, headers: Headers, body: bytearray, error: Exception
    ) -> bool:
        """Return True if the part of a body that came before an error may be read.

        That is a feed whose end came, although the server announced more, or sent more than our
        limit; or any part of a body, if the project wants that (``DOWNLOAD_FAIL_ON_DATALOSS``).
        """
        if isinstance(error, DownloadTimeoutError):
            return False
        fails = request.meta.get("download_fail_on_dataloss", self._fail_on_loss)
        if isinstance(error, ResponseDataLossError) and not fails:
            return True
        return may_be_complete(request, headers, bytes(body), self._max_bytes or sys.maxsize)

    async def _collect(
        self,
        request: Request,
        exchange: HttpExchange,
        body: bytearray,
        max_bytes: int,
        size_warning: SizeWarning,
    ) -> StopDownload | None:
        """Append the body to ``body``, until it is too large or is stopped.

        A listener may stop a page. A robots.txt is stopped after 500 KiB (RFC 9309, 2.5).
        """
        is_robots = rank_of(request) is Rank.ROBOTS
        async for piece in exchange.body():
            body += piece
            size_warning.see(len(body), "Received")
            if stop := self._signal(signals.bytes_received, request, data=piece):
                return stop
            if is_robots and len(body) > MAX_OCTETS:
                return StopDownload(fail=False)
            if max_bytes and len(body) > max_bytes:
                break
        return None

    def _signal(self, signal: object, request: Request, **arguments: Any) -> StopDownload | None:  # noqa: ANN401
        """Send a signal; return the StopDownload of a listener, if one was raised.

        No listener can stop the download of robots.txt, the blocklist or its schema.
        """
        results = self._crawler.signals.send_catch_log(
            signal,
            request=request,
            spider=self._crawler.spider,
            dont_log=StopDownload,
            **arguments,
        )
        if rank_of(request) is not Rank.TARGET:
            return None
        for listener, result in results:
            stop = getattr(result, "value", None)
            if isinstance(stop, StopDownload):
                name = getattr(listener, "__qualname__", listener)
                logger.debug("Download stopped for %s from signal handler %s", request, name)
                return stop
        return None


class SizeWarning:
    """The warning about a large body, once per response, in the words of Scrapy's handler.

    ``min_bytes`` is ``DOWNLOAD_WARNSIZE``; 0 means no warning.
    """

    def __init__(self, request: Request, min_bytes: int) -> None:
        self._request = request
        self._min_bytes: int = request.meta.get("download_warnsize", min_bytes)

    def see(self, size: int, verb: str) -> None:
        """Log the warning if a size is large; ``verb`` begins it."""
        if not self._min_bytes or size <= self._min_bytes:
            return
        words = "%s %d bytes which is larger than download warn size (%d) in request %s."
        logger.warning(words, verb, size, self._min_bytes, self._request)
        self._min_bytes = 0


def _check_size(size: int, max_bytes: int) -> None:
    if max_bytes and size > max_bytes:
        raise DownloadCancelledError(f"more than {format_bytes(max_bytes)}")


def _certificate(stream: Stream) -> Certificate | None:
    """Return the certificate of a host as Scrapy's handler does."""
    if isinstance(stream, TlsStream):
        return Certificate.load(stream.certificate)
    return None


def _log_tls(url: str, stream: TlsStream) -> None:
    """Log protocol, cipher and certificate of a connection, in the words of Scrapy's handlers."""
    host = urlsplit(url).hostname
    words = "SSL connection to %s using protocol %s, cipher %s"
    logger.debug(words, host, stream.version, stream.cipher)
    certificate = load_der_x509_certificate(stream.certificate)
    issuer = certificate.issuer
    subject = certificate.subject
    words = 'SSL connection certificate: issuer "%s", subject "%s"'
    logger.debug(words, issuer.rfc4514_string(), subject.rfc4514_string())
