"""Reads the head of an HTTP/1.1 request and writes the head of a response.

The reader is lenient on purpose. A log must show what a faulty crawler sent: no Host or two of
them, `User-Agent : x`, a byte outside ASCII in the target, a folded line. h11 refuses most of these
requests and rewrites others, so the judge would not see them.
"""

import re
import time
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from walsh_scrapy.testing.hit import DEFAULT_PORTS, Headers, Hit

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
    """Read a request line and headers, up to the empty line, as Latin-1: one character a byte.

    Raises MalformedRequestError if the first line is no request line.
    """
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    match first.split(" "):
        case [method, target, "HTTP/1.1" | "HTTP/1.0" as version]:
            pairs = (line.partition(":") for line in lines)
            headers = tuple((name, value.strip(" \t")) for name, _, value in pairs)
            return Request(method, target, version, headers)
    raise MalformedRequestError(f"not a request line: {first!r}")


def hit_of(request: Request, client: int, scheme: str = "http") -> Hit:
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
