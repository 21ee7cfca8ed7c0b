"""One connection to a web of a test, over HTTP/1.1: plain, TLS, or TLS in a CONNECT tunnel.

The reader is lenient on purpose. A log must show the errors of a crawler: no Host or two of them,
`User-Agent : x`, a byte outside ASCII in the target, a folded line. h11 refuses most of these
requests and rewrites others, so the check would not see them.
"""

import asyncio
import contextlib
import re
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
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
    """The head of a request as it was sent: order, case and repeated headers are kept."""

    method: str
    target: str
    version: str
    headers: Headers

    def value(self, name: str) -> str:
        """Return the first header of that lower-case name, or an empty string."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    @property
    def keeps_alive(self) -> bool:
        """True if the client may send another request on this connection."""
        return self.version == "HTTP/1.1" and self.value("connection").lower() != "close"


def parse_request(head: bytes) -> Request:
    """Read a request line and headers, up to the empty line, as Latin-1: one character per byte.

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
    """Return a hit that starts now, for the URL that the target and Host of the request name.

    `client` is the remote port. `scheme` is used if the target names none. Raises
    MalformedRequestError if neither the target nor Host names a host.
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
    """Return the status line and the headers as bytes; adds Date if the headers have none."""
    names = {name.lower() for name, _ in headers}
    dated = headers if "date" in names else (("Date", formatdate(usegmt=True)), *headers)
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in dated)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _address(request: Request, scheme: str) -> tuple[str, str, int, str]:
    """Return scheme, host, port and path. An absolute target overrides Host (RFC 9112 3.2.2)."""
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

    `publish` is called before the last write, so a client that has read a response finds it in the
    log, and again if the response fails after all.
    `alive` is the last moment at which the client was known to be connected (`time.monotonic`).
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
        self.alive = time.monotonic()
        self.complete = False
        self.size = 0
        self.status = 0
        self.headers: Headers = ()
        # With a limit of 0, drain() waits until the kernel has every byte, so all that was written
        # is sent. With TLS the limit is 1: at 0 asyncio takes an empty buffer for a full one.
        self._in_tls = writer.get_extra_info("sslcontext") is not None
        writer.transport.set_write_buffer_limits(high=int(self._in_tls), low=0)

    async def send(self, page: Page, hit: Hit, latency: float = 0.0) -> bool:
        """Send the page's reply, `latency` seconds later than its delays.

        Return True if the connection can carry another.
        """
        try:
            reply = reply_of(page, hit)
            await self._pause(latency)
            if isinstance(reply, Raw):
                return await self._send_raw(reply)
            await self._pause(reply.delay)
            if reply.fault in (Fault.RESET, Fault.CLOSE):
                self._hang_up(reply.fault)
            else:
                await self._send(reply, hit)
        except BaseException:
            self.complete = False
            self._publish(self)
            raise
        return self.complete and not _says_close(self.headers)

    async def _send(self, reply: Reply, hit: Hit) -> None:
        body = reply.content()
        self.status, self.headers = reply.status, _framed(reply, body)
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
            self._hang_up(Fault.RESET)
        return raw.then == "keep"

    async def _send_steps(
        self, steps: Sequence[tuple[float, bytes]], size: int, *, complete: bool
    ) -> None:
        """Write pieces, each after its delay; before the last one the response is published."""
        *earlier, (pause, last) = steps
        for seconds, data in earlier:
            await self._pause(seconds)
            await self._write(data)
        await self._pause(pause)
        self.size, self.complete = size, complete
        await self._write(last, publish=True)

    async def _write(self, data: bytes, *, publish: bool = False) -> None:
        # Taken before the write: the client may have read the data when the write returns.
        self.alive = time.monotonic()
        if publish:
            self._publish(self)
        self._writer.write(data)
        await self._writer.drain()
        if self._in_tls:
            await asyncio.sleep(0)  # because drain() returns before asyncio sees a closed socket

    async def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            await asyncio.sleep(min(_SLICE_SECONDS, end - now))
            if self._reader.at_eof() or self._writer.is_closing():
                raise AbandonedError
            self.alive = now

    def _hang_up(self, fault: Fault) -> None:
        if fault is Fault.RESET:
            raw: socket.socket = self._writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.alive = time.monotonic()
        self._publish(self)
        self._writer.transport.abort()


def _framed(reply: Reply, body: bytes) -> Headers:
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
    first, *others = cut or [b""]
    return [(0.0, head + first), *((0.0, piece) for piece in others)]


def _says_close(headers: Headers) -> bool:
    return ("connection", "close") in {(name.lower(), value.lower()) for name, value in headers}


_BAD_REQUEST: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Connection:
    """Answers the requests of one connection, one after the other, until one side closes it.

    `page_for` returns a hit with its number on its page, and that page; `context_for` the context
    of TLS in the tunnel of a CONNECT, None without one. `client` is the remote port, `scheme` that
    of targets that name none. `shaken` gets the kind of handshake of TLS in a tunnel. `latency` are
    seconds that each response comes later.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        page_for: Callable[[Hit], tuple[Hit, Page]],
        log: SharedLog[Hit],
        *,
        client: int,
        scheme: str = "http",
        context_for: Callable[[Hit], SSLContext | None] = lambda _: None,
        shaken: Callable[[str], None] = lambda _: None,
        latency: float = 0.0,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._page_for = page_for
        self._context_for = context_for
        self._log = log
        self._client = client
        self._scheme = scheme
        self._shaken = shaken
        self._latency = latency

    async def serve(self) -> None:
        """Answer until the connection ends. Raises the exceptions of the test's pages."""
        try:
            while await self._answer():
                pass
        except NoHandshakeError:
            return  # asyncio never reports the end of such a connection, so do not wait for it
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left; the log shows the sent part
        finally:
            self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _answer(self) -> bool:
        """Read one request and answer it; return True if the connection stays open."""
        try:
            request = parse_request(await self._reader.readuntil(b"\r\n\r\n"))
            await self._reader.readexactly(int(request.value("content-length") or 0))
            hit = hit_of(request, self._client, self._scheme)
        except (MalformedRequestError, ValueError, asyncio.LimitOverrunError):
            self._writer.write(_BAD_REQUEST)
            return False
        if hit.method == "CONNECT" and (context := self._context_for(hit)):
            return await self._open_tunnel(hit, context)
        hit, page = self._page_for(hit)
        key = self._log.open(hit)

        def publish(response: ResponseWriter) -> None:
            self._log.change(key, lambda _: _with_response(hit, response))

        response = ResponseWriter(self._reader, self._writer, publish)
        reusable = await response.send(page, hit, self._latency)
        return reusable and request.keeps_alive

    async def _open_tunnel(self, hit: Hit, context: SSLContext) -> bool:
        """Open a tunnel and start TLS in it. If the handshake fails, the log shows status 0."""
        key, secured = self._log.open(hit), False
        # If the client leaves now, this is the last moment at which it was known to be connected.
        ended = time.monotonic()
        self._writer.write(_ESTABLISHED)
        try:
            await self._writer.start_tls(context)
            secured = True
        except OSError as error:
            raise NoHandshakeError from error
        finally:
            self._shaken(handshake_of(self._writer) or FAILED)
            done = replace(hit, ended=ended, status=200 if secured else 0, complete=secured)
            self._log.change(key, lambda _: done)
        self._scheme = "https"
        return True


def _with_response(hit: Hit, response: ResponseWriter) -> Hit:
    return replace(
        hit,
        ended=response.alive,
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
    """Give the streams of an accepted socket, and cut it at the end.

    With a context they are in TLS. Raises NoHandshakeError if its handshake fails.
    """
    made: list[asyncio.StreamWriter] = []
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader, lambda _, writer: made.append(writer))
    loop = asyncio.get_running_loop()
    try:
        await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=context)
    except OSError as error:
        raise NoHandshakeError from error
    try:
        yield reader, made[0]
    finally:
        made[0].transport.abort()  # because closing waits for a client that does not read


def handshake_of(writer: asyncio.StreamWriter) -> str:
    """Return the kind of the TLS handshake of a connection, "" if there was none."""
    tls: SSLObject | None = writer.get_extra_info("ssl_object")
    if tls is None:
        return ""
    return RESUMED if tls.session_reused else FULL
