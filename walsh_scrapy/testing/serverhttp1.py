"""The server's side of one HTTP/1.1 connection: plain, with TLS, or with TLS in a CONNECT tunnel.

The parser is lenient on purpose, because the log must show a crawler's errors: no Host or two of
them, `User-Agent : x`, a byte outside ASCII in the target, a folded line. h11 refuses most of these
requests and rewrites others, so no check would see them.
"""

import asyncio
import contextlib
import re
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, replace
from email.utils import formatdate
from http import HTTPStatus
from ssl import SSLContext, SSLObject
from typing import Final

from walsh_scrapy.testing.hit import DEFAULT_PORTS, FAILED, FULL, RESUMED, Headers, Hit, SharedLog
from walsh_scrapy.testing.site import Fault, Page, Raw, Reply, reply_of

_ABSOLUTE: Final = re.compile(r"(https?)://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_AUTHORITY: Final = re.compile(r"(?:.*@)?(\[[^\]]*\]|[^:]*)(?::(\d{1,5}))?")


class MalformedRequestError(ValueError):
    """The bytes are not the head of an HTTP/1.x request."""


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request as it was sent, with the order, case and repetition of its headers."""

    method: str
    target: str
    version: str
    headers: Headers

    def value(self, name: str) -> str:
        """Return the first header of this lower-case name, or an empty string."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    @property
    def keeps_alive(self) -> bool:
        """True if the client may send another request on this connection."""
        return self.version == "HTTP/1.1" and self.value("connection").lower() != "close"


def parse_request(head: bytes) -> Request:
    """Parse a request line and headers, up to the empty line. Each byte becomes one character.

    Raises MalformedRequestError if the first line is not a request line.
    """
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    match first.split(" "):
        case [method, target, "HTTP/1.1" | "HTTP/1.0" as version]:
            pairs = (line.partition(":") for line in lines)
            headers = tuple((name, value.strip(" \t")) for name, _, value in pairs)
            return Request(method, target, version, headers)
    raise MalformedRequestError(f"not a request line: {first!r}")


def hit_of(request: Request, client: int, scheme: str) -> Hit:
    """Return a hit that starts now, for the URL that the request's target and Host header form.

    `client` is the remote port, `scheme` the scheme of a target without one. Raises
    MalformedRequestError if neither the target nor the Host header names a host.
    """
    scheme, host, port, path = _address(request, scheme)
    now = time.monotonic()
    return Hit(
        started=now,
        ended=float("inf"),
        wall=time.time(),
        method=request.method,
        scheme=scheme,
        host=host,
        port=port,
        path=path,
        headers=request.headers,
        client=client,
    )


def render_head(status: int, headers: Headers) -> bytes:
    """Return the status line and the headers as bytes, with a Date header if there is none."""
    names = {name.lower() for name, _ in headers}
    dated = headers if "date" in names else (("Date", formatdate(usegmt=True)), *headers)
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in dated)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _address(request: Request, scheme: str) -> tuple[str, str, int, str]:
    """Return scheme, host, port and path; an absolute target overrides Host (RFC 9112 3.2.2)."""
    if request.method == "CONNECT":
        return ("https", *_authority(request.target, "https"), "")
    if absolute := _ABSOLUTE.fullmatch(request.target):
        scheme, authority, path = absolute.groups()
        scheme = scheme.lower()
        return (scheme, *_authority(authority, scheme), path if path[:1] == "/" else f"/{path}")
    return (scheme, *_authority(request.value("host"), scheme), request.target)


def _authority(text: str, scheme: str) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(text)
    if not match or not match[1]:
        raise MalformedRequestError(f"no host in {text!r}")
    return match[1].lower().rstrip("."), int(match[2] or DEFAULT_PORTS[scheme])


_PIECE: Final = 1 << 16
_SLICE_SECONDS: Final = 0.02
_BODILESS: Final = frozenset({204, 304})


class AbandonedError(ConnectionError):
    """The client has left before the end of the response."""


class ResponseWriter:
    """Sends one reply.

    `publish` writes the response to the log. It is called before the last bytes are sent, so that a
    client which has read a response finds it in the log, and again if sending fails. `last_seen` is
    the last moment (`time.monotonic`) at which the client was known to be connected.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        publish: Callable[["ResponseWriter"], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._publish = publish
        self.last_seen = time.monotonic()
        self.complete = False
        self.size = 0
        self.status = 0
        self.headers: Headers = ()
        # With a limit of 0, drain() waits until the kernel has all bytes, so whatever was written
        # is sent. With TLS the limit is 1, because at 0 asyncio takes an empty buffer for a full
        # one.
        self._in_tls = writer.get_extra_info("sslcontext") is not None
        writer.transport.set_write_buffer_limits(high=int(self._in_tls), low=0)

    async def send(self, page: Page, hit: Hit, latency: float = 0.0) -> bool:
        """Send the page's reply, `latency` seconds later than the reply's own delay.

        Return True if the connection can be used for another request.
        """
        try:
            reply = reply_of(page, hit)
            await self._pause(latency)
            if isinstance(reply, Raw):
                return await self._send_raw(reply)
            await self._pause(reply.delay)
            if reply.fault in (Fault.RESET, Fault.CLOSE):
                self._disconnect(reply.fault)
            else:
                await self._send(reply, hit)
        except BaseException:
            self.complete = False
            self._publish(self)
            raise
        return self.complete and not _says_close(self.headers)

    async def _send(self, reply: Reply, hit: Hit) -> None:
        body = reply.content()
        self.status = reply.status
        self.headers = _with_content_length(reply, body)
        if hit.method == "HEAD" or reply.status in _BODILESS:
            body = b""
        if reply.fault is Fault.TRUNCATE:
            body = body[: len(body) // 2]
        head = render_head(self.status, self.headers)
        await self._send_steps(
            _steps(head, body, reply.drip), len(body), complete=reply.fault is None
        )

    async def _send_raw(self, raw: Raw) -> bool:
        self.status = raw.status
        steps = raw.steps()
        await self._send_steps(steps, sum(len(data) for _, data in steps), complete=True)
        if raw.then == "reset":
            self._disconnect(Fault.RESET)
        return raw.then == "keep"

    async def _send_steps(
        self, steps: Sequence[tuple[float, bytes]], size: int, *, complete: bool
    ) -> None:
        """Write each piece after its delay, and log the response before the last piece."""
        *earlier, (pause, last) = steps
        for seconds, data in earlier:
            await self._pause(seconds)
            await self._write(data)
        await self._pause(pause)
        self.size = size
        self.complete = complete
        await self._write(last, publish=True)

    async def _write(self, data: bytes, *, publish: bool = False) -> None:
        # Before the write, because the client may have read the data and left when it returns.
        self.last_seen = time.monotonic()
        if publish:
            self._publish(self)
        self._writer.write(data)
        await self._writer.drain()
        if self._in_tls:
            await asyncio.sleep(0)  # because with TLS drain() does not notice a closed socket

    async def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            await asyncio.sleep(min(_SLICE_SECONDS, end - now))
            if self._reader.at_eof() or self._writer.is_closing():
                raise AbandonedError
            self.last_seen = now

    def _disconnect(self, fault: Fault) -> None:
        if fault is Fault.RESET:
            raw: socket.socket = self._writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.last_seen = time.monotonic()
        self._publish(self)
        self._writer.transport.abort()


def _with_content_length(reply: Reply, body: bytes) -> Headers:
    pairs = reply.header_pairs()
    if reply.status in _BODILESS or any(name.lower() == "content-length" for name, _ in pairs):
        return pairs
    return (*pairs, ("Content-Length", str(len(body))))


def _steps(head: bytes, body: bytes, drip: float) -> list[tuple[float, bytes]]:
    """Return the pieces to write, each with the seconds to wait before it."""
    size = max(1, round(len(body) * _SLICE_SECONDS / drip)) if drip else _PIECE
    cut = [body[start : start + size] for start in range(0, len(body), size)]
    if drip:
        return [(0.0, head), *((drip * len(piece) / len(body), piece) for piece in cut)]
    first, *rest = cut or [b""]
    return [(0.0, head + first), *((0.0, piece) for piece in rest)]


def _says_close(headers: Headers) -> bool:
    return ("connection", "close") in {(name.lower(), value.lower()) for name, value in headers}


_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


@dataclass
class Connection:
    """Answers the requests of one connection, one after the other, until one side closes it.

    `page_for` returns the page for a hit, and the hit with its number on that page. `context_for`
    returns the TLS context for a CONNECT, or None to refuse the tunnel. `on_handshake` is called
    with the kind of each TLS handshake in a tunnel.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    page_for: Callable[[Hit], tuple[Hit, Page]]
    log: SharedLog[Hit]
    _: KW_ONLY
    client: int  #: the remote port
    scheme: str = "http"  #: the scheme of targets without one
    context_for: Callable[[Hit], SSLContext | None] = lambda _: None
    on_handshake: Callable[[str], None] = lambda _: None
    latency: float = 0.0  #: seconds that are added to each response

    async def serve(self) -> None:
        """Answer until the connection ends. Raises the exceptions of the test's pages."""
        try:
            while await self._answer():
                pass
        except NoHandshakeError:
            return  # without wait_closed: asyncio never reports the end of such a connection
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left; the log shows how much was sent
        finally:
            self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def _answer(self) -> bool:
        """Read one request and answer it; return True if the connection stays open."""
        try:
            request = parse_request(await self.reader.readuntil(b"\r\n\r\n"))
            await self.reader.readexactly(int(request.value("content-length") or 0))
            hit = hit_of(request, self.client, self.scheme)
        except (MalformedRequestError, ValueError, asyncio.LimitOverrunError):
            self.writer.write(_BAD_REQUEST)
            return False
        if hit.method == "CONNECT" and (context := self.context_for(hit)):
            return await self._open_tunnel(hit, context)
        hit, page = self.page_for(hit)
        key = self.log.open(hit)

        def publish(response: ResponseWriter) -> None:
            self.log.change(key, lambda _: _with_response(hit, response))

        response = ResponseWriter(self.reader, self.writer, publish)
        reusable = await response.send(page, hit, self.latency)
        return reusable and request.keeps_alive

    async def _open_tunnel(self, hit: Hit, context: SSLContext) -> bool:
        """Open a tunnel and start TLS in it; if the handshake fails, log the hit with status 0."""
        key = self.log.open(hit)
        secured = False
        # If the handshake fails: the last moment at which the client was known to be connected.
        ended = time.monotonic()
        self.writer.write(_ESTABLISHED)
        try:
            await self.writer.start_tls(context)
            secured = True
        except OSError as error:
            raise NoHandshakeError from error
        finally:
            self.on_handshake(handshake_of(self.writer) or FAILED)
            logged = replace(hit, ended=ended, status=200 if secured else 0, complete=secured)
            self.log.change(key, lambda _: logged)
        self.scheme = "https"
        return True


def _with_response(hit: Hit, response: ResponseWriter) -> Hit:
    return replace(
        hit,
        ended=response.last_seen,
        complete=response.complete,
        status=response.status,
        answer=response.headers,
        size=response.size,
    )


class NoHandshakeError(Exception):
    """The client rejected the certificate, or left, before the TLS handshake was complete."""


@asynccontextmanager
async def streams(
    accepted: socket.socket, context: SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a reader and a writer for an accepted socket, and close the socket afterwards.

    With a context they use TLS. Raises NoHandshakeError if the handshake fails.
    """
    writers: list[asyncio.StreamWriter] = []
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader, lambda _, writer: writers.append(writer))
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=context)
    except OSError as error:
        raise NoHandshakeError from error
    try:
        yield reader, writers[0]
    finally:
        writers[0].transport.abort()  # close() would wait for a client that does not read


def handshake_of(writer: asyncio.StreamWriter) -> str:
    """Return the kind of a connection's TLS handshake: FULL, RESUMED, or "" without TLS."""
    tls: SSLObject | None = writer.get_extra_info("ssl_object")
    if tls is None:
        return ""
    return RESUMED if tls.session_reused else FULL
