"""From Scrapy's requests to the bytes of HTTP, and from these to its responses with their bodies.

The headers that our middlewares guarantee are set once more where a request is sent, because other
middlewares may have changed them. There a request is signed too, if the crawl has a key.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
from base64 import b64encode
from functools import lru_cache
from ipaddress import ip_address
from itertools import takewhile
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urldefrag, urlsplit

from cryptography.x509 import load_der_x509_certificate
from scrapy import signals
from scrapy.exceptions import (
    DownloadCancelledError,
    DownloadFailedError,
    DownloadTimeoutError,
    ResponseDataLossError,
    StopDownload,
    UnsupportedURLSchemeError,
)
from scrapy.http import Headers, TextResponse
from scrapy.responsetypes import responsetypes
from twisted.internet.ssl import Certificate

from walsh_scrapy.crawl.startup import Gate, Kind
from walsh_scrapy.crawl.ticket import (
    DATA_LOSS,
    content_type_of,
    note,
    rank_of,
    subject_of,
    ticket_of,
    visit_of,
)
from walsh_scrapy.exceptions import BadAnswer
from walsh_scrapy.options import BadSetting
from walsh_scrapy.policy.frontier import Rank
from walsh_scrapy.policy.robots.robotstxt import MAX_OCTETS
from walsh_scrapy.policy.urls import host_of
from walsh_scrapy.policy.wording import cut, format_bytes, printable
from walsh_scrapy.wire.codings import CODING_ERRORS, GZIP, KNOWN, unpack
from walsh_scrapy.wire.connections import Endpoint
from walsh_scrapy.wire.http1 import TlsStream

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import h11
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.statscollectors import StatsCollector

    from walsh_scrapy.crawl.parts import Crawl
    from walsh_scrapy.options import Options
    from walsh_scrapy.policy.signing import PrivateKey, RequestSigner
    from walsh_scrapy.wire.connections import Proxy
    from walsh_scrapy.wire.http1 import HttpExchange, Stream

logger = logging.getLogger(__name__)

_PORTS = {"http": 80, "https": 443}
_WITH_BODY = ("POST", "PUT", "PATCH")

#: Header fields by name; None stands for one that is not sent.
Fields: TypeAlias = "Mapping[str, str | bytes | None]"


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


def host_field(netloc: str) -> str:
    """Return the Host field for the authority of a URL: without user info."""
    return netloc.rpartition("@")[2]


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


#: Headers that would link visits to each other, or carry credentials (R1), by the kind of crawl.
NEVER_SENT: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.DECLARED: ("Cookie", "Cookie2", "Referer", "Authorization"),
    Kind.OWN: (),
}


def conditions_of(request: Request) -> Fields:
    """Return both headers of a conditional request (R7).

    Their values are the validators that were stored for the URL of the request.
    """
    validators = ticket_of(request).validators
    is_of_url = validators is not None and validators.url == request.url
    return {
        "If-None-Match": validators.etag if validators and is_of_url else None,
        "If-Modified-Since": validators.last_modified if validators and is_of_url else None,
    }


def set_conditions(request: Request) -> None:
    """Set the validators of the URL of a request, and remove those that a redirect copied along."""
    for name, value in conditions_of(request).items():
        request.headers.pop(name, None)
        if value is not None:
            request.headers[name] = value


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


#: A PEM file of an Ed25519 key has 119 bytes; a larger file is something else.
_MAX_KEY_BYTES: Final = 16_384
_NONCE_BYTES: Final = 32
#: Without a signature, and over plain http, a request has none of these, whoever set them.
_UNSIGNED: Final = {"Signature-Agent": None, "Signature-Input": None, "Signature": None}


class UnusableKey(ValueError):
    """A file is not a usable key; the message is a sentence that names the file."""


class Signer:
    """Signs the requests of a crawl."""

    def __init__(self, signer: RequestSigner) -> None:
        self._signer = signer
        self.key_id = signer.key.public.thumbprint

    def fields(self, url: str, now: float) -> Fields:
        """Return the fields of one request that is sent now, in epoch seconds.

        Each call has another nonce. Over plain http anybody on the way could use the signature.
        """
        parts = urlsplit(url)
        if parts.scheme != "https":
            return _UNSIGNED
        nonce = b64encode(token_bytes(_NONCE_BYTES)).decode("ascii")
        return self._signer.fields(host_field(parts.netloc), now, nonce)


def read_signer(options: Options) -> Signer | None:
    """Return the signer of a crawl, None without a key.

    Raises BadSetting for a key that cannot be read, is of another type, or may be read by others.
    """
    if not options.signing_key:
        return None
    # Crawls that sign nothing do not load the signer: 7 ms.
    from walsh_scrapy.policy.signing import RequestSigner  # noqa: PLC0415

    try:
        key = read_key(Path(options.signing_key))
    except UnusableKey as error:
        raise BadSetting(f"WALSH_SIGNING_KEY: {error}") from None
    return Signer(
        RequestSigner(key=key, agent=options.signature_agent, form=options.signature_form)
    )


def read_key(path: Path) -> PrivateKey:
    """Return the private key in a file. Raises UnusableKey."""
    from walsh_scrapy.policy.signing import BadKey, PrivateKey  # noqa: PLC0415 - as above

    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            pem = file.read(_MAX_KEY_BYTES) if stat.S_ISREG(mode) else b""
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise UnusableKey(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UnusableKey(
            f"{path} is open to other users of this machine (mode {stat.S_IMODE(mode):o}); "
            f"run: chmod 600 {path}"
        )
    try:
        return PrivateKey.from_pem(pem)
    except BadKey as error:
        raise UnusableKey(f"{path} {error}") from None


# ---- bodies with a Content-Encoding, or cut off ----


#: The maximum number of codings of one body. Servers use one; a hostile file can contain itself.
MAX_CODINGS: Final = 4
#: The codings that are requested.
ACCEPTED: Final = b"gzip, deflate"
#: Codings that some servers use although they were not requested. They are refused, so that a
#: robots.txt in one of them does not count as a file without rules.
UNREQUESTED: Final = frozenset({b"br", b"zstd"})
#: What servers write although it is no coding: RFC 9110 8.4.1 reserves `identity` for requests, the
#: others belong to other fields.
_NO_CODING: Final = re.compile(
    rb"identity|none|binary|[78]bit|"
    rb"(?:x-)?(?:utf|iso|ucs|windows|win|cp|us-ascii|ascii|ansi|latin|koi|gb|big5|s(?:hift)?[_-]?jis|"
    rb"euc|tis|mac|ks_?c|unicode)[\w.:-]*+"
)
_ONE_GZIP: Final[tuple[list[bytes], ...]] = ([], [b"gzip"], [b"x-gzip"])
#: The maximum number of characters of a Content-Encoding in a message.
MAX_CODINGS_CHARACTERS: Final = 60


def unpack_response(
    request: Request, response: Response, max_bytes: int, stats: StatsCollector
) -> Response:
    """Return a response with its body unpacked, to ``max_bytes`` at most (0: no limit).

    Raises BadAnswer if the body does not have the announced Content-Encoding, or is too large. An
    error response stays that error, whatever its body.
    """
    codings = _find_codings(request, response.headers, response.body)
    if not codings:
        response.headers.pop("Content-Encoding", None)
        return response
    try:
        return _unpack_body(request, response, codings, max_bytes or sys.maxsize, stats)
    except (*CODING_ERRORS, BadAnswer) as error:
        if response.status >= 400:
            return response.replace(body=b"")
        if isinstance(error, BadAnswer):
            raise
        problem = str(error).rpartition(": ")[2]  # zlib puts its number first
        announced = codings_text(b",".join(codings))
        reason = f"the body of {response.url} is not {announced} as announced: {problem}"
        raise BadAnswer(response, reason) from error


def may_be_complete(request: Request, headers: Headers, body: bytes, max_bytes: int) -> bool:
    """Return True if a response that was cut off may have a complete feed; its parser decides.

    ``body`` is the part that came. Compressed data must be complete, because its checksum is at its
    end.
    """
    names = _find_codings(request, headers, body)
    visit = visit_of(request)
    if visit is None or not visit.needs_end or len(names) > MAX_CODINGS:
        return False
    try:
        unpacked = unpack(body, [name for name in reversed(names) if name in KNOWN], max_bytes)
    except CODING_ERRORS:
        return False
    return unpacked.is_complete and visit.may_have_ended(unpacked.body)


def codings_of(fields: Iterable[bytes]) -> list[bytes]:
    """Return the codings that Content-Encoding fields name, the one that was applied first first.

    Names are in lower case. Empty members, `identity` and names of charsets are left out.

    >>> codings_of([b"GZIP, identity", b"utf-8"])
    [b'gzip']
    """
    names = [name.strip().lower() for name in b",".join(fields).split(b",")]
    return [name for name in names if name and not _NO_CODING.fullmatch(name)]


def _find_codings(request: Request, headers: Headers, body: bytes) -> list[bytes]:
    """Return the codings of a body; for sources and documents its first bytes decide about gzip."""
    codings = codings_of(headers.getlist("Content-Encoding"))
    if (subject_of(request) or rank_of(request) is not Rank.TARGET) and codings in _ONE_GZIP:
        # Some servers announce gzip and send a plain body, or the other way round.
        return [b"gzip"] if body.startswith(GZIP) else []
    return codings


def _unpack_body(
    request: Request, response: Response, names: list[bytes], max_bytes: int, stats: StatsCollector
) -> Response:
    if len(names) > MAX_CODINGS:
        raise EOFError(f"at most {MAX_CODINGS} are undone")
    if response.body and UNREQUESTED.intersection(names):
        coding = f"{codings_text(b','.join(names))}, which was not requested"
        raise BadAnswer(response, f"the body of {response.url} is {coding}")
    undone = list(takewhile(lambda name: name in KNOWN, reversed(names)))
    remaining = names[: len(names) - len(undone)]
    counted = counted_bytes(request, response.headers)
    body, is_complete = unpack(response.body, undone, counted or max_bytes + 1)
    visit = visit_of(request)
    if not is_complete and visit is not None and visit.needs_end:
        raise EOFError("its end is missing or damaged")
    if len(body) > max_bytes and visit is not None and visit.may_have_ended(body[:max_bytes]):
        body = body[:max_bytes]
        is_complete = False
    if len(body) > max_bytes:
        problem = f"the response from {host_of(response.url)} is too large"
        raise BadAnswer(response, f"{problem}: more than {format_bytes(max_bytes)} when unpacked")
    if undone:
        stats.inc_value("httpcompression/response_count")
        stats.inc_value("httpcompression/response_bytes", len(body))
    response.headers["Content-Encoding"] = remaining
    if not remaining:
        del response.headers["Content-Encoding"]
    answer = _replace_body(response, body)
    if remaining:
        coding = codings_text(b", ".join(remaining))
        logger.warning("the body of %s is not unpacked: no such coding, %s", response.url, coding)
    if not is_complete and subject_of(request):
        answer.flags.append(DATA_LOSS)
    return answer


def counted_bytes(request: Request, headers: Headers) -> int | None:
    """Return the number of bytes of a body that are read; None if all are.

    Of a robots.txt that is one more than its limit, so that its parser sees the limit exceeded.
    """
    if rank_of(request) is Rank.ROBOTS:
        return MAX_OCTETS + 1
    visit = visit_of(request)
    return visit.max_bytes(content_type_of(headers)) if visit else None


def _replace_body(response: Response, body: bytes) -> Response:
    """Return the response with its unpacked body, in the class for that body."""
    kind = responsetypes.from_args(headers=response.headers, url=response.url, body=body)
    # The encoding is found anew: that of the compressed bytes means nothing.
    changes: dict[str, Any] = {"encoding": None} if issubclass(kind, TextResponse) else {}
    return response.replace(cls=kind, body=body, **changes)


def codings_text(codings: bytes) -> str:
    """Return a Content-Encoding for a message."""
    return cut(printable(codings.decode("latin-1")), MAX_CODINGS_CHARACTERS)
